-- compatible: new columns with a default, a new table, new indexes.
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

-- How often the run was lost together with other runs of the same worker. Such a run is a suspect: a process
-- runs one of them at a time.
ALTER TABLE runs ADD COLUMN losses INTEGER NOT NULL DEFAULT 0;
CREATE INDEX runs_suspect ON runs (due_at) WHERE losses > 0 AND due_at IS NOT NULL;

-- The claim that gave the run to its executor, as the executor or the server named it. A claim whose response
-- is lost is returned by this name.
ALTER TABLE runs ADD COLUMN claim_id TEXT;

-- Runs for executors that other runs of their jobs wait for.
CREATE INDEX runs_retrying ON runs (job_id) WHERE state = 'retrying' AND claim_deadline IS NOT NULL;

-- How many follow-up runs in a row, each caused by the end of the one before, led to the run.
ALTER TABLE runs ADD COLUMN chain_length INTEGER NOT NULL DEFAULT 0;

-- What the running attempts of runs under a budget have reserved, and what the runs have used so far. A
-- reservation counts while its run is running in that attempt, so a run that ends or is lost releases it.
CREATE TABLE reservations (
    run_id         TEXT    NOT NULL PRIMARY KEY,
    attempt        INTEGER NOT NULL,
    workspace      TEXT    NOT NULL,
    agent          TEXT    NOT NULL,
    job            TEXT    NOT NULL,
    -- used by earlier attempts
    earlier_tokens INTEGER NOT NULL,
    earlier_cost   REAL    NOT NULL,
    -- used by this attempt, and part of `spending` already
    used_tokens    INTEGER NOT NULL,
    used_cost      REAL    NOT NULL,
    -- reserved for what is under way
    tokens         INTEGER NOT NULL,
    cost           REAL    NOT NULL
) WITHOUT ROWID;

CREATE INDEX reservations_held ON reservations (workspace) WHERE tokens > 0 OR cost > 0;
CREATE INDEX agents_budget ON agents (workspace, name) WHERE budget IS NOT NULL;
CREATE INDEX workspaces_budget ON workspaces (name) WHERE budget IS NOT NULL;
