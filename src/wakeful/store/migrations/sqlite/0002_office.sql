-- What a database keeps besides time: who may, what they did, how much they may, what they asked before.

CREATE TABLE workspaces (
    name        TEXT    NOT NULL PRIMARY KEY,
    tz          TEXT,
    description TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE agents (
    workspace   TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    target      TEXT,
    tz          TEXT,
    active      INTEGER NOT NULL,
    channel     TEXT,
    send_to     TEXT,
    description TEXT    NOT NULL,
    version     INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    PRIMARY KEY (workspace, name)
) WITHOUT ROWID;

CREATE TABLE keys (
    id           TEXT    NOT NULL PRIMARY KEY,
    workspace    TEXT,
    name         TEXT    NOT NULL,
    role         TEXT    NOT NULL,
    agent        TEXT,
    hash         BLOB    NOT NULL,
    created_at   INTEGER NOT NULL,
    created_by   TEXT    NOT NULL,
    expires_at   INTEGER,
    last_used_at INTEGER,
    revoked_at   INTEGER
) WITHOUT ROWID;

CREATE UNIQUE INDEX keys_hash ON keys (hash);
CREATE INDEX keys_of_workspace ON keys (workspace, created_at, id);

CREATE TABLE audit (
    workspace TEXT    NOT NULL,
    seq       INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    actor     TEXT    NOT NULL,
    action    TEXT    NOT NULL,
    subject   TEXT    NOT NULL,
    details   TEXT    NOT NULL,
    address   TEXT,
    before    TEXT    NOT NULL,
    hash      TEXT    NOT NULL,
    PRIMARY KEY (workspace, seq)
) WITHOUT ROWID;

-- The newest entry of each workspace.
CREATE TABLE audit_heads (
    workspace TEXT    NOT NULL PRIMARY KEY,
    seq       INTEGER NOT NULL,
    hash      TEXT    NOT NULL
) WITHOUT ROWID;

-- The agent '' is the whole workspace. `used` is of the day `day` (UTC, counted from 1970).
CREATE TABLE quotas (
    workspace TEXT    NOT NULL,
    agent     TEXT    NOT NULL,
    bucket    TEXT    NOT NULL,
    most      INTEGER,
    used      INTEGER NOT NULL DEFAULT 0,
    day       INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (workspace, agent, bucket)
) WITHOUT ROWID;

CREATE TABLE workflows (
    workspace  TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    dag        TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (workspace, id, version)
);

CREATE TABLE answers (
    workspace   TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    fingerprint TEXT    NOT NULL,
    status      INTEGER NOT NULL,
    body        TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (workspace, key)
);

CREATE INDEX answers_created ON answers (created_at);

-- Those that there are already.

INSERT INTO workspaces
SELECT workspace, NULL, '', min(created_at), min(created_at) FROM (
    SELECT workspace, created_at FROM jobs WHERE deleted_at IS NULL
    UNION ALL SELECT 'default', CAST(strftime('%s', 'now') AS INTEGER) * 1000)
GROUP BY workspace;

INSERT INTO agents
SELECT workspace, agent, NULL, NULL, 1, NULL, NULL, '', 1, min(created_at), min(created_at) FROM (
    SELECT workspace, agent, created_at FROM jobs WHERE deleted_at IS NULL
    UNION ALL SELECT 'default', 'default', CAST(strftime('%s', 'now') AS INTEGER) * 1000)
GROUP BY workspace, agent;
