-- Columns and tables for executor leases, counted attempts, recorded responses and pauses.

-- When the executor that claimed this run last sent a heartbeat for it. NULL: a worker of a replica holds the
-- run, and its row in `workers` says when it was last heard of.
ALTER TABLE runs ADD COLUMN beat_at INTEGER;

-- The secret that signs the webhooks which jobs inherit from their agent, and where else than to the agent's
-- own channel its keys may have output delivered.
ALTER TABLE agents ADD COLUMN secret BLOB;
ALTER TABLE agents ADD COLUMN old_secret BLOB;
ALTER TABLE agents ADD COLUMN old_secret_until INTEGER;
ALTER TABLE agents ADD COLUMN deliver_to TEXT;
-- Who created a job, as role:actor; '' for jobs that are older than this column.
ALTER TABLE jobs ADD COLUMN created_by TEXT NOT NULL DEFAULT '';
-- Why a job is paused, and until when. `wake_at` is the same instant then.
ALTER TABLE jobs ADD COLUMN pause_note TEXT;
ALTER TABLE jobs ADD COLUMN pause_until INTEGER;
-- Catching up. On a job: the ticks missed since the last one that became a run, and where the next planning pass
-- continues a spread that one pass could not complete. On a run: the ticks that were missed before it.
ALTER TABLE jobs ADD COLUMN missed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN spread_from INTEGER;
ALTER TABLE jobs ADD COLUMN spread_until INTEGER;
ALTER TABLE runs ADD COLUMN missed INTEGER NOT NULL DEFAULT 0;

-- `attempt` numbers launches. `failed_attempts` counts those that failed and count towards `max_attempts`.
ALTER TABLE runs ADD COLUMN failed_attempts INTEGER NOT NULL DEFAULT 0;
UPDATE runs SET failed_attempts = (
    SELECT count(*) FROM attempts a WHERE a.run_id = runs.id AND a.error IS NOT 'released')
WHERE state IN ('pending', 'retrying', 'running');

-- The status with which the target answered, where it has one.
ALTER TABLE runs ADD COLUMN response_code INTEGER;
ALTER TABLE attempts ADD COLUMN response_code INTEGER;
