-- The history of sessions, prechecks with a state, verification, trigger URLs, the origin of jobs, and
-- suggestions. Breaking: code of schema 12 would end a run without its verification, and lose the state of a
-- precheck.

-- off, suggest; NULL: off
ALTER TABLE agents ADD COLUMN evolution TEXT;
-- required; NULL: none
ALTER TABLE agents ADD COLUMN approval TEXT;
-- bounds of the jobs that it makes in scheduled runs
ALTER TABLE agents ADD COLUMN self_scheduling TEXT;

-- where its last message came from
ALTER TABLE sessions ADD COLUMN channel TEXT;
ALTER TABLE sessions ADD COLUMN send_to TEXT;
-- the last number in its history
ALTER TABLE sessions ADD COLUMN sequence INTEGER NOT NULL DEFAULT 0;

-- of its turn: how many jobs in a row an agent made for itself
ALTER TABLE messages ADD COLUMN depth INTEGER NOT NULL DEFAULT 0;

-- What was said and answered in a session.
CREATE TABLE session_history (
    workspace TEXT    NOT NULL,
    agent     TEXT    NOT NULL,
    session   TEXT    NOT NULL,
    sequence  INTEGER NOT NULL,
    role      TEXT    NOT NULL,  -- user, assistant
    content   TEXT    NOT NULL,
    tokens    INTEGER NOT NULL,  -- an estimate
    run_id    TEXT    NOT NULL,
    job_name  TEXT,              -- of an answer that a job appended to the conversation
    at        INTEGER NOT NULL,
    PRIMARY KEY (workspace, agent, session, sequence)
) WITHOUT ROWID;
CREATE INDEX session_history_at ON session_history (at);

-- what its last precheck left for the next one
ALTER TABLE jobs ADD COLUMN precheck_state TEXT;
-- one higher with each edit and each new state
ALTER TABLE jobs ADD COLUMN precheck_revision INTEGER NOT NULL DEFAULT 0;

-- Set for few runs, so an insert leaves them out.
-- of a turn
ALTER TABLE runs ADD COLUMN session TEXT;
-- how many jobs in a row an agent made for itself
ALTER TABLE runs ADD COLUMN depth INTEGER NOT NULL DEFAULT 0;
-- how many jobs were made in it
ALTER TABLE runs ADD COLUMN jobs_made INTEGER NOT NULL DEFAULT 0;
-- what is added to its payload
ALTER TABLE runs ADD COLUMN context TEXT;
-- what its precheck decided: state, once, revision
ALTER TABLE runs ADD COLUMN precheck TEXT;
ALTER TABLE runs ADD COLUMN evidence TEXT;

-- Runs that were reported as done and are not verified yet. The run awaits a callback until then.
CREATE TABLE verifications (
    run_id      TEXT    NOT NULL PRIMARY KEY,
    attempt     INTEGER NOT NULL,
    reported_by TEXT,              -- the worker or executor that reported it
    worker      TEXT,              -- the process that verifies it
    due_at      INTEGER NOT NULL,  -- when to verify it, or when the lease of its worker ends; manual: its deadline
    verify      TEXT    NOT NULL,  -- the check
    requires    TEXT    NOT NULL,  -- what a process must have to do it
    tries       INTEGER NOT NULL DEFAULT 0,
    at          INTEGER NOT NULL   -- when it was reported as done
) WITHOUT ROWID;
CREATE INDEX verifications_due ON verifications (due_at);

-- Trigger URLs, by the SHA-256 of their token.
CREATE TABLE hooks (
    hash       BLOB    NOT NULL PRIMARY KEY,
    job_id     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT    NOT NULL,  -- role and actor
    expires_at INTEGER            -- of one that was rotated
) WITHOUT ROWID;
CREATE INDEX hooks_of_job ON hooks (job_id);

CREATE TABLE suggestions (
    id           TEXT    NOT NULL PRIMARY KEY,
    workspace    TEXT    NOT NULL,
    agent        TEXT    NOT NULL,
    job_id       TEXT    NOT NULL,
    job_name     TEXT    NOT NULL,
    rule         TEXT    NOT NULL,
    status       TEXT    NOT NULL,  -- open, applied, dismissed, rolled_back, withdrawn
    figures      TEXT    NOT NULL,  -- what the rule measured
    change       TEXT    NOT NULL,  -- the fields to change
    before       TEXT    NOT NULL,  -- the same fields before
    job_version  INTEGER NOT NULL,  -- of the job that was analyzed, or after it was changed
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,  -- of the figures
    decided_at   INTEGER,
    decided_by   TEXT,
    evaluated_at INTEGER,
    evaluation   TEXT               -- the figures before and after
) WITHOUT ROWID;
CREATE UNIQUE INDEX suggestions_open ON suggestions (job_id, rule) WHERE status = 'open';
CREATE INDEX suggestions_waiting ON suggestions (workspace, id) WHERE status = 'open';
CREATE INDEX suggestions_of_job ON suggestions (job_id, id);
CREATE INDEX suggestions_of_workspace ON suggestions (workspace, id);
CREATE INDEX suggestions_of_agent ON suggestions (workspace, agent, id);
CREATE INDEX agents_evolution ON agents (evolution, workspace, name) WHERE evolution IS NOT NULL;
