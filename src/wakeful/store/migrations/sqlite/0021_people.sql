-- compatible: adds tables, columns and indexes that code of schema 20 does not use.

-- People who sign in at an OpenID Connect issuer.
CREATE TABLE people (
    id           TEXT    NOT NULL PRIMARY KEY,  -- follows from issuer and subject
    issuer       TEXT    NOT NULL,
    subject      TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    email        TEXT,
    grants       TEXT    NOT NULL,  -- the roles by workspace as of the last sign-in, a JSON object
    created_at   INTEGER NOT NULL,
    signed_in_at INTEGER NOT NULL,
    removed_at   INTEGER
) WITHOUT ROWID;
CREATE UNIQUE INDEX people_subject ON people (issuer, subject);
CREATE INDEX people_signed_in ON people (signed_in_at DESC, id) WHERE removed_at IS NULL;
-- The keys that end with the person who created them.
CREATE INDEX keys_of_creator ON keys (created_by) WHERE revoked_at IS NULL;

-- Assistants that people connected with OAuth. The grant is a row of `keys`; `client` is the host that its tokens
-- were sent to.
ALTER TABLE keys ADD COLUMN client TEXT;
CREATE INDEX keys_of_clients ON keys (expires_at) WHERE client IS NOT NULL;
-- Clients: registered ones, and copies of the metadata documents of clients that a person approved.
CREATE TABLE oauth_clients (
    id         TEXT    NOT NULL PRIMARY KEY,
    document   TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    used_at    INTEGER  -- when a person last approved it, or it last got tokens
) WITHOUT ROWID;
CREATE INDEX oauth_clients_unused ON oauth_clients (created_at) WHERE used_at IS NULL;
CREATE INDEX oauth_clients_used ON oauth_clients (used_at) WHERE used_at IS NOT NULL;
-- Authorization codes, by their SHA-256.
CREATE TABLE oauth_codes (
    hash       BLOB    NOT NULL PRIMARY KEY,
    client_id  TEXT    NOT NULL,
    request    TEXT    NOT NULL,  -- compact JSON of what was asked for and approved
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    key_id     TEXT     -- the grant that it was exchanged for
) WITHOUT ROWID;
CREATE INDEX oauth_codes_expires ON oauth_codes (expires_at);
-- Access and refresh tokens, by their SHA-256.
CREATE TABLE oauth_tokens (
    hash       BLOB    NOT NULL PRIMARY KEY,
    kind       TEXT    NOT NULL,  -- access, refresh
    key_id     TEXT    NOT NULL,
    client_id  TEXT    NOT NULL,
    resource   TEXT    NOT NULL,  -- the address that it is for
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at    INTEGER  -- when a refresh token was first exchanged
) WITHOUT ROWID;
CREATE INDEX oauth_tokens_expires ON oauth_tokens (expires_at);
-- Subscriptions to MCP events.
CREATE TABLE subscriptions (
    id           TEXT    NOT NULL PRIMARY KEY,
    workspace    TEXT    NOT NULL,
    agent        TEXT    NOT NULL,
    principal    TEXT    NOT NULL,  -- who subscribed, as in the audit
    event        TEXT    NOT NULL,
    arguments    TEXT    NOT NULL,
    url          TEXT    NOT NULL,
    job_id       TEXT    NOT NULL,  -- the internal job of its deliveries
    position     INTEGER NOT NULL,  -- changes up to this number are not for it
    created_at   INTEGER NOT NULL,
    refreshed_at INTEGER NOT NULL,
    expires_at   INTEGER,
    ended_at     INTEGER,
    reason       TEXT               -- why it ended
) WITHOUT ROWID;
CREATE INDEX subscriptions_of_workspace ON subscriptions (workspace, created_at, id);
CREATE INDEX subscriptions_of_principal ON subscriptions (principal) WHERE ended_at IS NULL;
CREATE INDEX subscriptions_expires ON subscriptions (expires_at) WHERE ended_at IS NULL AND expires_at IS NOT NULL;
CREATE INDEX subscriptions_of_event ON subscriptions (workspace, event) WHERE ended_at IS NULL;
CREATE INDEX subscriptions_ended ON subscriptions (ended_at) WHERE ended_at IS NOT NULL;
-- Up to which change the events of subscriptions are runs; no row while nobody is subscribed to changes.
CREATE TABLE event_position (
    id       INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    position INTEGER NOT NULL,
    at       INTEGER NOT NULL DEFAULT 0  -- until when their runs are scheduled
) WITHOUT ROWID;

-- What waits for a person, of each kind, in the order of the inbox.
CREATE INDEX verifications_inbox ON verifications (workspace, at, run_id);
CREATE INDEX jobs_inbox ON jobs (workspace, updated_at, id)
    WHERE disabled_reason = 'approval' AND deleted_at IS NULL;
CREATE INDEX suggestions_inbox ON suggestions (workspace, created_at, id) WHERE status = 'open';
CREATE INDEX job_incidents_inbox ON job_incidents (workspace, opened_at, id)
    WHERE closed_at IS NULL AND acknowledged_at IS NULL;
-- The subscriptions of jobs to events of other MCP servers (`on`).
CREATE TABLE event_sources (
    id          TEXT    NOT NULL PRIMARY KEY,
    job_id      TEXT    NOT NULL,
    version     INTEGER NOT NULL,  -- of the job, when `source` was read from it
    workspace   TEXT    NOT NULL,
    agent       TEXT    NOT NULL,
    source      TEXT    NOT NULL,  -- `on` of the job, compact JSON
    state       TEXT    NOT NULL,  -- pending, active, failed, ending
    mode        TEXT    NOT NULL,  -- webhook, poll
    secret      BLOB,              -- of the signatures, encrypted
    remote_id   TEXT,
    position    TEXT,              -- the cursor
    error       TEXT,
    failures    INTEGER NOT NULL DEFAULT 0,
    worker      TEXT,
    due_at      INTEGER NOT NULL,
    expires_at  INTEGER,
    received_at INTEGER,
    created_at  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX event_sources_job ON event_sources (job_id) WHERE state <> 'ending';
CREATE INDEX event_sources_due ON event_sources (due_at);
CREATE INDEX jobs_on_event ON jobs (id) WHERE deleted_at IS NULL AND instr(work, '"on":{"') > 0;
