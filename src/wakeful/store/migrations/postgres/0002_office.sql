-- What a database keeps besides time: who may, what they did, how much they may, what they asked before.

CREATE TABLE workspaces (
    name        text        COLLATE "C" NOT NULL PRIMARY KEY,
    tz          text,
    description text        NOT NULL,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL
);

-- Whoever makes jobs of an agent holds its row (FOR KEY SHARE), and whoever deletes it waits for them.
CREATE TABLE agents (
    workspace   text        COLLATE "C" NOT NULL,
    name        text        COLLATE "C" NOT NULL,
    target      text,
    tz          text,
    active      boolean     NOT NULL,
    channel     text,
    send_to     text,
    description text        NOT NULL,
    version     integer     NOT NULL,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    PRIMARY KEY (workspace, name)
);

CREATE TABLE keys (
    id           text        COLLATE "C" NOT NULL PRIMARY KEY,
    workspace    text        COLLATE "C",
    name         text        NOT NULL,
    role         text        COLLATE "C" NOT NULL,
    agent        text        COLLATE "C",
    hash         bytea       NOT NULL,
    created_at   timestamptz NOT NULL,
    created_by   text        NOT NULL,
    expires_at   timestamptz,
    last_used_at timestamptz,
    revoked_at   timestamptz
) WITH (fillfactor = 50);  -- `last_used_at` is noted within the page

CREATE UNIQUE INDEX keys_hash ON keys (hash);
CREATE INDEX keys_of_workspace ON keys (workspace, created_at, id);

CREATE TABLE audit (
    workspace text        COLLATE "C" NOT NULL,
    seq       bigint      NOT NULL,
    at        timestamptz NOT NULL,
    actor     text        NOT NULL,
    action    text        COLLATE "C" NOT NULL,
    subject   text        NOT NULL,
    details   text        NOT NULL,
    address   text,
    before    text        COLLATE "C" NOT NULL,
    hash      text        COLLATE "C" NOT NULL,
    PRIMARY KEY (workspace, seq)
);

-- The newest entry of each workspace. Whoever appends locks this, so the chain is in the order of commits.
CREATE TABLE audit_heads (
    workspace text   COLLATE "C" NOT NULL PRIMARY KEY,
    seq       bigint NOT NULL,
    hash      text   COLLATE "C" NOT NULL
) WITH (fillfactor = 50);

-- The agent '' is the whole workspace. `used` is of the day `day` (UTC, counted from 1970).
CREATE TABLE quotas (
    workspace text    COLLATE "C" NOT NULL,
    agent     text    COLLATE "C" NOT NULL,
    bucket    text    COLLATE "C" NOT NULL,
    most      bigint,
    used      bigint  NOT NULL DEFAULT 0,
    day       integer NOT NULL DEFAULT 0,
    PRIMARY KEY (workspace, agent, bucket)
) WITH (fillfactor = 50);

CREATE TABLE workflows (
    workspace  text        COLLATE "C" NOT NULL,
    id         text        COLLATE "C" NOT NULL,
    version    integer     NOT NULL,
    dag        text        NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (workspace, id, version)
);

CREATE TABLE answers (
    workspace   text        COLLATE "C" NOT NULL,
    key         text        COLLATE "C" NOT NULL,
    fingerprint text        COLLATE "C" NOT NULL,
    status      integer     NOT NULL,
    body        text        NOT NULL,
    created_at  timestamptz NOT NULL,
    PRIMARY KEY (workspace, key)
);

CREATE INDEX answers_created ON answers (created_at);

CREATE TYPE new_entry AS (
    workspace text, seq bigint, at timestamptz, actor text, action text, subject text, details text,
    address text, before text, hash text
);

-- Those that there are already.

INSERT INTO workspaces
SELECT workspace, NULL, '', min(created_at), min(created_at) FROM (
    SELECT workspace, created_at FROM jobs WHERE deleted_at IS NULL
    UNION ALL SELECT 'default', date_trunc('milliseconds', clock_timestamp())) known
GROUP BY workspace;

INSERT INTO agents
SELECT workspace, agent, NULL, NULL, true, NULL, NULL, '', 1, min(created_at), min(created_at) FROM (
    SELECT workspace, agent, created_at FROM jobs WHERE deleted_at IS NULL
    UNION ALL SELECT 'default', 'default', date_trunc('milliseconds', clock_timestamp())) known
GROUP BY workspace, agent;
