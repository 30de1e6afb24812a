-- Instances of agent classes: their state, mailboxes and schedules. Breaking: code of schema 11 would take a
-- signal without regard to its mailbox.

CREATE TABLE agent_classes (
    workspace  TEXT    NOT NULL,
    agent      TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    policy     TEXT    NOT NULL,
    definition TEXT    NOT NULL,  -- mailbox, dedupeMs, lane, schedules, handles
    hash       TEXT    NOT NULL,  -- changes with the declared schedules
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (workspace, agent)
) WITHOUT ROWID;

CREATE TABLE instances (
    id                TEXT    NOT NULL PRIMARY KEY,  -- follows from the three names
    workspace         TEXT    NOT NULL,
    agent             TEXT    NOT NULL,
    name              TEXT    NOT NULL,
    status            TEXT    NOT NULL,              -- active, paused, blocked, stopped
    note              TEXT,                          -- why it is paused or blocked
    data              TEXT,                          -- the state; NULL: the initial state of the class
    version           INTEGER NOT NULL DEFAULT 0,    -- the version of the class that wrote the state
    revision          INTEGER NOT NULL DEFAULT 0,    -- one higher with each change of the state
    memory            TEXT,                          -- last runs and seen keys
    sequence          INTEGER NOT NULL DEFAULT 0,    -- the last number that a signal got
    schedules_hash    TEXT    NOT NULL DEFAULT '',   -- of the declared schedules that it has
    schedules_version INTEGER NOT NULL DEFAULT 0,    -- and the version of their class
    handled_at        INTEGER,                       -- when it handled a signal last
    hibernated_at     INTEGER,                       -- when it was hibernated last
    created_at        INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL
);
CREATE INDEX instances_name ON instances (workspace, agent, name);
-- Without those that are stopped: they have no schedules, and do not count towards the quota.
CREATE INDEX instances_schedules ON instances (workspace, agent, schedules_hash) WHERE status <> 'stopped';

-- The signals that an instance has received, until their ids expire.
CREATE TABLE signal_ids (
    instance_id TEXT    NOT NULL,
    source      TEXT    NOT NULL,
    id          TEXT    NOT NULL,
    run_id      TEXT    NOT NULL,
    expires_at  INTEGER NOT NULL,
    PRIMARY KEY (instance_id, source, id)
) WITHOUT ROWID;
CREATE INDEX signal_ids_expires ON signal_ids (expires_at);

ALTER TABLE runs ADD COLUMN instance_id TEXT;
ALTER TABLE runs ADD COLUMN instance TEXT;
ALTER TABLE runs ADD COLUMN signal TEXT;
-- The order of arrival within the instance.
ALTER TABLE runs ADD COLUMN sequence INTEGER;
-- The signals that went out, as a JSON array.
ALTER TABLE runs ADD COLUMN emitted TEXT;

-- The lock: at most one run of an instance runs, retries, or can be taken. Nothing else makes sure of that.
CREATE UNIQUE INDEX runs_exposed ON runs (instance_id)
    WHERE instance_id IS NOT NULL
    AND (state IN ('running', 'retrying') OR state = 'pending' AND due_at IS NOT NULL);
-- The mailbox, in its order.
CREATE INDEX runs_mailbox ON runs (instance_id, fire_at, sequence)
    WHERE instance_id IS NOT NULL AND state = 'pending';
CREATE INDEX runs_of_instance ON runs (instance_id, id) WHERE instance_id IS NOT NULL;

ALTER TABLE jobs ADD COLUMN instance_id TEXT;
ALTER TABLE jobs ADD COLUMN schedule_origin TEXT;
ALTER TABLE jobs ADD COLUMN schedule_id TEXT;
CREATE UNIQUE INDEX jobs_schedule ON jobs (instance_id, schedule_origin, schedule_id)
    WHERE instance_id IS NOT NULL AND deleted_at IS NULL;
