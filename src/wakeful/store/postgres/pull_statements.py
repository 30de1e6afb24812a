"""The statements of the PostgreSQL store for runs that executors claim, each with its index.

The rules are those of `statements`. `claim_timeout_ms` is how long such a run waits for an executor each time
it is due. `claim_deadline` is the end of its current or last wait.
"""

from __future__ import annotations

from typing import Final

from wakeful.store.postgres.statements import HAS_THE_TURN, taken_runs

_CLAIMABLE: Final = f"""
    l.workspace = $2 AND l.is_pull AND l.due_at <= $1 AND r.state = l.state AND r.lane = l.lane AND r.is_pull
    AND ($3::text[] IS NULL OR l.lane = ANY($3::text[])) AND (NOT l.serial OR {HAS_THE_TURN})"""
#: live_runs_claimable: a range of it, in its order; the runs' primary key for the rows found
CLAIMABLE: Final = f"""
    SELECT r.id::text, l.job_id::text, l.serial FROM live_runs l JOIN runs r ON r.id = l.run_id
    WHERE {_CLAIMABLE} ORDER BY l.due_at, l.run_id LIMIT $4 FOR UPDATE OF r SKIP LOCKED"""
#: live_runs_claimable_of_agent: a range of it for each agent, in its order; then as above. Locks on runs
#: over the limit end with the transaction
CLAIMABLE_OF_AGENTS: Final = f"""
    SELECT p.id::text, p.job_id::text, p.serial FROM unnest($5::text[]) a (agent)
    CROSS JOIN LATERAL (
        SELECT r.id, l.job_id, l.serial, l.due_at FROM live_runs l JOIN runs r ON r.id = l.run_id
        WHERE l.agent = a.agent AND {_CLAIMABLE}
        ORDER BY l.due_at, l.run_id LIMIT $4 FOR UPDATE OF r SKIP LOCKED) p
    ORDER BY p.due_at, p.id LIMIT $4"""
#: the primary keys of runs and jobs, once for each
TAKEN_RUNS: Final = f"""
    WITH started AS (SELECT r.*, r.started_at AS was_due_at FROM runs r WHERE r.id = ANY($1::uuid[]))
    {taken_runs("j.policy", "", "")}"""
#: the primary keys of runs and jobs, once for each. No index has `beat_at` or
#: `started_at`: the work of a run that waits has not started. A run that is being verified
#: is over for its executor
RENEW: Final = """
    UPDATE runs r SET beat_at = $1, waiting = h.waiting,
        started_at = CASE WHEN h.waiting IS NULL THEN r.started_at ELSE $1 END
    FROM unnest($2::uuid[], $3::integer[], $7::text[]) h (id, attempt, waiting)
    WHERE r.id = h.id AND CASE WHEN r.attempt = h.attempt THEN
        r.state = 'running' AND r.is_pull AND NOT r.awaiting_callback AND r.workspace = $4
        AND ($5::text IS NULL OR r.agent = $5) AND ($6::text IS NULL OR r.worker = $6) END
    RETURNING r.id::text, r.job_id::text, r.attempt,
        coalesce((SELECT j.policy FROM jobs j WHERE j.id = r.job_id), '{}'), r.started_at, r.worker,
        r.failed_attempts, NULL::integer, r.is_pull, r.awaiting_callback"""
_RETURNABLE: Final = """
    r.state = 'running' AND r.is_pull AND NOT r.awaiting_callback AND r.workspace = $2
    AND ($3::text IS NULL OR r.agent = $3) AND r.worker = $1"""
#: the primary key of runs, once for each
RETURNABLE: Final = f"""
    SELECT r.id::text FROM unnest($4::uuid[], $5::integer[]) h (id, attempt) JOIN runs r ON r.id = h.id
    WHERE CASE WHEN r.attempt = h.attempt THEN {_RETURNABLE} END ORDER BY r.id FOR UPDATE OF r"""
#: live_runs_held; the runs' primary key for what is found
RETURNABLE_OF_CLAIM: Final = f"""
    SELECT r.id::text FROM live_runs l JOIN runs r ON r.id = l.run_id
    WHERE coalesce(l.state, '') = 'running' AND l.worker = $1 AND l.is_pull
        AND CASE WHEN l.state = r.state THEN r.claim_id = $4 AND {_RETURNABLE} END
    ORDER BY r.id FOR UPDATE OF r"""
#: the primary key of workflows, once for each
WORKFLOWS: Final = """
    SELECT w.workspace, w.id, w.version, w.dag, w.created_at
    FROM unnest($2::text[], $3::integer[]) k (id, version)
    JOIN workflows w ON w.workspace = $1 AND w.id = k.id AND w.version = k.version"""
#: live_runs_claimable: the first matching entry after that instant
NEXT_CLAIMABLE: Final = """
    SELECT due_at FROM live_runs
    WHERE workspace = $2 AND is_pull AND due_at > $1 AND ($3::text[] IS NULL OR lane = ANY($3::text[]))
        AND ($4::text[] IS NULL OR agent = ANY($4::text[]))
    ORDER BY due_at LIMIT 1"""

# live_runs_of_job. True if another run of its job is running or retrying: then this one waits for its turn,
# not for an executor.
_BUSY: Final = """
    l.serial AND EXISTS (SELECT FROM live_runs o
        WHERE o.job_id = l.job_id AND o.run_id <> l.run_id AND o.state IN ('running', 'retrying'))"""
