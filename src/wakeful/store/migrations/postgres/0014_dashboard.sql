-- compatible: adds tables, columns and indexes that code of schema 13 does not use.
--
-- Sign-in sessions of the dashboard, revisions of jobs, and counts of finished runs.

-- Sign-in sessions, by the SHA-256 of their token. They end with their key.
CREATE TABLE web_sessions (
    hash       bytea       NOT NULL PRIMARY KEY,
    key_id     text        COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL,  -- the last request, to the minute
    expires_at timestamptz NOT NULL,
    address    text
);
CREATE INDEX web_sessions_of_key ON web_sessions (key_id);
CREATE INDEX web_sessions_expires ON web_sessions (expires_at);

-- One-time links to sign in, by the SHA-256 of their token.
CREATE TABLE sign_in_links (
    hash       bytea       NOT NULL PRIMARY KEY,
    key_id     text        COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX sign_in_links_expires ON sign_in_links (expires_at);

-- Failed sign-ins by client address: when its allowance is full again.
CREATE TABLE sign_in_limits (
    address text        COLLATE "C" NOT NULL PRIMARY KEY,
    full_at timestamptz NOT NULL
);
CREATE INDEX sign_in_limits_full ON sign_in_limits (full_at);

-- The beginning of what the target answered to a failed attempt.
ALTER TABLE attempts ADD COLUMN output text;

-- The replays of a run, and the runs that its end caused.
CREATE INDEX runs_replay_of ON runs (replay_of) WHERE replay_of IS NOT NULL;
CREATE INDEX runs_follow_up ON runs (triggered_by) WHERE trigger IN ('chain', 'heartbeat', 'alert');

-- What a job was before each change of its definition.
CREATE TABLE job_revisions (
    job_id      uuid        NOT NULL,
    version     integer     NOT NULL,  -- of the job before the change
    document    text        NOT NULL,  -- its fields before the change, without credentials
    fields      text        NOT NULL,  -- the names of the changed fields, a JSON array
    replaced_at timestamptz NOT NULL,
    replaced_by text        NOT NULL,  -- role and actor of the change
    PRIMARY KEY (job_id, version)
);

-- Finished runs by hour (UTC, counted from 1970).
CREATE TABLE run_counts (
    workspace text    COLLATE "C" NOT NULL,
    hour      integer NOT NULL,
    agent     text    COLLATE "C" NOT NULL,
    state     text    COLLATE "C" NOT NULL,
    runs      bigint  NOT NULL,
    PRIMARY KEY (workspace, hour, agent, state)
) WITH (fillfactor = 50);
-- Finished runs of a job by day (UTC, counted from 1970).
CREATE TABLE job_run_counts (
    job_id      uuid    NOT NULL,
    day         integer NOT NULL,
    state       text    COLLATE "C" NOT NULL,
    runs        bigint  NOT NULL,
    duration_ms bigint  NOT NULL,  -- of all these runs
    PRIMARY KEY (job_id, day, state)
) WITH (fillfactor = 70);
-- How far the counts are. The row is the lock: one process counts at a time.
CREATE TABLE run_counts_position (
    id       integer     NOT NULL PRIMARY KEY CHECK (id = 1),
    position bigint      NOT NULL,  -- the number of the last change in the changelog that is counted
    since_at timestamptz NOT NULL,  -- runs that finished earlier are counted by a scan of the table
    scanned  uuid                   -- the scan goes from new to old and is here; NULL: it is complete
) WITH (fillfactor = 50);
CREATE INDEX run_counts_hour ON run_counts (hour);
CREATE INDEX job_run_counts_day ON job_run_counts (day);

-- Runs without success, among a few others. Each of them has an error or a reason. The state must not be in the
-- index: an update that changes an indexed column writes to every index of the table.
CREATE INDEX runs_unsuccessful ON runs (workspace, id, agent) WHERE error IS NOT NULL OR reason IS NOT NULL;
CREATE INDEX runs_unsuccessful_of_job ON runs (job_id, id) WHERE error IS NOT NULL OR reason IS NOT NULL;

CREATE INDEX audit_of_subject ON audit (workspace, subject, seq);

-- The turns of a session, and the dead letters of an agent.
CREATE INDEX turns_of_session ON turns (workspace, agent, session, run_id);
CREATE INDEX runs_dead_of_agent ON runs (workspace, agent, id) WHERE dead;

-- Text at a path of JSON, or a default; null if it is not JSON: a job that cannot be read must not stop a migration
-- or an edit. jsonb refuses the escape \u0000, which texts of jobs may have: \u0001 takes its place.
CREATE FUNCTION text_at(document text, path text[], missing text) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN coalesce(replace(document, '\u0000', '\u0001')::jsonb #>> path, missing);
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$;

-- What lists of jobs filter by. `short_labels` is null if the labels are too long for an index.
ALTER TABLE jobs
    ADD COLUMN schedule_kind text COLLATE "C" GENERATED ALWAYS AS (
        CASE WHEN timing IS NOT NULL THEN text_at(timing, '{schedule,kind}', NULL)
            WHEN after_job IS NOT NULL THEN 'after' ELSE 'none' END) STORED,
    ADD COLUMN target_kind text COLLATE "C" GENERATED ALWAYS AS (
        CASE WHEN position('"target"' IN work) = 0 THEN 'pull'
            ELSE text_at(work, '{target,kind}', 'pull') END) STORED,
    ADD COLUMN short_labels text GENERATED ALWAYS AS (
        CASE WHEN octet_length(labels) <= 1000 THEN labels END) STORED;
-- A search that finds little reads all entries of a workspace, and no row of the table.
CREATE INDEX jobs_list ON jobs (workspace, agent, name)
    INCLUDE (id, enabled, disabled_reason, created_by, schedule_kind, target_kind, short_labels, instance_id)
    WHERE deleted_at IS NULL;
CREATE INDEX jobs_failing_by_name ON jobs (workspace, agent, name) WHERE failures > 0 AND deleted_at IS NULL;

-- The most expensive jobs and agents of a day.
CREATE INDEX spending_of_jobs ON spending (workspace, day, cost, tokens) WHERE job <> '';
CREATE INDEX spending_of_agent_jobs ON spending (workspace, agent, day, cost, tokens) WHERE job <> '';
CREATE INDEX spending_of_agents ON spending (workspace, day, cost, tokens) WHERE job = '';
