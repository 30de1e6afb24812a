-- Jobs, runs, attempts and workers, in the schema that `search_path` names. Ids are uuid v7.
--
-- Two tables more than the contract names, because of what PostgreSQL does on an update: it writes the row
-- anew, and unless no indexed value changed, a new entry into every index of the table.
--   cursors  what planning moves: a pass rewrites a few narrow rows, and not the jobs with their four indexes
--   live     which runs are not over. As partial indexes on runs it would make every finished run pay for
--            all the others again; so it is kept by hand, and runs are finished within their page (HOT)
-- `runs` is the truth and its rows are the locks; `live` says where to look.
--
-- Names and words compare by their bytes ("C"): the same order everywhere, and several times faster.

CREATE TABLE jobs (
    id                  uuid        NOT NULL PRIMARY KEY,
    workspace           text        COLLATE "C" NOT NULL,
    agent               text        COLLATE "C" NOT NULL,
    name                text        COLLATE "C" NOT NULL,
    timing              text,
    policy              text        NOT NULL,
    work                text        NOT NULL,
    payload             text,       -- as it was given, to the byte
    after_job           text        COLLATE "C",
    after_on            text        COLLATE "C",
    description         text        NOT NULL,
    labels              text        NOT NULL,
    secret              bytea,
    old_secret          bytea,
    old_secret_until_at timestamptz,
    enabled             boolean     NOT NULL,
    disabled_reason     text,
    anchor_at           timestamptz NOT NULL,
    failures            integer     NOT NULL,
    version             integer     NOT NULL,
    created_at          timestamptz NOT NULL,
    updated_at          timestamptz NOT NULL,
    deleted_at          timestamptz
);

CREATE UNIQUE INDEX jobs_name ON jobs (workspace, agent, name) WHERE deleted_at IS NULL;
CREATE INDEX jobs_after ON jobs (workspace, agent, after_job) WHERE after_job IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX jobs_failing ON jobs (id) WHERE failures > 0;

-- One row a job, for as long as the job's row. Whoever plans a job, or starts a serial run of it, locks this.
CREATE TABLE cursors (
    job_id    uuid        NOT NULL PRIMARY KEY,
    next_at   timestamptz,
    wake_at   timestamptz,
    run_count bigint      NOT NULL
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX cursors_wake ON cursors (wake_at) WHERE wake_at IS NOT NULL;

-- The second half of a page is for the rows as they are when they are over.
CREATE TABLE runs (
    id              uuid        NOT NULL PRIMARY KEY,
    job_id          uuid,
    workspace       text        COLLATE "C" NOT NULL,
    agent           text        COLLATE "C" NOT NULL,
    job_name        text        COLLATE "C",
    scheduled_at    timestamptz NOT NULL,
    fire_at         timestamptz NOT NULL,
    trigger         text        COLLATE "C" NOT NULL,
    triggered_by    text,
    state           text        COLLATE "C" NOT NULL,
    reason          text,
    covers          integer     NOT NULL,
    until_at        timestamptz,
    attempt         integer     NOT NULL,
    worker          text        COLLATE "C",
    lane            text        COLLATE "C" NOT NULL,
    serial          boolean     NOT NULL,
    due_at          timestamptz,
    started_at      timestamptz,
    finished_at     timestamptz,
    idempotency_key text        NOT NULL,
    replay_of       uuid,
    payload         text,       -- as it was given, to the byte
    created_at      timestamptz NOT NULL,
    output          text,
    error           text,
    usage           text,
    dead            boolean     NOT NULL DEFAULT false
) WITH (fillfactor = 50);

-- The lock: a tick has one run, whoever planned it and however often. Nothing else makes sure of that.
CREATE UNIQUE INDEX runs_tick ON runs (job_id, scheduled_at) WHERE trigger = 'schedule';

CREATE INDEX runs_of_job ON runs (job_id, id);
-- The agent comes last: entries are added at the end of their workspace, which is cheap, and whoever looks
-- for one agent's runs passes over the others' without visiting their rows.
CREATE INDEX runs_of_workspace ON runs (workspace, id, agent);
CREATE INDEX runs_dead ON runs (workspace, id) WHERE dead;

CREATE TABLE live (
    run_id       uuid        NOT NULL PRIMARY KEY,
    job_id       uuid,
    state        text        COLLATE "C" NOT NULL,
    worker       text        COLLATE "C",
    lane         text        COLLATE "C" NOT NULL,
    serial       boolean     NOT NULL,
    tick         boolean     NOT NULL,
    scheduled_at timestamptz NOT NULL,
    due_at       timestamptz          -- when it may be taken: while it is pending or retrying, not parked
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = false
);

CREATE INDEX live_of_job ON live (job_id);
CREATE INDEX live_due ON live (lane, due_at, run_id) WHERE due_at IS NOT NULL;

CREATE TABLE attempts (
    run_id      uuid    NOT NULL,
    attempt     integer NOT NULL,
    worker      text,
    started_at  timestamptz,
    finished_at timestamptz,
    error       text,
    PRIMARY KEY (run_id, attempt)
);

CREATE TABLE workers (
    name       text        COLLATE "C" NOT NULL PRIMARY KEY,
    beat_at    timestamptz NOT NULL,
    started_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Rows on their way in: an array of these is one parameter, a third of the work of an array a column.
-- Processes of two versions may share the database: a type is never altered, a new one takes its place.

CREATE TYPE new_job AS (
    id uuid, workspace text, agent text, name text, timing text, policy text, work text, payload text,
    after_job text, after_on text, description text, labels text, secret bytea, old_secret bytea,
    old_secret_until_at timestamptz, enabled boolean, disabled_reason text, anchor_at timestamptz,
    next_at timestamptz, wake_at timestamptz, run_count bigint, failures integer, version integer,
    created_at timestamptz, updated_at timestamptz
);

CREATE TYPE new_run AS (
    id uuid, job_id uuid, workspace text, agent text, job_name text, scheduled_at timestamptz,
    fire_at timestamptz, trigger text, triggered_by text, state text, reason text, covers integer,
    until_at timestamptz, attempt integer, worker text, lane text, serial boolean, due_at timestamptz,
    started_at timestamptz, finished_at timestamptz, idempotency_key text, replay_of uuid, payload text
);

CREATE TYPE outcome AS (
    run_id uuid, job_id uuid, attempt integer, state text, started_at timestamptz, finished_at timestamptz,
    due_at timestamptz, output text, error text, reason text, usage text
);
