-- Instances of agent classes: their state, mailboxes and schedules. Breaking: code of schema 11 would take a
-- signal without regard to its mailbox.

CREATE TABLE agent_classes (
    workspace  text        COLLATE "C" NOT NULL,
    agent      text        COLLATE "C" NOT NULL,
    version    integer     NOT NULL,
    policy     text        NOT NULL,
    definition text        NOT NULL,  -- mailbox, dedupeMs, lane, schedules, handles
    hash       text        NOT NULL,  -- changes with the declared schedules
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (workspace, agent)
);

-- Each signal updates the row: half of a page is left for that.
CREATE TABLE instances (
    id                uuid        NOT NULL PRIMARY KEY,         -- follows from the three names
    workspace         text        COLLATE "C" NOT NULL,
    agent             text        COLLATE "C" NOT NULL,
    name              text        COLLATE "C" NOT NULL,
    status            text        COLLATE "C" NOT NULL,         -- active, paused, blocked, stopped
    note              text,                                     -- why it is paused or blocked
    data              text,                                     -- the state; NULL: the initial state
    version           integer     NOT NULL DEFAULT 0,           -- the version of the class that wrote the state
    revision          bigint      NOT NULL DEFAULT 0,           -- one higher with each change of the state
    memory            text,                                     -- last runs and seen keys
    sequence          bigint      NOT NULL DEFAULT 0,           -- the last number that a signal got
    schedules_hash    text        COLLATE "C" NOT NULL DEFAULT '',  -- of the declared schedules that it has
    schedules_version integer     NOT NULL DEFAULT 0,           -- and the version of their class
    handled_at        timestamptz,                              -- when it handled a signal last
    hibernated_at     timestamptz,                              -- when it was hibernated last
    created_at        timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX instances_name ON instances (workspace, agent, name);
CREATE INDEX instances_schedules ON instances (workspace, agent, schedules_hash, id);

-- The signals that an instance has received, until their ids expire.
CREATE TABLE signal_ids (
    instance_id uuid        NOT NULL,
    source      text        COLLATE "C" NOT NULL,
    id          text        COLLATE "C" NOT NULL,
    run_id      uuid        NOT NULL,
    expires_at  timestamptz NOT NULL,
    PRIMARY KEY (instance_id, source, id)
);
CREATE INDEX signal_ids_expires ON signal_ids (expires_at);

ALTER TABLE runs
    ADD COLUMN instance_id uuid,
    ADD COLUMN instance    text COLLATE "C",
    ADD COLUMN signal      text COLLATE "C",
    ADD COLUMN sequence    bigint,  -- the order of arrival within the instance
    ADD COLUMN emitted     text;    -- the signals that went out, as a JSON array
CREATE INDEX runs_of_instance ON runs (instance_id, id) WHERE instance_id IS NOT NULL;

-- Of signal runs only.
ALTER TABLE live_runs
    ADD COLUMN instance_id uuid,
    ADD COLUMN sequence    bigint,
    ADD COLUMN fire_at     timestamptz;
-- The lock: at most one run of an instance runs, retries, or can be taken. Nothing else makes sure of that.
CREATE UNIQUE INDEX live_runs_exposed ON live_runs (instance_id)
    WHERE instance_id IS NOT NULL AND (state <> 'pending' OR due_at IS NOT NULL);
-- The mailbox, in its order.
CREATE INDEX live_runs_mailbox ON live_runs (instance_id, fire_at, sequence)
    WHERE instance_id IS NOT NULL AND state = 'pending';

ALTER TABLE jobs
    ADD COLUMN instance_id     uuid,
    ADD COLUMN schedule_origin text COLLATE "C",
    ADD COLUMN schedule_id     text COLLATE "C";
CREATE UNIQUE INDEX jobs_schedule ON jobs (instance_id, schedule_origin, schedule_id)
    WHERE instance_id IS NOT NULL AND deleted_at IS NULL;

-- Rows on their way in, as `JobRow` and `NewRun`. Replicas of schema 10 use `job_record` until they stop.
CREATE TYPE job_row AS (
    id uuid, workspace text, agent text, name text, timing text, policy text, work text, payload text,
    after_job text, after_on text, description text, labels text, secret bytea, old_secret bytea,
    old_secret_until_at timestamptz, enabled boolean, disabled_reason text, anchor_at timestamptz,
    next_at timestamptz, wake_at timestamptz, run_count bigint, failures integer, version integer,
    created_at timestamptz, updated_at timestamptz, created_by text, pause_note text,
    pause_until timestamptz, instance_id uuid, schedule_origin text, schedule_id text
);
DROP TYPE run_record;
CREATE TYPE run_record AS (
    id uuid, job_id uuid, workspace text, agent text, job_name text, scheduled_at timestamptz,
    fire_at timestamptz, trigger text, triggered_by text, state text, reason text, covers integer,
    until_at timestamptz, attempt integer, worker text, lane text, serial boolean, due_at timestamptz,
    started_at timestamptz, finished_at timestamptz, idempotency_key text, replay_of uuid, payload text,
    claim_timeout_ms bigint, requires text, requires_version integer, instance_id uuid, instance text,
    signal text
);
