-- compatible: adds a table and indexes that code of schema 20 does not use.

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
