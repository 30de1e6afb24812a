-- What keeps runs from costing more than they are worth: budgets, what was used of them, and alerts.

ALTER TABLE workspaces ADD COLUMN budget TEXT;
ALTER TABLE workspaces ADD COLUMN alerts TEXT;
ALTER TABLE agents ADD COLUMN budget TEXT;
ALTER TABLE agents ADD COLUMN alerts TEXT;

-- Mostly empty: whether anybody is to be told costs nothing where nobody is.
CREATE INDEX workspaces_alerts ON workspaces (name) WHERE alerts IS NOT NULL;
CREATE INDEX agents_alerts ON agents (workspace, name) WHERE alerts IS NOT NULL;

-- What runs used, by day (UTC, counted from 1970): of a job, of all an agent's (the job is ''), and of the
-- whole workspace (the agent is '' too).
CREATE TABLE spending (
    workspace TEXT    NOT NULL,
    agent     TEXT    NOT NULL,
    job       TEXT    NOT NULL,
    day       INTEGER NOT NULL,
    tokens    INTEGER NOT NULL,
    cost      REAL    NOT NULL,
    PRIMARY KEY (workspace, agent, job, day)
) WITHOUT ROWID;

CREATE INDEX spending_day ON spending (day);

-- Caps that were reached on that day: nothing of theirs is fired until it is over.
CREATE TABLE holds (
    day       INTEGER NOT NULL,
    workspace TEXT    NOT NULL,
    agent     TEXT    NOT NULL,
    job       TEXT    NOT NULL,
    cap       TEXT    NOT NULL,
    most      REAL    NOT NULL,
    PRIMARY KEY (day, workspace, agent, job, cap)
) WITHOUT ROWID;

-- What somebody may want to be told of, written with what it tells of, and gone when that is decided.
CREATE TABLE incidents (
    id        INTEGER NOT NULL PRIMARY KEY,
    at        INTEGER NOT NULL,
    kind      TEXT    NOT NULL,
    workspace TEXT    NOT NULL,
    agent     TEXT    NOT NULL,
    job_id    TEXT,
    run_id    TEXT,
    count     INTEGER NOT NULL,
    details   TEXT    NOT NULL
);

-- When somebody was last told of it.
CREATE TABLE alerted (
    workspace TEXT    NOT NULL,
    subject   TEXT    NOT NULL,
    kind      TEXT    NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (workspace, subject, kind)
) WITHOUT ROWID;
