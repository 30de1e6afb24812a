-- Conversations: what waits in them, and the runs that were their turns.

ALTER TABLE agents ADD COLUMN queue TEXT;

-- One row a conversation of an agent. Whoever touches what waits in it, or begins a turn, has this row.
CREATE TABLE sessions (
    workspace  TEXT    NOT NULL,
    agent      TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    due_at     INTEGER,            -- when the first of what waits may become a turn; NULL: nothing waits
    places     INTEGER NOT NULL,   -- how many turns there may be at once, as was last seen
    context    REAL,               -- how full its context window is, of 1, where somebody said so
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (workspace, agent, name)
) WITHOUT ROWID;

CREATE INDEX sessions_due ON sessions (due_at) WHERE due_at IS NOT NULL;

-- What waits. A message that became part of a turn is in the payload of its run, and here no more.
CREATE TABLE messages (
    id        TEXT    NOT NULL PRIMARY KEY,
    workspace TEXT    NOT NULL,
    agent     TEXT    NOT NULL,
    session   TEXT    NOT NULL,
    body      TEXT    NOT NULL,
    sent_by   TEXT    NOT NULL,
    trigger   TEXT    NOT NULL,
    at        INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX messages_of_session ON messages (workspace, agent, session, at, id);

-- The runs that are turns; `live` until somebody has seen that the run is over.
CREATE TABLE turns (
    run_id    TEXT    NOT NULL PRIMARY KEY,
    workspace TEXT    NOT NULL,
    agent     TEXT    NOT NULL,
    session   TEXT    NOT NULL,
    live      INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX turns_live ON turns (workspace, agent, session, run_id) WHERE live;
