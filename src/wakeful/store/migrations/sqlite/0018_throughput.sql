-- compatible: new tables, a new column, new indexes.

-- Finished runs of a job by day, in one row for each period of 28 days (counted from 1970). `job_run_counts` has one
-- for each day: its rows stay until they are pruned, and replicas of schema 17 add to it.
CREATE TABLE job_run_periods (
    job_id TEXT    NOT NULL,
    period INTEGER NOT NULL,
    days   TEXT    NOT NULL,  -- of each day and state the number of runs and their time: ' 3s1,512 4f2,30'
    PRIMARY KEY (job_id, period)
) WITHOUT ROWID;
CREATE INDEX job_run_periods_period ON job_run_periods (period);

-- The attempt of a run that was reported as done and is not verified yet. Replicas of schema 17 leave it out: they
-- know such a run by the name of its worker.
ALTER TABLE runs ADD COLUMN verifying_attempt INTEGER;
UPDATE runs SET verifying_attempt = attempt
WHERE id IN (SELECT run_id FROM verifications) AND worker = 'verifying';
