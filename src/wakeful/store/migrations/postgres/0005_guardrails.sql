-- What keeps runs from costing more than they are worth: budgets, what was used of them, and alerts.

ALTER TABLE workspaces ADD COLUMN budget text, ADD COLUMN alerts text;
ALTER TABLE agents ADD COLUMN budget text, ADD COLUMN alerts text;

-- Mostly empty: whether anybody is to be told costs nothing where nobody is.
CREATE INDEX workspaces_alerts ON workspaces (name) WHERE alerts IS NOT NULL;
CREATE INDEX agents_alerts ON agents (workspace, name) WHERE alerts IS NOT NULL;

-- What runs used, by day (UTC, counted from 1970): of a job, of all an agent's (the job is ''), and of the
-- whole workspace (the agent is '' too).
CREATE TABLE spending (
    workspace text             COLLATE "C" NOT NULL,
    agent     text             COLLATE "C" NOT NULL,
    job       text             COLLATE "C" NOT NULL,
    day       integer          NOT NULL,
    tokens    bigint           NOT NULL,
    cost      double precision NOT NULL,
    PRIMARY KEY (workspace, agent, job, day)
) WITH (fillfactor = 50);  -- a row is added to all day long, within its page

CREATE INDEX spending_day ON spending (day);

-- Caps that were reached on that day: nothing of theirs is fired until it is over.
CREATE TABLE holds (
    day       integer          NOT NULL,
    workspace text             COLLATE "C" NOT NULL,
    agent     text             COLLATE "C" NOT NULL,
    job       text             COLLATE "C" NOT NULL,
    cap       text             COLLATE "C" NOT NULL,
    most      double precision NOT NULL,
    PRIMARY KEY (day, workspace, agent, job, cap)
);

-- What somebody may want to be told of, written with what it tells of, and gone when that is decided.
CREATE TABLE incidents (
    id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        timestamptz NOT NULL,
    kind      text        COLLATE "C" NOT NULL,
    workspace text        COLLATE "C" NOT NULL,
    agent     text        COLLATE "C" NOT NULL,
    job_id    uuid,
    run_id    uuid,
    count     integer     NOT NULL,
    details   text        NOT NULL
);

-- When somebody was last told of it.
CREATE TABLE alerted (
    workspace text        COLLATE "C" NOT NULL,
    subject   text        COLLATE "C" NOT NULL,
    kind      text        COLLATE "C" NOT NULL,
    at        timestamptz NOT NULL,
    PRIMARY KEY (workspace, subject, kind)
);
