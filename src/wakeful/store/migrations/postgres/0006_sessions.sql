-- Conversations: what waits in them, and the runs that were their turns.

ALTER TABLE agents ADD COLUMN queue text;

-- One row a conversation of an agent. Whoever touches what waits in it, or begins a turn, locks this row.
CREATE TABLE sessions (
    workspace  text             COLLATE "C" NOT NULL,
    agent      text             COLLATE "C" NOT NULL,
    name       text             COLLATE "C" NOT NULL,
    due_at     timestamptz,              -- when the first of what waits may become a turn; NULL: nothing waits
    places     integer          NOT NULL,  -- how many turns there may be at once, as was last seen
    context    double precision,         -- how full its context window is, of 1, where somebody said so
    created_at timestamptz      NOT NULL,
    updated_at timestamptz      NOT NULL,
    PRIMARY KEY (workspace, agent, name)
);

CREATE INDEX sessions_due ON sessions (due_at) WHERE due_at IS NOT NULL;

-- What waits. A message that became part of a turn is in the payload of its run, and here no more.
CREATE TABLE messages (
    id        uuid        NOT NULL PRIMARY KEY,
    workspace text        COLLATE "C" NOT NULL,
    agent     text        COLLATE "C" NOT NULL,
    session   text        COLLATE "C" NOT NULL,
    body      text        NOT NULL,
    sent_by   text        NOT NULL,
    trigger   text        COLLATE "C" NOT NULL,
    at        timestamptz NOT NULL
);

CREATE INDEX messages_of_session ON messages (workspace, agent, session, at, id);

-- The runs that are turns; `live` until somebody has seen that the run is over.
CREATE TABLE turns (
    run_id    uuid    NOT NULL PRIMARY KEY,
    workspace text    COLLATE "C" NOT NULL,
    agent     text    COLLATE "C" NOT NULL,
    session   text    COLLATE "C" NOT NULL,
    live      boolean NOT NULL
);

CREATE INDEX turns_live ON turns (workspace, agent, session, run_id) WHERE live;
