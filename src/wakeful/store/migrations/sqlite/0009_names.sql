-- Standard names for tables, and columns instead of encodings. Breaking: code of schema 8 cannot use this.

-- A key without a status belongs to an operation whose response is not stored.
ALTER TABLE answers RENAME TO old_answers;
CREATE TABLE idempotency_keys (
    workspace   TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    fingerprint TEXT    NOT NULL,
    status      INTEGER,
    body        TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (workspace, key)
);
INSERT INTO idempotency_keys
SELECT workspace, key, fingerprint, nullif(status, 0), body, created_at FROM old_answers;
DROP TABLE old_answers;
CREATE INDEX idempotency_keys_created ON idempotency_keys (created_at);

ALTER TABLE holds RENAME TO budget_blocks;
ALTER TABLE alerted RENAME TO alert_cooldowns;
ALTER TABLE agents RENAME COLUMN old_secret_until TO old_secret_until_at;

DROP INDEX runs_due;
DROP INDEX runs_claimable;
DROP INDEX runs_claimable_of_agent;
DROP INDEX runs_unclaimed;

-- Whether the run waits for a completion from outside: it is running, no worker holds it, and `due_at` is its
-- deadline. Before, such a run had the worker '(callback)'.
ALTER TABLE runs ADD COLUMN awaiting_callback INTEGER NOT NULL DEFAULT 0;
-- Whether executors claim the run. Before, its lane and the name of its executor had the prefix 'pull:'.
ALTER TABLE runs ADD COLUMN is_pull INTEGER NOT NULL DEFAULT 0;
-- How long a pull run waits for an executor each time it is due, and until when it waits or waited the last
-- time. Before, that was in `until_at`, which is now the last tick of a missed run and nothing else.
ALTER TABLE runs ADD COLUMN claim_timeout_ms INTEGER;
ALTER TABLE runs ADD COLUMN claim_deadline INTEGER;

UPDATE runs SET is_pull = 1, lane = substr(lane, 6) WHERE lane >= 'pull:' AND lane < 'pull;';
UPDATE runs SET claim_timeout_ms = until_at - coalesce(due_at, started_at), claim_deadline = until_at,
    until_at = NULL
WHERE is_pull AND state <> 'missed';
UPDATE runs SET worker = substr(worker, 6) WHERE worker >= 'pull:' AND worker < 'pull;';
UPDATE runs SET awaiting_callback = state = 'running', worker = NULL WHERE worker = '(callback)';
UPDATE attempts SET worker = substr(worker, 6) WHERE worker >= 'pull:' AND worker < 'pull;';
UPDATE attempts SET worker = NULL WHERE worker = '(callback)';
DELETE FROM workers WHERE name >= 'pull:' AND name < 'pull;';

CREATE INDEX runs_due ON runs (lane, is_pull, due_at) WHERE state IN ('pending', 'retrying');
CREATE INDEX runs_claimable ON runs (workspace, due_at) WHERE state IN ('pending', 'retrying') AND is_pull;
CREATE INDEX runs_claimable_of_agent ON runs (workspace, agent, due_at)
    WHERE state IN ('pending', 'retrying') AND is_pull;
CREATE INDEX runs_unclaimed ON runs (claim_deadline)
    WHERE state IN ('pending', 'retrying') AND claim_deadline IS NOT NULL;

-- Whether code of an earlier schema cannot use the database after this migration (`migrations/__init__.py`).
ALTER TABLE schema_version ADD COLUMN breaking INTEGER NOT NULL DEFAULT 1;
