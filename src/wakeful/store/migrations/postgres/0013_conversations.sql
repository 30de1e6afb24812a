-- The history of sessions, prechecks with a state, verification, trigger URLs, the origin of jobs, and
-- suggestions. Breaking: code of schema 12 would end a run without its verification, and lose the state of a
-- precheck.

ALTER TABLE agents
    ADD COLUMN evolution       text COLLATE "C",  -- off, suggest; NULL: off
    ADD COLUMN approval        text COLLATE "C",  -- required; NULL: none
    ADD COLUMN self_scheduling text;              -- bounds of the jobs that it makes in scheduled runs

ALTER TABLE sessions
    ADD COLUMN channel  text,                        -- where its last message came from
    ADD COLUMN send_to  text,
    ADD COLUMN sequence bigint NOT NULL DEFAULT 0;   -- the last number in its history

ALTER TABLE messages
    ADD COLUMN depth integer NOT NULL DEFAULT 0;  -- of its turn: how many jobs in a row an agent made for itself

-- What was said and answered in a session.
CREATE TABLE session_history (
    workspace text        COLLATE "C" NOT NULL,
    agent     text        COLLATE "C" NOT NULL,
    session   text        COLLATE "C" NOT NULL,
    sequence  bigint      NOT NULL,
    role      text        COLLATE "C" NOT NULL,  -- user, assistant
    content   text        NOT NULL,
    tokens    integer     NOT NULL,              -- an estimate
    run_id    uuid        NOT NULL,
    job_name  text        COLLATE "C",           -- of an answer that a job appended to the conversation
    at        timestamptz NOT NULL,
    PRIMARY KEY (workspace, agent, session, sequence)
);
CREATE INDEX session_history_at ON session_history (at);

ALTER TABLE jobs
    ADD COLUMN precheck_state    text,                       -- what its last precheck left for the next one
    ADD COLUMN precheck_revision bigint NOT NULL DEFAULT 0;  -- one higher with each edit and each new state

-- Set for few runs, so an insert leaves them out.
ALTER TABLE runs
    ADD COLUMN session   text COLLATE "C",            -- of a turn
    ADD COLUMN depth     integer NOT NULL DEFAULT 0,  -- how many jobs in a row an agent made for itself
    ADD COLUMN jobs_made integer NOT NULL DEFAULT 0,  -- how many jobs were made in it
    ADD COLUMN context   text,                        -- what is added to its payload
    ADD COLUMN precheck  text,                        -- what its precheck decided: state, once, revision
    ADD COLUMN evidence  text;

-- Runs that are reported as done and not verified yet. The run awaits a callback until then.
CREATE TABLE verifications (
    run_id      uuid        NOT NULL PRIMARY KEY,
    attempt     integer     NOT NULL,
    reported_by text        COLLATE "C",           -- the worker or executor that reported it
    worker      text        COLLATE "C",           -- the process that verifies it
    due_at      timestamptz NOT NULL,              -- when to verify it, or when the lease of its worker ends; manual: its deadline
    verify      text        NOT NULL,              -- the check
    requires    text        COLLATE "C" NOT NULL,  -- what a process must have to do it
    tries       integer     NOT NULL DEFAULT 0,
    at          timestamptz NOT NULL               -- when it was reported as done
) WITH (fillfactor = 50);
CREATE INDEX verifications_due ON verifications (due_at);

-- Trigger URLs, by the SHA-256 of their token.
CREATE TABLE hooks (
    hash       bytea       NOT NULL PRIMARY KEY,
    job_id     uuid        NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text        NOT NULL,  -- role and actor
    expires_at timestamptz            -- of one that was rotated
);
CREATE INDEX hooks_of_job ON hooks (job_id);

CREATE TABLE suggestions (
    id           uuid        NOT NULL PRIMARY KEY,
    workspace    text        COLLATE "C" NOT NULL,
    agent        text        COLLATE "C" NOT NULL,
    job_id       uuid        NOT NULL,
    job_name     text        COLLATE "C" NOT NULL,
    rule         text        COLLATE "C" NOT NULL,
    status       text        COLLATE "C" NOT NULL,  -- open, applied, dismissed, rolled_back, withdrawn
    figures      text        NOT NULL,              -- what the rule measured
    change       text        NOT NULL,              -- the fields to change
    before       text        NOT NULL,              -- the same fields before
    job_version  integer     NOT NULL,              -- of the job that was analyzed, or after it was changed
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,              -- of the figures
    decided_at   timestamptz,
    decided_by   text,
    evaluated_at timestamptz,
    evaluation   text                               -- the figures before and after
);
CREATE UNIQUE INDEX suggestions_open ON suggestions (job_id, rule) WHERE status = 'open';
CREATE INDEX suggestions_waiting ON suggestions (workspace, id) WHERE status = 'open';
CREATE INDEX suggestions_of_job ON suggestions (job_id, id);
CREATE INDEX suggestions_of_workspace ON suggestions (workspace, id);
CREATE INDEX suggestions_of_agent ON suggestions (workspace, agent, id);
CREATE INDEX agents_evolution ON agents (evolution, workspace, name) WHERE evolution IS NOT NULL;
