-- What runs said, on its way to people: a row for each run whose output somebody is to have. It stands beside
-- the run, whose own row does not change any more.

ALTER TABLE agents ADD COLUMN heartbeat TEXT;

CREATE TABLE deliveries (
    run_id  TEXT    NOT NULL PRIMARY KEY,
    state   TEXT    NOT NULL,  -- pending, sending; delivered, suppressed, failed, unknown
    channel TEXT,
    send_to TEXT,
    attempt INTEGER NOT NULL,
    worker  TEXT,
    due_at  INTEGER,  -- while it is pending, when it may be sent; while it is sent, when nobody waits longer
    at      INTEGER NOT NULL,
    error   TEXT
) WITHOUT ROWID;

CREATE INDEX deliveries_due ON deliveries (due_at) WHERE due_at IS NOT NULL;
