-- Columns and tables for executor leases, counted attempts, recorded responses and pauses.

-- When the executor that claimed this run last sent a heartbeat for it. NULL: a worker of a replica holds the
-- run, and its row in `workers` says when it was last heard of. Not indexed: a heartbeat stays within its page.
ALTER TABLE runs ADD COLUMN beat_at timestamptz;

-- The secret that signs the webhooks which jobs inherit from their agent, and where else than to the agent's
-- own channel its keys may have output delivered.
ALTER TABLE agents
    ADD COLUMN secret bytea, ADD COLUMN old_secret bytea, ADD COLUMN old_secret_until_at timestamptz,
    ADD COLUMN deliver_to text;
-- Who created a job, as role:actor; '' for jobs that are older than this column.
ALTER TABLE jobs ADD COLUMN created_by text NOT NULL DEFAULT '';
-- Why a job is paused, and until when. `wake_at` of its cursor is the same instant then.
ALTER TABLE jobs ADD COLUMN pause_note text, ADD COLUMN pause_until timestamptz;
-- A row of jobs with its cursor, in the order of JobRow. The type new_job stays for replicas of the version
-- before this one.
CREATE TYPE job_record AS (
    id uuid, workspace text, agent text, name text, timing text, policy text, work text, payload text,
    after_job text, after_on text, description text, labels text, secret bytea, old_secret bytea,
    old_secret_until_at timestamptz, enabled boolean, disabled_reason text, anchor_at timestamptz,
    next_at timestamptz, wake_at timestamptz, run_count bigint, failures integer, version integer,
    created_at timestamptz, updated_at timestamptz, created_by text, pause_note text,
    pause_until timestamptz
);
-- Catching up. On a job: the ticks missed since the last one that became a run, and where the next planning pass
-- continues a spread that one pass could not complete. On a run: the ticks that were missed before it.
ALTER TABLE jobs ADD COLUMN missed integer NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN spread_from timestamptz;
ALTER TABLE jobs ADD COLUMN spread_until timestamptz;
ALTER TABLE runs ADD COLUMN missed integer NOT NULL DEFAULT 0;

-- `attempt` numbers launches. `failed_attempts` counts those that failed and count towards `max_attempts`.
ALTER TABLE runs ADD COLUMN failed_attempts integer NOT NULL DEFAULT 0;
UPDATE runs r SET failed_attempts = (
    SELECT count(*) FROM attempts a WHERE a.run_id = r.id AND a.error IS DISTINCT FROM 'released')
WHERE r.attempt > 0 AND r.id IN (SELECT run_id FROM live);

-- The status with which the target answered, where it has one.
ALTER TABLE runs ADD COLUMN response_code integer;
ALTER TABLE attempts ADD COLUMN response_code integer;

-- Takes the place of `outcome`, which replicas of the previous version use.
CREATE TYPE attempt_outcome AS (
    run_id uuid, job_id uuid, attempt integer, state text, started_at timestamptz, finished_at timestamptz,
    due_at timestamptz, output text, error text, reason text, usage text, failed_attempts integer,
    response_code integer
);
