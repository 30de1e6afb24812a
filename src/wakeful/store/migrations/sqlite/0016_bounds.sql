-- compatible: new columns with a default.
--
-- Bounds that hold under concurrency and across crashes.

-- Ticks that resuming and editing must not plan again, because they have a record: skipped on request, or started
-- early by jitter. Milliseconds, separated by commas. While the job is enabled, ticks before its cursor are left out.
ALTER TABLE jobs ADD COLUMN decided_ticks TEXT;
UPDATE jobs SET decided_ticks = ahead.ticks FROM (
    SELECT job_id, group_concat(scheduled_at) AS ticks FROM (
        SELECT job_id, scheduled_at FROM runs
        WHERE trigger = 'schedule' AND scheduled_at > CAST(strftime('%s', 'now') AS INTEGER) * 1000 ORDER BY scheduled_at)
    GROUP BY job_id
) ahead WHERE jobs.id = ahead.job_id;

-- How often the run was lost together with other runs of the same worker, in a row.
ALTER TABLE runs ADD COLUMN losses INTEGER NOT NULL DEFAULT 0;

-- The claim that gave the run to its executor, as the executor or the server named it. A claim whose response
-- is lost is returned by this name.
ALTER TABLE runs ADD COLUMN claim_id TEXT;

-- How many follow-up runs in a row, each caused by the end of the one before, led to the run.
ALTER TABLE runs ADD COLUMN chain_length INTEGER NOT NULL DEFAULT 0;
