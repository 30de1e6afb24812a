-- compatible: replaces an index by one with the same columns, and drops a trigger for code of schema 13.
--
-- Planning and registration do not slow down with history.

-- The columns in the other order: new ticks then have neighbouring entries, however many runs each job had.
-- The index stays the lock: a tick has one run.
DROP INDEX runs_tick;
CREATE UNIQUE INDEX runs_tick ON runs (scheduled_at, job_id) WHERE trigger = 'schedule';

-- A trigger makes each insert of a job half as expensive again. Lists of jobs compute the kinds of a job that
-- code of schema 13 inserts (`list_statements`).
DROP TRIGGER jobs_kinds_of_new;