#: live_runs_unclaimed: a range of it; the primary keys of runs and live_runs for the rows found
RESTART_WAIT: Final = """
    WITH blocked AS (
        SELECT r.id FROM live_runs l JOIN runs r ON r.id = l.run_id
        WHERE l.claim_deadline <= $2 AND l.due_at <= $1 AND r.state = l.state AND r.is_pull AND l.serial
            AND EXISTS (SELECT FROM live_runs o WHERE o.job_id = l.job_id
                AND (o.state = 'running' OR o.state = 'retrying' AND l.state = 'pending'))
        LIMIT $3 FOR UPDATE OF r SKIP LOCKED),
    restarted AS (
        UPDATE runs r SET due_at = $1, claim_deadline = $1::timestamptz + r.claim_timeout_ms * interval '1 ms'
        WHERE r.id = ANY(ARRAY(SELECT id FROM blocked)) RETURNING r.id, r.due_at, r.claim_deadline)
    UPDATE live_runs l SET due_at = a.due_at, claim_deadline = a.claim_deadline
    FROM restarted a WHERE l.run_id = a.id"""
#: live_runs_unclaimed: a range of it, in its order; the primary keys of runs and jobs for the rows found
EXPIRED: Final = f"""
    SELECT r.id::text, r.job_id::text, r.attempt, coalesce(j.policy, '{{}}'), r.started_at, r.worker,
        r.failed_attempts, NULL::integer, r.is_pull, r.awaiting_callback
    FROM live_runs l JOIN runs r ON r.id = l.run_id LEFT JOIN jobs j ON j.id = r.job_id
    WHERE l.claim_deadline <= $1 AND l.due_at IS NOT NULL AND r.state = l.state AND r.is_pull
        AND NOT ({_BUSY})
    ORDER BY l.claim_deadline, l.run_id LIMIT $2 FOR UPDATE OF r SKIP LOCKED"""
#: live_runs_of_job, once for each job; the primary keys of runs and live_runs for the rows found. What a
#: signal requires follows from its instance
MOVE: Final = """
    WITH picked AS (
        SELECT r.id, t.lane, t.claim_timeout_ms, t.requires
        FROM unnest($1::uuid[], $2::text[], $3::bigint[], $5::text[])
            t (job_id, lane, claim_timeout_ms, requires)
        CROSS JOIN LATERAL (
            SELECT l.run_id, l.state FROM live_runs l
            WHERE l.job_id = t.job_id
                AND (l.due_at IS NOT NULL OR l.instance_id IS NOT NULL AND l.state = 'pending')
                AND (l.lane <> t.lane OR l.is_pull <> (t.claim_timeout_ms IS NOT NULL)
                    OR l.instance_id IS NULL AND l.requires <> t.requires) OFFSET 0) l
        JOIN runs r ON r.id = l.run_id AND r.state = l.state ORDER BY r.id FOR UPDATE OF r),
    moved AS (
        UPDATE runs r SET lane = p.lane, is_pull = p.claim_timeout_ms IS NOT NULL,
            claim_timeout_ms = p.claim_timeout_ms,
            claim_deadline = greatest(r.due_at, $4::timestamptz) + p.claim_timeout_ms * interval '1 ms',
            requires = CASE WHEN r.instance_id IS NULL THEN p.requires ELSE r.requires END
        FROM picked p WHERE r.id = p.id RETURNING r.*)
    UPDATE live_runs l SET lane = m.lane, is_pull = m.is_pull, claim_deadline = m.claim_deadline,
        workspace = m.workspace, agent = m.agent, requires = m.requires
    FROM moved m WHERE l.run_id = m.id RETURNING true"""
#: live_runs_of_job, once for each job; the primary keys of runs and live_runs for the rows found. The next
#: attempt of a running run has the changed target too: `claim_timeout_ms` says whether an executor claims it.
#: `is_pull` follows when the run waits again
FOLLOW: Final = """
    WITH picked AS (
        SELECT r.id, t.requires, t.lane, t.claim_timeout_ms
        FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[])
            t (job_id, requires, lane, claim_timeout_ms)
        CROSS JOIN LATERAL (
            SELECT l.run_id FROM live_runs l
            WHERE l.job_id = t.job_id AND l.state = 'running' AND l.instance_id IS NULL OFFSET 0) l
        JOIN runs r ON r.id = l.run_id AND r.state = 'running' ORDER BY r.id FOR UPDATE OF r),
    following AS (
        UPDATE runs r SET requires = p.requires, lane = p.lane, claim_timeout_ms = p.claim_timeout_ms,
            claim_deadline = CASE WHEN p.claim_timeout_ms IS NOT NULL THEN r.claim_deadline END
        FROM picked p WHERE r.id = p.id)
    UPDATE live_runs l SET requires = p.requires, lane = p.lane FROM picked p WHERE l.run_id = p.id"""
#: the primary key. The fence of `finish` requires a running run; this one has no worker
MARK_EXPIRED: Final = "UPDATE runs SET state = 'running', due_at = NULL WHERE id = ANY($1::uuid[])"
#: the primary key
CLEAR_START: Final = "UPDATE runs SET started_at = NULL WHERE id = ANY($1::uuid[])"
