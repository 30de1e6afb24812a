-- Standard names for tables, and columns instead of encodings. Breaking: code of schema 8 cannot use this.

ALTER TABLE answers RENAME TO idempotency_keys;
ALTER INDEX answers_pkey RENAME TO idempotency_keys_pkey;
ALTER INDEX answers_created RENAME TO idempotency_keys_created;
-- A key without a status belongs to an operation whose response is not stored.
ALTER TABLE idempotency_keys ALTER COLUMN status DROP NOT NULL;
UPDATE idempotency_keys SET status = NULL WHERE status = 0;

ALTER TABLE holds RENAME TO budget_blocks;
ALTER INDEX holds_pkey RENAME TO budget_blocks_pkey;
ALTER TABLE alerted RENAME TO alert_cooldowns;
ALTER INDEX alerted_pkey RENAME TO alert_cooldowns_pkey;

ALTER TABLE live RENAME TO live_runs;
ALTER INDEX live_pkey RENAME TO live_runs_pkey;
ALTER INDEX live_of_job RENAME TO live_runs_of_job;
DROP INDEX live_due, live_claimable, live_claimable_of_agent, live_unclaimed;

ALTER TABLE runs
    -- Whether the run waits for a completion from outside: it is running, no worker holds it, and `due_at` is
    -- its deadline. Before, such a run had the worker '(callback)'.
    ADD COLUMN awaiting_callback boolean NOT NULL DEFAULT false,
    -- Whether executors claim the run. Before, its lane and the name of its executor had the prefix 'pull:'.
    ADD COLUMN is_pull boolean NOT NULL DEFAULT false,
    -- How long a pull run waits for an executor each time it is due, and until when it waits or waited the last
    -- time. Before, that was in `until_at`, which is now the last tick of a missed run and nothing else.
    ADD COLUMN claim_timeout_ms bigint,
    ADD COLUMN claim_deadline timestamptz;
ALTER TABLE live_runs RENAME COLUMN until_at TO claim_deadline;
ALTER TABLE live_runs ADD COLUMN is_pull boolean NOT NULL DEFAULT false;

UPDATE runs SET is_pull = true, lane = substr(lane, 6),
    claim_timeout_ms = CASE WHEN state <> 'missed' THEN
        extract(epoch FROM until_at - coalesce(due_at, started_at)) * 1000 END,
    claim_deadline = CASE WHEN state <> 'missed' THEN until_at END,
    until_at = CASE WHEN state = 'missed' THEN until_at END
WHERE starts_with(lane, 'pull:');
UPDATE runs SET worker = substr(worker, 6) WHERE starts_with(worker, 'pull:');
UPDATE runs SET awaiting_callback = state = 'running', worker = NULL WHERE worker = '(callback)';
UPDATE live_runs l SET is_pull = r.is_pull, lane = r.lane, worker = r.worker, claim_deadline = r.claim_deadline
FROM runs r WHERE r.id = l.run_id AND (r.is_pull OR r.awaiting_callback);
UPDATE attempts SET worker = substr(worker, 6) WHERE starts_with(worker, 'pull:');
UPDATE attempts SET worker = NULL WHERE worker = '(callback)';
DELETE FROM workers WHERE starts_with(name, 'pull:');

CREATE INDEX live_runs_due ON live_runs (lane, is_pull, due_at, run_id) WHERE due_at IS NOT NULL;
CREATE INDEX live_runs_claimable ON live_runs (workspace, due_at, run_id) WHERE is_pull AND due_at IS NOT NULL;
CREATE INDEX live_runs_claimable_of_agent ON live_runs (workspace, agent, due_at, run_id)
    WHERE is_pull AND due_at IS NOT NULL;
CREATE INDEX live_runs_unclaimed ON live_runs (claim_deadline)
    WHERE claim_deadline IS NOT NULL AND due_at IS NOT NULL;

-- Rows on their way in, as `RunRow`. No code of an earlier schema uses this database any more.
DROP TYPE new_job, new_run, outcome;
CREATE TYPE new_run AS (
    id uuid, job_id uuid, workspace text, agent text, job_name text, scheduled_at timestamptz,
    fire_at timestamptz, trigger text, triggered_by text, state text, reason text, covers integer,
    until_at timestamptz, attempt integer, worker text, lane text, serial boolean, due_at timestamptz,
    started_at timestamptz, finished_at timestamptz, idempotency_key text, replay_of uuid, payload text,
    claim_timeout_ms bigint
);

-- Whether code of an earlier schema cannot use the database after this migration (`migrations/__init__.py`).
ALTER TABLE schema_version ADD COLUMN breaking boolean NOT NULL DEFAULT true;
