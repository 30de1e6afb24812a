-- Jobs, runs, attempts and workers. Instants are epoch milliseconds, ids are uuid v7 as text.
--
-- Every index costs each run a write or two, so there is one only where a statement needs it
-- (`sqlite/statements.py` says which), and those that serve live runs hold nothing else.

CREATE TABLE jobs (
    id               TEXT    NOT NULL PRIMARY KEY,
    workspace        TEXT    NOT NULL,
    agent            TEXT    NOT NULL,
    name             TEXT    NOT NULL,
    timing           TEXT,
    policy           TEXT    NOT NULL,
    work             TEXT    NOT NULL,
    payload          TEXT,
    after_job        TEXT,
    after_on         TEXT,
    description      TEXT    NOT NULL,
    labels           TEXT    NOT NULL,
    secret           BLOB,
    old_secret       BLOB,
    old_secret_until INTEGER,
    enabled          INTEGER NOT NULL,
    disabled_reason  TEXT,
    anchor_at        INTEGER NOT NULL,
    next_at          INTEGER,
    wake_at          INTEGER,
    run_count        INTEGER NOT NULL,
    failures         INTEGER NOT NULL,
    version          INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    deleted_at       INTEGER
);

CREATE UNIQUE INDEX jobs_name ON jobs (workspace, agent, name) WHERE deleted_at IS NULL;
CREATE INDEX jobs_wake ON jobs (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX jobs_after ON jobs (workspace, agent, after_job) WHERE after_job IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX jobs_failing ON jobs (id) WHERE failures > 0;

CREATE TABLE runs (
    id              TEXT    NOT NULL PRIMARY KEY,
    job_id          TEXT,
    workspace       TEXT    NOT NULL,
    agent           TEXT    NOT NULL,
    job_name        TEXT,
    scheduled_at    INTEGER NOT NULL,
    fire_at         INTEGER NOT NULL,
    trigger         TEXT    NOT NULL,
    triggered_by    TEXT,
    state           TEXT    NOT NULL,
    reason          TEXT,
    covers          INTEGER NOT NULL,
    until_at        INTEGER,
    attempt         INTEGER NOT NULL,
    worker          TEXT,
    lane            TEXT    NOT NULL,
    serial          INTEGER NOT NULL,
    due_at          INTEGER,
    started_at      INTEGER,
    finished_at     INTEGER,
    idempotency_key TEXT    NOT NULL,
    replay_of       TEXT,
    payload         TEXT,
    created_at      INTEGER NOT NULL,
    output          TEXT,
    error           TEXT,
    usage           TEXT,
    dead            INTEGER NOT NULL DEFAULT 0
);

-- The lock: a tick has one run, whoever planned it and however often. Nothing else makes sure of that.
CREATE UNIQUE INDEX runs_tick ON runs (job_id, scheduled_at) WHERE trigger = 'schedule';

CREATE INDEX runs_running ON runs (job_id) WHERE state = 'running';
CREATE INDEX runs_waiting ON runs (job_id, state, scheduled_at) WHERE state IN ('pending', 'retrying');
CREATE INDEX runs_due ON runs (lane, due_at) WHERE state IN ('pending', 'retrying');
CREATE INDEX runs_dead ON runs (workspace, id) WHERE dead;
CREATE INDEX runs_finished ON runs (finished_at) WHERE finished_at IS NOT NULL AND NOT dead;
CREATE INDEX runs_of_job ON runs (job_id, id);
CREATE INDEX runs_of_agent ON runs (workspace, agent, id);
CREATE INDEX runs_of_workspace ON runs (workspace, id);

CREATE TABLE attempts (
    run_id      TEXT    NOT NULL,
    attempt     INTEGER NOT NULL,
    worker      TEXT,
    started_at  INTEGER,
    finished_at INTEGER,
    error       TEXT,
    PRIMARY KEY (run_id, attempt)
) WITHOUT ROWID;

CREATE TABLE workers (
    name       TEXT    NOT NULL PRIMARY KEY,
    beat_at    INTEGER NOT NULL,
    started_at INTEGER NOT NULL
) WITHOUT ROWID;
