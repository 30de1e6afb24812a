-- What runs said, on its way to people: a row for each run whose output somebody is to have. It stands beside
-- the run, whose own row does not change any more.

ALTER TABLE agents ADD COLUMN heartbeat text;

CREATE TABLE deliveries (
    run_id  uuid        NOT NULL PRIMARY KEY,
    state   text        COLLATE "C" NOT NULL,  -- pending, sending; delivered, suppressed, failed, unknown
    channel text,
    send_to text,
    attempt integer     NOT NULL,
    worker  text        COLLATE "C",
    due_at  timestamptz,  -- while it is pending, when it may be sent; while it is sent, when nobody waits longer
    at      timestamptz NOT NULL,
    error   text
) WITH (fillfactor = 50);

CREATE INDEX deliveries_due ON deliveries (due_at) WHERE due_at IS NOT NULL;
