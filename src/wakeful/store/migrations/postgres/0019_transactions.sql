-- compatible: a new table.

-- Audit entries that transactions of callers left: they are appended to their chains after the commit, because
-- a transaction that appends locks the end of the chain. With the jobs that are charged to the quotas of the agent.
CREATE TABLE audit_waiting (
    id        bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace text    COLLATE "C" NOT NULL,
    actor     text    COLLATE "C" NOT NULL,
    action    text    COLLATE "C" NOT NULL,
    subject   text    COLLATE "C" NOT NULL,
    details   text    NOT NULL,
    address   text,
    agent     text    COLLATE "C" NOT NULL,
    jobs      integer NOT NULL
);
