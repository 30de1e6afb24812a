-- compatible: replaces an index by one with the same columns.
--
-- Planning does not slow down with history.

-- The columns in the other order: new ticks then have neighbouring entries, however many runs each job had.
-- The index stays the lock: a tick has one run.
DROP INDEX runs_tick;
CREATE UNIQUE INDEX runs_tick ON runs (scheduled_at, job_id) WHERE trigger = 'schedule';
