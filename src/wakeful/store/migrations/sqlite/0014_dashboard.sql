-- compatible: adds tables, columns and indexes that code of schema 13 does not use.
--
-- Sign-in sessions of the dashboard, revisions of jobs, and counts of finished runs.

-- Sign-in sessions, by the SHA-256 of their token. They end with their key.
CREATE TABLE web_sessions (
    hash       BLOB    NOT NULL PRIMARY KEY,
    key_id     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,  -- the last request, to the minute
    expires_at INTEGER NOT NULL,
    address    TEXT
) WITHOUT ROWID;
CREATE INDEX web_sessions_of_key ON web_sessions (key_id);
CREATE INDEX web_sessions_expires ON web_sessions (expires_at);

-- One-time links to sign in, by the SHA-256 of their token.
CREATE TABLE sign_in_links (
    hash       BLOB    NOT NULL PRIMARY KEY,
    key_id     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX sign_in_links_expires ON sign_in_links (expires_at);

-- Failed sign-ins by client address: when its allowance is full again.
CREATE TABLE sign_in_limits (
    address TEXT    NOT NULL PRIMARY KEY,
    full_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX sign_in_limits_full ON sign_in_limits (full_at);

-- The beginning of what the target answered to a failed attempt.
ALTER TABLE attempts ADD COLUMN output TEXT;

-- The replays of a run, and the runs that its end caused.
CREATE INDEX runs_replay_of ON runs (replay_of) WHERE replay_of IS NOT NULL;
CREATE INDEX runs_follow_up ON runs (triggered_by) WHERE trigger IN ('chain', 'heartbeat', 'alert');

-- What a job was before each change of its definition.
CREATE TABLE job_revisions (
    job_id      TEXT    NOT NULL,
    version     INTEGER NOT NULL,  -- of the job before the change
    document    TEXT    NOT NULL,  -- its fields before the change, without credentials
    fields      TEXT    NOT NULL,  -- the names of the changed fields, a JSON array
    replaced_at INTEGER NOT NULL,
    replaced_by TEXT    NOT NULL,  -- role and actor of the change
    PRIMARY KEY (job_id, version)
) WITHOUT ROWID;

-- Finished runs by hour (UTC, counted from 1970).
CREATE TABLE run_counts (
    workspace TEXT    NOT NULL,
    hour      INTEGER NOT NULL,
    agent     TEXT    NOT NULL,
    state     TEXT    NOT NULL,
    runs      INTEGER NOT NULL,
    PRIMARY KEY (workspace, hour, agent, state)
) WITHOUT ROWID;
-- Finished runs of a job by day (UTC, counted from 1970).
CREATE TABLE job_run_counts (
    job_id      TEXT    NOT NULL,
    day         INTEGER NOT NULL,
    state       TEXT    NOT NULL,
    runs        INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,  -- of all these runs
    PRIMARY KEY (job_id, day, state)
) WITHOUT ROWID;
-- How far the counts are. The row is the lock: one process counts at a time.
CREATE TABLE run_counts_position (
    id       INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    position INTEGER NOT NULL,  -- the number of the last change in the changelog that is counted
    since_at INTEGER NOT NULL,  -- runs that finished earlier are counted by a scan of the table
    scanned  TEXT               -- the scan goes from new to old and is here; NULL: it is complete
);
CREATE INDEX run_counts_hour ON run_counts (hour);
CREATE INDEX job_run_counts_day ON job_run_counts (day);

CREATE INDEX runs_unsuccessful ON runs (workspace, id, state, agent)
    WHERE state IN ('failed', 'cancelled', 'skipped', 'missed');
CREATE INDEX runs_unsuccessful_of_job ON runs (job_id, id, state)
    WHERE state IN ('failed', 'cancelled', 'skipped', 'missed');

CREATE INDEX audit_of_subject ON audit (workspace, subject, seq);

-- The turns of a session, and the dead letters of an agent.
CREATE INDEX turns_of_session ON turns (workspace, agent, session, run_id);
CREATE INDEX runs_dead_of_agent ON runs (workspace, agent, id) WHERE dead;

-- What lists of jobs filter by. Triggers set them for code of schema 13, and for changes.
ALTER TABLE jobs ADD COLUMN schedule_kind TEXT;
ALTER TABLE jobs ADD COLUMN target_kind TEXT;
UPDATE jobs SET
    schedule_kind = CASE WHEN timing IS NOT NULL
            THEN CASE WHEN json_valid(timing) THEN json_extract(timing, '$.schedule.kind') END
        WHEN after_job IS NOT NULL THEN 'after' ELSE 'none' END,
    target_kind = CASE WHEN json_valid(work) THEN coalesce(json_extract(work, '$.target.kind'), 'pull') END;
CREATE TRIGGER jobs_kinds_of_new AFTER INSERT ON jobs WHEN NEW.schedule_kind IS NULL BEGIN
    UPDATE jobs SET
        schedule_kind = CASE WHEN NEW.timing IS NOT NULL
                THEN CASE WHEN json_valid(NEW.timing) THEN json_extract(NEW.timing, '$.schedule.kind') END
            WHEN NEW.after_job IS NOT NULL THEN 'after' ELSE 'none' END,
        target_kind = CASE WHEN json_valid(NEW.work)
            THEN coalesce(json_extract(NEW.work, '$.target.kind'), 'pull') END
    WHERE rowid = NEW.rowid;
END;
CREATE TRIGGER jobs_kinds_of_changed AFTER UPDATE OF timing, work, after_job ON jobs BEGIN
    UPDATE jobs SET
        schedule_kind = CASE WHEN NEW.timing IS NOT NULL
                THEN CASE WHEN json_valid(NEW.timing) THEN json_extract(NEW.timing, '$.schedule.kind') END
            WHEN NEW.after_job IS NOT NULL THEN 'after' ELSE 'none' END,
        target_kind = CASE WHEN json_valid(NEW.work)
            THEN coalesce(json_extract(NEW.work, '$.target.kind'), 'pull') END
    WHERE rowid = NEW.rowid;
END;
-- A search that finds little reads all entries of a workspace, and no row of the table.
CREATE INDEX jobs_list ON jobs (workspace, agent, name, enabled, disabled_reason, created_by, schedule_kind,
    target_kind, labels, instance_id) WHERE deleted_at IS NULL;
CREATE INDEX jobs_failing_by_name ON jobs (workspace, agent, name) WHERE failures > 0 AND deleted_at IS NULL;

-- The most expensive jobs and agents of a day.
CREATE INDEX spending_of_jobs ON spending (workspace, day, cost, tokens) WHERE job <> '';
CREATE INDEX spending_of_agent_jobs ON spending (workspace, agent, day, cost, tokens) WHERE job <> '';
CREATE INDEX spending_of_agents ON spending (workspace, day, cost, tokens) WHERE job = '';
