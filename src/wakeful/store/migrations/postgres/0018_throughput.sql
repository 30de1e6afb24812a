-- compatible: new tables, a new column, new indexes.

-- Indexes of large tables that are built after the migration, without a lock on writes.
CREATE TABLE pending_indexes (
    name      text NOT NULL PRIMARY KEY,
    statement text NOT NULL
);

-- The live runs of a workspace or agent, to count them. Replicas of schema 16 left the owner out.
UPDATE live_runs l SET workspace = r.workspace, agent = r.agent FROM runs r
WHERE r.id = l.run_id AND l.workspace IS NULL;
CREATE INDEX CONCURRENTLY live_runs_of_workspace ON live_runs (workspace, agent);

-- Finished runs of a job by day, in one row for each period of 28 days (counted from 1970). `job_run_counts` has one
-- for each day: its rows stay until they are pruned, and replicas of schema 17 add to it.
CREATE TABLE job_run_periods (
    job_id uuid    NOT NULL,
    period integer NOT NULL,
    days   text    NOT NULL,  -- of each day and state the number of runs and their time: ' 3s1,512 4f2,30'
    PRIMARY KEY (job_id, period)
) WITH (fillfactor = 70);
CREATE INDEX job_run_periods_period ON job_run_periods (period);

-- The attempt of a run that was reported as done and is not verified yet. Replicas of schema 17 leave it out: they
-- know such a run by the name of its worker.
ALTER TABLE runs ADD COLUMN verifying_attempt integer;
UPDATE runs SET verifying_attempt = attempt
WHERE id IN (SELECT run_id FROM verifications) AND worker = 'verifying';
