-- compatible: adds tables, columns and indexes that code of schema 20 does not use.

-- People who sign in at an OpenID Connect issuer.
CREATE TABLE people (
    id           text        COLLATE "C" NOT NULL PRIMARY KEY,  -- follows from issuer and subject
    issuer       text        COLLATE "C" NOT NULL,
    subject      text        COLLATE "C" NOT NULL,
    name         text        NOT NULL,
    email        text,
    grants       text        NOT NULL,  -- the roles by workspace as of the last sign-in, a JSON object
    created_at   timestamptz NOT NULL,
    signed_in_at timestamptz NOT NULL,
    removed_at   timestamptz
);
CREATE UNIQUE INDEX people_subject ON people (issuer, subject);
CREATE INDEX people_signed_in ON people (signed_in_at DESC, id) WHERE removed_at IS NULL;
-- The keys that end with the person who created them.
CREATE INDEX keys_of_creator ON keys (created_by) WHERE revoked_at IS NULL;

-- Assistants that people connected with OAuth. The grant is a row of `keys`; `client` is the host that its tokens
-- were sent to.
ALTER TABLE keys ADD COLUMN client text;
CREATE INDEX keys_of_clients ON keys (expires_at) WHERE client IS NOT NULL;
-- Clients: registered ones, and copies of the metadata documents of clients that a person approved.
CREATE TABLE oauth_clients (
    id         text        COLLATE "C" NOT NULL PRIMARY KEY,
    document   text        NOT NULL,
    created_at timestamptz NOT NULL,
    used_at    timestamptz  -- when a person last approved it, or it last got tokens
);
CREATE INDEX oauth_clients_unused ON oauth_clients (created_at) WHERE used_at IS NULL;
CREATE INDEX oauth_clients_used ON oauth_clients (used_at) WHERE used_at IS NOT NULL;
-- Authorization codes, by their SHA-256.
CREATE TABLE oauth_codes (
    hash       bytea       NOT NULL PRIMARY KEY,
    client_id  text        COLLATE "C" NOT NULL,
    request    text        NOT NULL,  -- compact JSON of what was asked for and approved
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    key_id     text        COLLATE "C"  -- the grant that it was exchanged for
);
CREATE INDEX oauth_codes_expires ON oauth_codes (expires_at);
-- Access and refresh tokens, by their SHA-256.
CREATE TABLE oauth_tokens (
    hash       bytea       NOT NULL PRIMARY KEY,
    kind       text        COLLATE "C" NOT NULL,  -- access, refresh
    key_id     text        COLLATE "C" NOT NULL,
    client_id  text        COLLATE "C" NOT NULL,
    resource   text        NOT NULL,  -- the address that it is for
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at    timestamptz  -- when a refresh token was first exchanged
);
CREATE INDEX oauth_tokens_expires ON oauth_tokens (expires_at);
-- Subscriptions to MCP events.
CREATE TABLE subscriptions (
    id           text        COLLATE "C" NOT NULL PRIMARY KEY,
    workspace    text        COLLATE "C" NOT NULL,
    agent        text        COLLATE "C" NOT NULL,
    principal    text        COLLATE "C" NOT NULL,  -- who subscribed, as in the audit
    event        text        COLLATE "C" NOT NULL,
    arguments    text        NOT NULL,
    url          text        NOT NULL,
    job_id       uuid        NOT NULL,  -- the internal job of its deliveries
    position     bigint      NOT NULL,  -- changes up to this number are not for it
    created_at   timestamptz NOT NULL,
    refreshed_at timestamptz NOT NULL,
    expires_at   timestamptz,
    ended_at     timestamptz,
    reason       text        COLLATE "C"  -- why it ended
);
CREATE INDEX subscriptions_of_workspace ON subscriptions (workspace, created_at, id);
CREATE INDEX subscriptions_of_principal ON subscriptions (principal) WHERE ended_at IS NULL;
CREATE INDEX subscriptions_expires ON subscriptions (expires_at) WHERE ended_at IS NULL AND expires_at IS NOT NULL;
CREATE INDEX subscriptions_of_event ON subscriptions (workspace, event) WHERE ended_at IS NULL;
CREATE INDEX subscriptions_ended ON subscriptions (ended_at) WHERE ended_at IS NOT NULL;
-- Up to which change the events of subscriptions are runs; no row while nobody is subscribed to changes.
CREATE TABLE event_position (
    id       integer NOT NULL PRIMARY KEY CHECK (id = 1),
    position bigint  NOT NULL,
    at       timestamptz NOT NULL DEFAULT 'epoch'  -- until when their runs are scheduled
);

-- What waits for a person, of each kind, in the order of the inbox.
CREATE INDEX verifications_inbox ON verifications (workspace, at, run_id);
CREATE INDEX CONCURRENTLY jobs_inbox ON jobs (workspace, updated_at, id)
    WHERE disabled_reason = 'approval' AND deleted_at IS NULL;
CREATE INDEX suggestions_inbox ON suggestions (workspace, created_at, id) WHERE status = 'open';
CREATE INDEX CONCURRENTLY job_incidents_inbox ON job_incidents (workspace, opened_at, id)
    WHERE closed_at IS NULL AND acknowledged_at IS NULL;
-- The subscriptions of jobs to events of other MCP servers (`on`).
CREATE TABLE event_sources (
    id          uuid        NOT NULL PRIMARY KEY,
    job_id      uuid        NOT NULL,
    version     integer     NOT NULL,  -- of the job, when `source` was read from it
    workspace   text        COLLATE "C" NOT NULL,
    agent       text        COLLATE "C" NOT NULL,
    source      text        NOT NULL,  -- `on` of the job, compact JSON
    state       text        COLLATE "C" NOT NULL,  -- pending, active, failed, ending
    mode        text        COLLATE "C" NOT NULL,  -- webhook, poll
    secret      bytea,                 -- of the signatures, encrypted
    remote_id   text,
    position    text,                  -- the cursor
    error       text,
    failures    integer     NOT NULL DEFAULT 0,
    worker      text,
    due_at      timestamptz NOT NULL,
    expires_at  timestamptz,
    received_at timestamptz,
    created_at  timestamptz NOT NULL
);
CREATE UNIQUE INDEX event_sources_job ON event_sources (job_id) WHERE state <> 'ending';
CREATE INDEX event_sources_due ON event_sources (due_at);
CREATE INDEX CONCURRENTLY jobs_on_event ON jobs (id)
    WHERE deleted_at IS NULL AND strpos(work, '"on":{"') > 0;
