-- What a run requires of the process that takes it, and what each process has. Breaking: code of schema 10 takes
-- runs that it cannot launch.

-- `function:NAME`, or '' if every process can launch the run (`capabilities.py`), and the lowest version of it.
ALTER TABLE runs
    ADD COLUMN requires         text    COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN requires_version integer NOT NULL DEFAULT 0;
ALTER TABLE live_runs
    ADD COLUMN requires         text    COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN requires_version integer NOT NULL DEFAULT 0;
-- A JSON object: what the process can launch, each with its highest version.
ALTER TABLE workers ADD COLUMN capabilities text NOT NULL DEFAULT '{}';

-- A job whose work cannot be read requires nothing. Names with other characters than these, and long ones, are
-- stored as a hash, which only code can compute. Their runs stay takable by every process.
CREATE FUNCTION requirement_of(work text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    target json;
BEGIN
    target := work::json -> 'target';
    IF target ->> 'kind' = 'workflow' THEN
        target := target -> 'to';
    END IF;
    IF target ->> 'kind' = 'function' AND (target ->> 'name') COLLATE "C" ~ '^[ -~]{1,200}$' THEN
        RETURN 'function:' || (target ->> 'name');
    END IF;
    RETURN '';
EXCEPTION WHEN others THEN
    RETURN '';
END $$;
UPDATE runs r SET requires = requirement_of(j.work)
FROM live_runs l, jobs j WHERE r.id = l.run_id AND j.id = r.job_id AND NOT r.is_pull AND j.work LIKE '%"function"%';
UPDATE live_runs l SET requires = r.requires FROM runs r WHERE r.id = l.run_id AND r.requires <> '';
DROP FUNCTION requirement_of(text);

DROP INDEX live_runs_due;
CREATE INDEX live_runs_due ON live_runs (lane, is_pull, requires, due_at, run_id) WHERE due_at IS NOT NULL;
-- Running runs by worker. Statements that use it have the same expression. With `state = 'running'` and old
-- statistics, the planner would use it for statements about the runs of one job, and read all of it for each.
CREATE INDEX live_runs_held ON live_runs (worker) WHERE coalesce(state, '') = 'running';

-- Rows on their way in, as `NewRun`. Replicas of the previous version use `new_run` until they stop.
CREATE TYPE run_record AS (
    id uuid, job_id uuid, workspace text, agent text, job_name text, scheduled_at timestamptz,
    fire_at timestamptz, trigger text, triggered_by text, state text, reason text, covers integer,
    until_at timestamptz, attempt integer, worker text, lane text, serial boolean, due_at timestamptz,
    started_at timestamptz, finished_at timestamptz, idempotency_key text, replay_of uuid, payload text,
    claim_timeout_ms bigint, requires text, requires_version integer
);
