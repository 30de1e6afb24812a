-- compatible: new columns with a default, a new table, new indexes.
--
-- Bounds that hold under concurrency and across crashes.

-- Ticks that resuming and editing must not plan again, because they have a record: skipped on request, or started
-- early by jitter. Milliseconds, separated by commas. While the job is enabled, ticks before its cursor are left out.
ALTER TABLE jobs ADD COLUMN decided_ticks text;
UPDATE jobs SET decided_ticks = ahead.ticks FROM (
    SELECT job_id, string_agg(round(extract(epoch FROM scheduled_at) * 1000)::bigint::text, ',' ORDER BY scheduled_at)
        AS ticks
    FROM runs WHERE trigger = 'schedule' AND scheduled_at > now() GROUP BY job_id
) ahead WHERE jobs.id = ahead.job_id;
-- Rows on their way in, as `JobRow`. Replicas of schema 15 use `job_row` until they stop.
CREATE TYPE job_values AS (
    id uuid, workspace text, agent text, name text, timing text, policy text, work text, payload text,
    after_job text, after_on text, description text, labels text, secret bytea, old_secret bytea,
    old_secret_until_at timestamptz, enabled boolean, disabled_reason text, anchor_at timestamptz,
    next_at timestamptz, wake_at timestamptz, run_count bigint, failures integer, version integer,
    created_at timestamptz, updated_at timestamptz, created_by text, pause_note text,
    pause_until timestamptz, instance_id uuid, schedule_origin text, schedule_id text, decided_ticks text
);

-- How often the run was lost together with other runs of the same worker. Such a run is a suspect: a process
-- runs one of them at a time.
ALTER TABLE runs ADD COLUMN losses integer NOT NULL DEFAULT 0;
ALTER TABLE live_runs ADD COLUMN losses integer NOT NULL DEFAULT 0;
CREATE INDEX live_runs_suspect ON live_runs (due_at) WHERE losses > 0 AND due_at IS NOT NULL;

-- The claim that gave the run to its executor, as the executor or the server named it. A claim whose response
-- is lost is returned by this name.
ALTER TABLE runs ADD COLUMN claim_id text;

-- How many follow-up runs in a row, each caused by the end of the one before, led to the run.
ALTER TABLE runs ADD COLUMN chain_length integer NOT NULL DEFAULT 0;

-- What the running attempts of runs under a budget have reserved, and what the runs have used so far. A
-- reservation counts while its run is running in that attempt, so a run that ends or is lost releases it.
CREATE TABLE reservations (
    run_id         uuid             PRIMARY KEY,
    attempt        integer          NOT NULL,
    workspace      text             COLLATE "C" NOT NULL,
    agent          text             COLLATE "C" NOT NULL,
    job            text             COLLATE "C" NOT NULL,
    -- used by earlier attempts
    earlier_tokens bigint           NOT NULL,
    earlier_cost   double precision NOT NULL,
    -- used by this attempt, and part of `spending` already
    used_tokens    bigint           NOT NULL,
    used_cost      double precision NOT NULL,
    -- reserved for what is under way
    tokens         bigint           NOT NULL,
    cost           double precision NOT NULL
);

CREATE INDEX reservations_held ON reservations (workspace) WHERE tokens > 0 OR cost > 0;
CREATE INDEX agents_budget ON agents (workspace, name) WHERE budget IS NOT NULL;
CREATE INDEX workspaces_budget ON workspaces (name) WHERE budget IS NOT NULL;
