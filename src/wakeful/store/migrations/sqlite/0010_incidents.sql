-- compatible: adds a table. Code of schema 9 does not use it, and continues to write and read `incidents`.
--
-- Incidents of jobs (`incident_rules.py`). The older table `incidents` is the queue of events for the alerter;
-- it keeps its name for replicas of the previous version.

CREATE TABLE job_incidents (
    id              TEXT    NOT NULL PRIMARY KEY,
    workspace       TEXT    NOT NULL,
    agent           TEXT    NOT NULL,
    job_id          TEXT    NOT NULL,
    job_name        TEXT    NOT NULL,
    cause           TEXT    NOT NULL,
    error           TEXT,
    opened_at       INTEGER NOT NULL,
    failed_at       INTEGER NOT NULL,  -- the last failure
    failed_runs     INTEGER NOT NULL,
    in_a_row        INTEGER NOT NULL,  -- consecutive failures of the job, at the last failure
    first_run_id    TEXT    NOT NULL,
    last_run_id     TEXT    NOT NULL,
    reopened        INTEGER NOT NULL,  -- how often it was opened again
    acknowledged_at INTEGER,
    acknowledged_by TEXT,
    note            TEXT,
    alerted_at      INTEGER,           -- the last alert; a reminder is not one
    notified        INTEGER NOT NULL,  -- whether the last message says that the incident is open
    reminded_at     INTEGER,
    notify_at       INTEGER,           -- when the alerter decides about the next message; NULL: there is none
    closed_at       INTEGER,
    closed_reason   TEXT,              -- succeeded, job_deleted, job_disabled
    closed_by_run   TEXT
) WITHOUT ROWID;

-- The lock: a job has one open incident for each cause.
CREATE UNIQUE INDEX job_incidents_cause ON job_incidents (job_id, cause) WHERE closed_at IS NULL;
CREATE INDEX job_incidents_open ON job_incidents (workspace, id) WHERE closed_at IS NULL;
CREATE INDEX job_incidents_of_job ON job_incidents (job_id, id);
CREATE INDEX job_incidents_of_agent ON job_incidents (workspace, agent, id);
CREATE INDEX job_incidents_of_workspace ON job_incidents (workspace, id);
CREATE INDEX job_incidents_notify ON job_incidents (notify_at) WHERE notify_at IS NOT NULL;
CREATE INDEX job_incidents_closed ON job_incidents (closed_at) WHERE closed_at IS NOT NULL;
