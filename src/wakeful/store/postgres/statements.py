"""The statements of the PostgreSQL store, by name, each with the index that serves it.

A batch is one array of rows (the types of the first migration) or, if a row is a few ids and numbers, a
comma-separated text for each column: the driver checks the type of every element of an array, which can cost
more than the rest of the call.

`FOR UPDATE` locks in the order of ids, and cursors before jobs before runs; statements that cannot keep this
order skip locked rows (`SKIP LOCKED`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from wakeful.job.job import AGENT_INACTIVE
from wakeful.run.conversations import JOB_SESSION
from wakeful.run.outcome import TAKEN_OVER
from wakeful.run.run import NewRun
from wakeful.store.changelog import FINISHED, PULL_RUNS, RUNS
from wakeful.store.columns import column_list, fields_before, select_list
from wakeful.store.plans import DueJob
from wakeful.store.postgres.audit_statements import append_to_audit, lock_audit_heads
from wakeful.store.rows import TakenRun, UnfinishedRun
from wakeful.store.sessions import HEARTBEAT, HEARTBEAT_LABELS
from wakeful.store.sql import jobs, new_runs, running


def numbers(values: Iterable[int | None]) -> str:
    """Return a column of numbers as the text of a PostgreSQL array.

    >>> numbers([1, None, 3])
    '{1,NULL,3}'
    """
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


# --- planning -------------------------------------------------------------------------------------------

#: cursors_wake: a range of it, in its order
CLAIM: Final = """
    SELECT job_id::text, coalesce(next_at, wake_at) AS next_ms, run_count FROM cursors
    WHERE wake_at <= $1 ORDER BY wake_at LIMIT $2 FOR UPDATE SKIP LOCKED"""
_DUE_JOB: Final = select_list(
    fields_before(DueJob, "running"),
    "j",
    {
        "id": "j.id::text",
        "next_ms": "claimed.next_ms",
        "run_count": "claimed.run_count",
        "agent_active": """CASE WHEN j.pause_until IS NOT NULL THEN
            (SELECT a.active FROM agents a WHERE a.workspace = j.workspace AND a.name = j.agent) END""",
        "old_secret_until_ms": "j.old_secret_until_at",
    },
)
#: the jobs' primary key and live_runs_of_job, once for each. A statement of its own, after the claim: it must
#: see what the previous holder of the lock wrote. One row for each job: thousands of runs may wait for it
FACTS: Final = f"""
    SELECT {_DUE_JOB}, l.running, l.waiting, l.any_pending
    FROM unnest(string_to_array($1, ',')::uuid[], $2::text::bigint[], $3::text::bigint[])
        claimed (id, next_ms, run_count)
    JOIN jobs j ON j.id = claimed.id
    CROSS JOIN LATERAL (
        SELECT string_agg(run_id::text, ',') FILTER (WHERE state <> 'pending') AS running,
            string_agg(run_id::text, ',') FILTER (WHERE state = 'pending' AND tick) AS waiting,
            bool_or(state = 'pending') AS any_pending
        FROM live_runs WHERE job_id = claimed.id) l"""
#: the cursors' primary key, once for each
ADVANCE: Final = """
    UPDATE cursors c SET next_at = to_timestamp(s.next_ms::float8 / 1000),
        wake_at = to_timestamp(s.wake_ms::float8 / 1000), run_count = s.run_count
    FROM unnest(string_to_array($1, ',')::uuid[], $2::text::bigint[], $3::text::bigint[], $4::text::bigint[])
        s (job_id, next_ms, wake_ms, run_count)
    WHERE c.job_id = s.job_id"""
#: the jobs' primary key, once for each
HALT: Final = """
    UPDATE jobs j SET enabled = h.enabled, disabled_reason = h.reason,
        decided_ticks = coalesce(h.decided, j.decided_ticks)
    FROM unnest($1::uuid[], $2::boolean[], $3::text[], $4::text[]) h (id, enabled, reason, decided)
    WHERE j.id = h.id"""
#: the primary keys of jobs and cursors, once for each. Their last tick was skipped, so no run can end them
END_REFUSED: Final = """
    UPDATE jobs j SET enabled = false, disabled_reason = 'no_more_ticks'
    FROM cursors c WHERE j.id = ANY($1::uuid[]) AND c.job_id = j.id
        AND CASE WHEN j.enabled THEN c.next_at IS NULL AND c.wake_at IS NULL END
    RETURNING j.id::text, j.workspace, j.agent, j.name"""
#: the cursors' primary key
DELETE_CURSORS: Final = "DELETE FROM cursors WHERE job_id = ANY($1::uuid[])"
# --- new runs -------------------------------------------------------------------------------------------

#: the columns of `NewRun`, in its order
NEW_RUN_COLUMNS: Final = column_list(fields_before(NewRun, "details"))
#: the columns of a new row of `live_runs`
LIVE_COLUMNS: Final = (
    "run_id, job_id, state, worker, lane, serial, tick, scheduled_at, due_at, claim_deadline, workspace, "
    "agent, is_pull, requires, requires_version"
)


def insert_runs_from(source: str, created_at: str, schema: str = "", more: Mapping[str, str] = {}) -> str:
    """Return the parts `inserted` and `alive` of a statement that adds runs.

    `source` has the columns of `NewRun`; `more` are other columns and their values.
    """
    columns = {"created_at": created_at, **more}
    return f"""inserted AS (
        INSERT INTO {schema}runs ({NEW_RUN_COLUMNS}, is_pull, claim_deadline, {", ".join(columns)})
        SELECT {NEW_RUN_COLUMNS}, claim_timeout_ms IS NOT NULL,
            due_at + claim_timeout_ms * interval '1 ms', {", ".join(columns.values())}
        FROM {source}
        RETURNING id, job_id, state, worker, lane, serial, trigger = 'schedule', scheduled_at, due_at,
            claim_deadline, workspace, agent, is_pull, requires, requires_version),
    alive AS (
        INSERT INTO {schema}live_runs ({LIVE_COLUMNS})
        SELECT * FROM inserted WHERE state IN ('pending', 'retrying', 'running'))"""


def _insert(on_conflict: str, before: str = "") -> str:
    return f"""
    WITH {before} {insert_runs_from(f"unnest($1::run_record[]) {on_conflict}", "$2")}"""


_HOLD_JOBS: Final = new_runs.HOLD_JOBS.replace("$1", "$3")
#: fails as a whole on a second run of a tick (runs_tick, the primary key): a check of each run first would
#: cost a quarter of the insert
INSERT_RUNS: Final = f"{_insert('')} SELECT"
#: the same indexes, for each run; returns which were inserted
INSERT_NEW_RUNS: Final = f"{_insert('ON CONFLICT DO NOTHING')} SELECT string_agg(id::text, ',') FROM inserted"
#: the same, after the primary key of jobs, once for each: returns the jobs, which are locked, and the runs
ADD_RUNS: Final = f"""{_insert("ON CONFLICT DO NOTHING", f"held AS MATERIALIZED ({_HOLD_JOBS}),")}
    SELECT id, name, version FROM held UNION ALL SELECT id::text, NULL, NULL FROM inserted"""
_MAY_ADD: Final = f"""
    held AS MATERIALIZED ({_HOLD_JOBS}),
    {lock_audit_heads(6)},
    checked AS MATERIALIZED (
        SELECT (SELECT count(*) FROM unnest($3::uuid[], $4::integer[]) v (id, version)
                JOIN held h ON h.id = v.id::text AND h.version = v.version) = cardinality($3::uuid[])
            AND NOT EXISTS (
                SELECT FROM budget_blocks b WHERE b.day = $5 AND b.workspace = ANY($14::text[]))
            AND (SELECT count(*) FROM locked) = cardinality($7::text[]) AS ok),"""
#: the same with entries of the audit and notifications, as a transaction of its own: only if all jobs are at
#: these versions, no cap is reached (the primary key of budget_blocks, a range), and the heads of the audit
#: are as given (their primary key)
ADD_AT_ONCE: Final = f"""{_insert("WHERE (SELECT ok FROM checked)", _MAY_ADD)},
    {append_to_audit(6)}
    SELECT c.ok, CASE WHEN t.topic IS NOT NULL THEN pg_notify($12, t.topic) END
    FROM checked c LEFT JOIN unnest($13::text[]) t (topic) ON c.ok"""

#: the primary key, once for each
SET_DETAILS: Final = """
    UPDATE runs r SET session = d.session, depth = d.depth, context = d.context, chain_length = d.chain_length
    FROM unnest($1::uuid[], $2::text[], $3::integer[], $4::text[], $5::integer[])
        d (id, session, depth, context, chain_length)
    WHERE r.id = d.id"""

# --- running --------------------------------------------------------------------------------------------

HAS_THE_TURN: Final = running.HAS_THE_TURN.postgresql
_DUE: Final = """
    l.lane = f.lane AND NOT l.is_pull AND l.requires = c.name AND l.due_at <= $1
        AND l.requires_version <= c.version AND l.losses = 0"""
_MAY_START: Final = f"{_DUE} AND (NOT l.serial OR {HAS_THE_TURN})"
#: live_runs_due: for each lane and requirement its first entry, then ranges of it, in its order; the runs'
#: primary key for what is found. Of several requirements, their first entries tell until when a lane can take
#: what is due (`until_at`): first what is due before, then what is due at that time; the rest follows only if
#: other workers have locked these. Rows are locked one by one until the lane is full
_PICK: Final = f"""
    FROM unnest($2::text[], $3::integer[]) f (lane, free)
    CROSS JOIN LATERAL (
        SELECT array_agg(c.name ORDER BY d.due_at) AS names,
            array_agg(c.version ORDER BY d.due_at) AS versions
        FROM unnest($4::text[], $5::integer[]) c (name, version)
        CROSS JOIN LATERAL (
            SELECT l.due_at FROM live_runs l WHERE {_DUE} ORDER BY l.due_at LIMIT 1) d) w
    CROSS JOIN LATERAL (
        SELECT coalesce(CASE WHEN cardinality(w.names) > 1 THEN (
            SELECT d.due_at FROM unnest(w.names, w.versions) c (name, version)
            CROSS JOIN LATERAL (
                SELECT l.due_at FROM live_runs l WHERE {_MAY_START} ORDER BY l.due_at LIMIT f.free) d
            ORDER BY d.due_at OFFSET f.free - 1 LIMIT 1) END, $1) AS until_at OFFSET 0) u
    CROSS JOIN LATERAL (
        SELECT r.* FROM (
            SELECT s.after_at, s.until_at, c.name, c.version
            FROM (VALUES (1, '-infinity', u.until_at - interval '1 ms'),
                (2, u.until_at - interval '1 ms', u.until_at),
                (3, u.until_at, $1)) s (number, after_at, until_at)
            CROSS JOIN unnest(w.names, w.versions) WITH ORDINALITY c (name, version, number)
            ORDER BY s.number, c.number) c
        CROSS JOIN LATERAL (
            SELECT r.id, l.job_id, l.serial, l.instance_id IS NOT NULL AS is_signal, l.due_at,
                r.attempt + (r.state = 'retrying')::integer AS attempt, r.reason
            FROM live_runs l JOIN runs r ON r.id = l.run_id
            WHERE {_MAY_START} AND l.due_at > c.after_at AND l.due_at <= c.until_at
                AND CASE WHEN r.state = l.state THEN r.lane = l.lane AND r.is_pull = l.is_pull
                    AND r.requires = l.requires END
            ORDER BY l.due_at, l.run_id LIMIT f.free FOR UPDATE OF r SKIP LOCKED) r
        LIMIT f.free) p"""
PICK: Final = f"SELECT p.id::text, p.job_id::text, p.serial, p.is_signal, f.lane {_PICK}"
#: the same, and the jobs' primary key, once for each
PICK_MORE: Final = f"""
    SELECT p.id::text, p.job_id::text, p.serial, p.is_signal, f.lane, p.due_at, p.attempt,
        coalesce((SELECT j.policy FROM jobs j WHERE j.id = p.job_id), '{{}}') AS policy, p.reason
    {_PICK}"""
_OWNER: Final = "coalesce(l.workspace, ''), coalesce(l.agent, '')"


def _next_owner(after: str, counts: str) -> str:
    return f"""
                SELECT coalesce(l.workspace, '') AS workspace, coalesce(l.agent, '') AS agent, l.due_at,
                    {counts} FROM live_runs l
                WHERE l.lane = o.lane AND l.requires = o.requires AND l.due_at IS NOT NULL AND NOT l.is_pull
                    AND l.losses = 0 AND ({_OWNER}) {after} AND ({_OWNER}) < (b.end_workspace, b.end_agent)
                ORDER BY coalesce(l.workspace, ''), coalesce(l.agent, ''), l.due_at LIMIT 1"""


#: the owner after `p`, or the next workspace if that has had enough of them
_AFTER: Final = "> (p.workspace, CASE WHEN p.agents < $6 THEN p.agent ELSE '~' END)"
_COUNTS: Final = "CASE WHEN p.workspace = coalesce(l.workspace, '') THEN p.agents + 1 ELSE 1 END, p.steps + 1"
#: live_runs_due: for each lane and requirement its first entry. live_runs_of_owner: the first entry of each
#: owner, from the owner of that run on, then from the beginning up to it; the primary key of workspaces each.
#: `~` comes after all characters of a name
DUE_OWNERS: Final = f"""
    SELECT o.lane, o.requires, g.workspace, g.agent, g.due_at,
        coalesce((SELECT w.lane_weight FROM workspaces w WHERE w.name = g.workspace), 1)
    FROM (
        SELECT f.lane, c.name AS requires, d.workspace, d.agent
        FROM unnest($2::text[]) f (lane) CROSS JOIN unnest($3::text[], $4::integer[]) c (name, version)
        CROSS JOIN LATERAL (
            SELECT coalesce(l.workspace, '') AS workspace, coalesce(l.agent, '') AS agent
            FROM live_runs l WHERE {_DUE} ORDER BY l.due_at LIMIT 1) d) o
    CROSS JOIN LATERAL (VALUES
        (o.workspace, o.agent, '~', '~'), ('', '', o.workspace, o.agent)
    ) b (workspace, agent, end_workspace, end_agent)
    CROSS JOIN LATERAL (
        WITH RECURSIVE owners AS (
            SELECT * FROM ({_next_owner(">= (b.workspace, b.agent)", "1 AS agents, 1 AS steps")}) first
            UNION ALL
            SELECT n.* FROM owners p CROSS JOIN LATERAL ({_next_owner(_AFTER, _COUNTS)}) n
            WHERE p.steps < $5)
        SELECT workspace, agent, due_at FROM owners WHERE due_at <= $1) g"""
#: live_runs_of_owner: a range of it for each owner, in its order; the primary keys of runs and jobs for what
#: is found
PICK_OF_OWNERS: Final = f"""
    SELECT p.id::text, p.job_id::text, p.serial, p.is_signal, p.due_at, p.attempt,
        coalesce((SELECT j.policy FROM jobs j WHERE j.id = p.job_id), '{{}}') AS policy, p.reason,
        c.workspace, c.agent
    FROM unnest($3::text[], $4::integer[], $5::text[], $6::text[], $7::integer[])
        c (name, version, workspace, agent, most)
    CROSS JOIN LATERAL (
        SELECT r.id, l.job_id, l.serial, l.instance_id IS NOT NULL AS is_signal, l.due_at,
            r.attempt + (r.state = 'retrying')::integer AS attempt, r.reason
        FROM live_runs l JOIN runs r ON r.id = l.run_id
        WHERE l.lane = $2::text AND l.requires = c.name AND ({_OWNER}) = (c.workspace, c.agent)
            AND l.due_at <= $1 AND NOT l.is_pull AND l.losses = 0 AND l.requires_version <= c.version
            AND CASE WHEN r.state = l.state THEN r.lane = l.lane AND r.is_pull = l.is_pull
                AND r.requires = l.requires END AND (NOT l.serial OR {HAS_THE_TURN})
        ORDER BY l.due_at, l.run_id LIMIT c.most FOR UPDATE OF r SKIP LOCKED) p"""
#: live_runs_suspect, in its order; the runs' primary key for what is found
PICK_SUSPECTS: Final = f"""
    SELECT r.id::text, l.job_id::text, l.serial, l.instance_id IS NOT NULL AS is_signal
    FROM live_runs l JOIN runs r ON r.id = l.run_id
    WHERE l.losses > 0 AND l.due_at <= $1 AND l.lane = ANY($2::text[]) AND NOT l.is_pull
        AND ($5::integer = 1 OR l.losses = 1)
        AND EXISTS (SELECT FROM unnest($3::text[], $4::integer[]) c (name, version)
            WHERE c.name = l.requires AND c.version >= l.requires_version)
        AND CASE WHEN r.state = l.state THEN r.lane = l.lane AND r.is_pull = l.is_pull
            AND r.requires = l.requires END AND (NOT l.serial OR {HAS_THE_TURN})
    ORDER BY l.due_at, l.run_id LIMIT $5 FOR UPDATE OF r SKIP LOCKED"""
#: the cursors' primary key. Starting a serial run and planning lock the cursor of the job: otherwise two runs
#: could start at once, because neither transaction sees the other
LOCK_TURNS: Final = """
    SELECT job_id::text FROM cursors WHERE job_id = ANY($1::uuid[]) FOR UPDATE SKIP LOCKED"""


#: the fields of a run that is no signal run
TAKEN_FIELDS: Final = fields_before(TakenRun, "instance_id")
OF_RUN: Final = {
    "id": "s.id::text",
    "job_id": "s.job_id::text",
    "policy": "coalesce(j.policy, '{}')",
    "work": "coalesce(j.work, '{}')",
    "payload": "coalesce(s.payload, j.payload)",
    "secret": "j.secret",
    "old_secret": "j.old_secret",
    "old_secret_until_ms": "j.old_secret_until_at",
    "timing": "j.timing",
    "anchor_ms": "j.anchor_at",
    "precheck_state": "j.precheck_state",
    "precheck_revision": "coalesce(j.precheck_revision, 0)",
}
_OF_SIGNAL: Final = {
    **OF_RUN,
    "policy": "coalesce(j.policy, i.policy, '{}')",
    "instance_id": "s.instance_id::text",
    "data": "i.data",
    "state_version": "coalesce(i.version, 0)",
    "revision": "coalesce(i.revision, 0)",
    "memory": "i.memory",
    "instance_created_ms": "i.created_at",
}
_INSTANCE: Final = """
    LEFT JOIN LATERAL (
        SELECT i.*, c.policy FROM instances i
        LEFT JOIN agent_classes c ON c.workspace = i.workspace AND c.agent = i.agent
        WHERE i.id = s.instance_id) i ON s.instance_id IS NOT NULL"""


def taken_runs(*, signals: bool) -> str:
    """Return the end of a statement that has `started` runs: their columns as `TakenRun`.

    Without `signals`, none is a signal run.
    """
    fields = fields_before(TakenRun, "slot") if signals else TAKEN_FIELDS
    return f"""
    SELECT {select_list(fields, "s", _OF_SIGNAL if signals else OF_RUN)}
    FROM started s LEFT JOIN jobs j ON j.id = s.job_id {_INSTANCE if signals else ""}
    ORDER BY s.was_due_at, s.id"""


#: the attempt of a run `r` that starts
NEXT_ATTEMPT: Final = f"""
    r.attempt + (r.state = 'retrying' AND r.reason IS DISTINCT FROM '{TAKEN_OVER}')::integer"""
#: whether a serial run has the turn, after the cursors of the jobs in $3 were locked (`LOCK_TURNS`)
STILL_HAS_THE_TURN: Final = f"""
    {HAS_THE_TURN} AND (l.job_id IS NULL OR l.job_id = ANY($3::uuid[])
        OR NOT EXISTS (SELECT FROM cursors c WHERE c.job_id = l.job_id))"""


def _start(*, signals: bool) -> str:
    return f"""
    WITH started AS (
        UPDATE runs r SET state = 'running', worker = $4, due_at = NULL, beat_at = NULL, claim_id = NULL,
            waiting = NULL,
            started_at = CASE WHEN r.id = ANY($5::uuid[]) THEN NULL ELSE $1 END,
            attempt = {NEXT_ATTEMPT}
        FROM live_runs l
        WHERE r.id = ANY($2::uuid[]) AND l.run_id = r.id AND l.due_at <= $1
            AND (NOT l.serial OR ({STILL_HAS_THE_TURN}))
        RETURNING r.*, l.due_at AS was_due_at),
    marked AS (
        UPDATE live_runs SET state = 'running', worker = $4, due_at = NULL
        WHERE run_id = ANY(ARRAY(SELECT id FROM started)))
    {taken_runs(signals=signals)}"""


#: the primary keys of live_runs, runs and jobs, and for a serial run live_runs_of_job once more: whether it
#: may start is checked again under the lock
START: Final = _start(signals=False)
#: the same, and for a signal run the primary keys of instances and agent_classes
START_SIGNALS: Final = _start(signals=True)
# --- outcomes -------------------------------------------------------------------------------------------

#: the cursors' primary key
LOCK_CURSORS: Final = """
    SELECT job_id::text, next_at IS NOT NULL FROM cursors WHERE job_id = ANY($1::uuid[])
    ORDER BY job_id FOR UPDATE"""
#: the primary keys of runs and jobs, once for each
EDITS: Final = """
    SELECT r.id::text, r.created_at, j.updated_at FROM runs r JOIN jobs j ON j.id = r.job_id
    WHERE r.id = ANY($1::uuid[])"""
#: the primary key. A run that is being verified was reported already
HOLDER: Final = """
    SELECT worker, is_pull, instance_id::text FROM runs
    WHERE id = $1 AND attempt = $2 AND state = 'running' AND NOT (awaiting_callback AND due_at IS NULL)"""
#: the fields of `Finished` in the type `attempt_outcome`, in its order
OUTCOME_FIELDS: Final = (
    *("run_id", "job_id", "attempt", "state", "started_ms", "finished_ms", "due_ms", "output", "error"),
    *("reason", "usage", "failed_attempts", "response_code"),
)
# The fence is run, attempt and worker; the worker is NULL while the run awaits its callback, and '' for
# whichever executor has claimed it. A pull run that is retried waits for an executor as long as the first
# time. Its job may have got another target meanwhile (`waiting_runs.FOLLOW`).
_FENCE: Final = """CASE WHEN r.attempt = o.attempt THEN r.state = 'running' AND (
                r.worker IS NOT DISTINCT FROM $1
                OR $1 = '' AND r.is_pull AND r.worker IS NOT NULL AND NOT r.awaiting_callback) END"""
_DONE: Final = f"""
        UPDATE runs r SET state = o.state, started_at = o.started_at,
            finished_at = CASE WHEN o.state NOT IN ('retrying', 'running') THEN o.finished_at END,
            due_at = CASE WHEN o.state IN ('retrying', 'running') THEN o.due_at END,
            claim_deadline = CASE o.state WHEN 'retrying' THEN o.due_at + r.claim_timeout_ms * interval '1 ms'
                ELSE r.claim_deadline END,
            is_pull = CASE o.state WHEN 'retrying' THEN r.claim_timeout_ms IS NOT NULL ELSE r.is_pull END,
            worker = CASE WHEN o.state NOT IN ('retrying', 'running') THEN r.worker END,
            awaiting_callback = o.state = 'running',
            output = o.output, error = o.error, reason = o.reason, usage = o.usage, dead = o.state = 'failed',
            failed_attempts = coalesce(o.failed_attempts, r.failed_attempts), response_code = o.response_code
        FROM {{outcomes}} o
        WHERE r.id = o.run_id AND {_FENCE} {{more}}
        RETURNING r.id, r.state, r.job_id"""
_ANY_FAILING: Final = """EXISTS (SELECT FROM jobs WHERE failures > 0)
            OR EXISTS (SELECT FROM job_incidents WHERE closed_at IS NULL)"""
_ANY_FOLLOWER: Final = "EXISTS (SELECT FROM jobs WHERE after_job IS NOT NULL AND deleted_at IS NULL)"
_FINISH: Final = f"""
    WITH done AS ({_DONE.format(outcomes="{outcomes}", more="")}),
    gone AS (
        DELETE FROM live_runs
        WHERE run_id = ANY(ARRAY(SELECT id FROM done WHERE state NOT IN ('retrying', 'running'))))
    SELECT string_agg(id::text, ',') AS run_ids,
        {_ANY_FAILING} AS any_failing,
        {_ANY_FOLLOWER} AS any_follower,
        CASE WHEN $2 THEN {{waiting}} ELSE (
            SELECT 'some' FROM live_runs WHERE due_at IS NOT NULL LIMIT 1) END AS waiting
    FROM done"""
# The topic for the runs that wait for these jobs. All that wait for one job wait alike: one of them is read.
_WAITING_OF: Final = f"""(
    SELECT max(w.topic) FROM unnest(ARRAY(SELECT DISTINCT job_id FROM {{0}})) d (job_id)
    CROSS JOIN LATERAL (
        SELECT CASE WHEN l.is_pull THEN '{PULL_RUNS}' ELSE '{RUNS}' END AS topic FROM live_runs l
        WHERE CASE WHEN l.job_id = d.job_id THEN l.due_at IS NOT NULL END AND l.job_id = d.job_id
        LIMIT 1) w)"""
#: the runs' primary key, once for each, and that of live_runs. Also returns whether there is more to do:
#: jobs_failing, job_incidents_open, jobs_after and live_runs_due are mostly empty; of few runs ($2),
#: live_runs_of_job instead, for each job
FINISH: Final = _FINISH.format(outcomes="unnest($3::attempt_outcome[])", waiting=_WAITING_OF.format("done"))
#: the same, for runs that succeeded without output
SUCCEED: Final = _FINISH.format(
    outcomes="""(
        SELECT run_id, attempt, 'succeeded' AS state, to_timestamp(started_ms::float8 / 1000) AS started_at,
            to_timestamp(finished_ms::float8 / 1000) AS finished_at, NULL::timestamptz AS due_at,
            NULL AS output, NULL AS error, NULL AS reason, NULL AS usage, NULL::integer AS failed_attempts,
            response_code
        FROM unnest(string_to_array($3, ',')::uuid[], $4::text::integer[], $5::text::bigint[],
            $6::text::bigint[], $7::text::integer[])
            u (run_id, attempt, started_ms, finished_ms, response_code))""",
    waiting=_WAITING_OF.format("done"),
)
#: the same for a few plain successes, with entries of the audit, changes and notifications, as a transaction
#: of its own: only if all are still held, nothing follows, and the heads of the audit are as given
FINISH_AT_ONCE: Final = f"""
    WITH fenced AS MATERIALIZED (
        SELECT o.run_id FROM unnest($2::attempt_outcome[]) o
        CROSS JOIN LATERAL (SELECT FROM runs r WHERE r.id = o.run_id AND {_FENCE} FOR UPDATE) r),
    {lock_audit_heads(3)},
    checked AS MATERIALIZED (
        SELECT (SELECT count(*) FROM fenced) = cardinality($2::attempt_outcome[])
            AND NOT ({_ANY_FAILING}) AND NOT {_ANY_FOLLOWER}
            AND (SELECT count(*) FROM locked) = cardinality($4::text[]) AS ok),
    done AS ({_DONE.format(outcomes="unnest($2::attempt_outcome[])", more="AND (SELECT ok FROM checked)")}),
    gone AS (DELETE FROM live_runs WHERE run_id = ANY(ARRAY(SELECT id FROM done))),
    {append_to_audit(3)},
    noted AS (
        INSERT INTO changes (at, kind, count, items)
        SELECT $9, '{FINISHED}', cardinality($2::attempt_outcome[]), $10 WHERE (SELECT ok FROM checked))
    SELECT c.ok, t.topic, CASE WHEN t.topic IS NOT NULL THEN pg_notify($11, t.topic) END
    FROM checked c LEFT JOIN (
        SELECT {_WAITING_OF.format("done")} AS topic
        UNION ALL SELECT 'sessions' WHERE EXISTS (SELECT FROM sessions WHERE due_at IS NOT NULL)) t
        ON c.ok AND t.topic IS NOT NULL"""
#: the primary keys of live_runs and runs
ADD_LIVE_RUNS: Final = """
    UPDATE live_runs l SET state = r.state, worker = r.worker,
        due_at = CASE r.state WHEN 'retrying' THEN r.due_at END, claim_deadline = r.claim_deadline,
        is_pull = r.is_pull, workspace = r.workspace, agent = r.agent
    FROM runs r WHERE l.run_id = ANY($1::uuid[]) AND r.id = l.run_id"""
#: the attempts' primary key
ADD_ATTEMPTS: Final = """
    INSERT INTO attempts (run_id, attempt, worker, started_at, finished_at, error, response_code, output)
    SELECT o.run_id, o.attempt, o.worker, o.started_at, o.finished_at, o.error, o.response_code, o.output
    FROM unnest($1::attempt_outcome[], $2::text[]) o (run_id, job_id, attempt, state, started_at, finished_at,
        due_at, output, error, reason, usage, failed_attempts, response_code, worker)"""
#: jobs_failing and job_incidents_cause
WHICH_FAIL: Final = """
    SELECT id::text FROM jobs WHERE failures > 0 AND id = ANY(string_to_array($1, ',')::uuid[])
    UNION SELECT job_id::text FROM job_incidents
    WHERE closed_at IS NULL AND job_id = ANY(string_to_array($1, ',')::uuid[])"""
#: the jobs' primary key
LOCK_FAILURES: Final = """
    SELECT j.id::text, j.failures, j.precheck_revision FROM jobs j WHERE j.id = ANY($1::uuid[])
    ORDER BY j.id FOR NO KEY UPDATE"""
#: the jobs' primary key, once for each
SET_FAILURES: Final = """
    UPDATE jobs j SET failures = f.failures FROM unnest($1::uuid[], $2::integer[]) f (id, failures)
    WHERE j.id = f.id AND j.failures <> f.failures"""
#: the primary keys of jobs and cursors, once for each; runs_tick: its few entries after that instant. Also
#: of jobs that would resume by themselves
DISABLE_JOBS: Final = f"""
    WITH disabled AS (
        UPDATE jobs j SET enabled = false, disabled_reason = d.reason, updated_at = d.at,
            version = j.version + 1, pause_note = NULL, pause_until = NULL,
            decided_ticks = coalesce((
                SELECT string_agg(round(extract(epoch FROM r.scheduled_at) * 1000)::bigint::text, ','
                    ORDER BY r.scheduled_at)
                FROM runs r WHERE r.scheduled_at > d.at AND r.job_id = d.id AND r.trigger = 'schedule'),
                j.decided_ticks)
        FROM unnest($1::uuid[], $2::timestamptz[], $3::text[]) d (id, at, reason)
        WHERE j.id = d.id AND CASE WHEN d.id IS NOT NULL THEN j.deleted_at IS NULL AND (
            j.enabled OR j.pause_until IS NOT NULL OR j.disabled_reason = '{AGENT_INACTIVE}') END
        RETURNING j.id, j.workspace, j.agent, j.name),
    stopped AS (
        UPDATE cursors SET next_at = NULL, wake_at = NULL WHERE job_id = ANY(ARRAY(SELECT id FROM disabled)))
    SELECT id::text, workspace, agent, name FROM disabled"""
#: the primary keys of jobs and cursors, once for each. FOR UPDATE waits for transactions that add runs of the
#: jobs (FOR SHARE, or FOR KEY SHARE for follow-ups, which an edit does not wait for)
DELETE_JOBS: Final = """
    WITH held AS MATERIALIZED (SELECT j.id FROM jobs j WHERE j.id = ANY($1::uuid[]) ORDER BY j.id FOR UPDATE),
    deleted AS (
        UPDATE jobs j SET deleted_at = d.at, updated_at = d.at, version = j.version + 1
        FROM unnest($1::uuid[], $2::timestamptz[]) d (id, at)
        WHERE j.id = d.id AND CASE WHEN d.id IS NOT NULL THEN j.deleted_at IS NULL END
            AND d.id = ANY(ARRAY(SELECT id FROM held))
        RETURNING j.id, j.workspace, j.agent, j.name),
    stopped AS (
        UPDATE cursors SET next_at = NULL, wake_at = NULL WHERE job_id = ANY(ARRAY(SELECT id FROM deleted)))
    SELECT id::text, workspace, agent, name FROM deleted"""
#: the primary keys of runs and jobs, then jobs_after, once for each. No follower can be deleted, or
#: moved, meanwhile
FOLLOWERS: Final = """
    SELECT f.id::text, f.workspace, f.agent, f.name, f.policy, f.work, r.id::text, f.after_on, false,
        f.after_job, r.depth, r.chain_length
    FROM unnest(string_to_array($1, ',')::uuid[]) e (id)
    JOIN runs r ON r.id = e.id JOIN jobs j ON j.id = r.job_id
    CROSS JOIN LATERAL (
        SELECT * FROM jobs f
        WHERE f.workspace = j.workspace AND f.agent = j.agent AND f.after_job = j.name
            AND f.deleted_at IS NULL AND f.enabled OFFSET 0 FOR KEY SHARE) f
    LIMIT $2"""
#: the runs' primary key, jobs_name and live_runs_of_job, once for each
HEARTBEATS: Final = f"""
    SELECT h.id::text, h.workspace, h.agent, h.name, h.policy, h.work, r.id::text, 'finished',
        EXISTS (SELECT FROM live_runs l WHERE l.job_id = h.id AND l.state = 'pending' AND NOT l.tick),
        '', r.depth, r.chain_length
    FROM unnest($1::uuid[]) e (id) JOIN runs r ON r.id = e.id
    JOIN jobs h ON h.workspace = r.workspace AND h.agent = r.agent AND h.name = '{HEARTBEAT}'
        AND h.deleted_at IS NULL
    WHERE h.enabled AND h.labels = '{HEARTBEAT_LABELS}' FOR KEY SHARE OF h"""
#: live_runs_of_job, an entry for each job
WAITING_OF: Final = f"""
    WITH done AS (SELECT unnest(string_to_array($1, ',')::uuid[]) AS job_id)
    SELECT {_WAITING_OF.format("done")}"""

# --- cancelling -----------------------------------------------------------------------------------------


def _cancel_picked(also: str = "") -> str:
    return f"""
    cancelled AS (
        UPDATE runs r SET state = 'cancelled', reason = p.reason, finished_at = p.at, due_at = NULL,
            awaiting_callback = false {also}
        FROM picked p WHERE r.id = p.id RETURNING r.id, p.state AS was, r.job_id, p.reason, r.instance_id),
    gone AS (DELETE FROM live_runs WHERE run_id = ANY(ARRAY(SELECT id FROM cancelled)))
    SELECT id::text, was, job_id::text, reason, instance_id::text FROM cancelled"""


#: the primary keys of runs and live_runs, once for each
CANCEL: Final = f"""
    WITH picked AS (
        SELECT r.id, r.state, c.reason, $3::timestamptz AS at
        FROM unnest($1::uuid[], $2::text[]) c (id, reason) JOIN runs r ON r.id = c.id
        WHERE CASE WHEN c.id IS NOT NULL THEN r.state IN ('pending', 'retrying', 'running') END
        ORDER BY r.id FOR UPDATE OF r),
    {_cancel_picked()}"""
#: live_runs_of_job, once for each job; the primary keys of runs and live_runs for what is found. A tick that
#: is not pending has not started if it fires after $5
WITHDRAW: Final = f"""
    WITH picked AS (
        SELECT r.id, r.state, w.reason, w.at
        FROM unnest($1::uuid[], $2::timestamptz[], $3::text[], $4::boolean[]) w (job_id, at, reason, manual)
        CROSS JOIN LATERAL (
            SELECT l.run_id, l.state FROM live_runs l
            WHERE l.job_id = w.job_id AND (l.tick OR w.manual AND l.state = 'pending') OFFSET 0) l
        JOIN runs r ON r.id = l.run_id AND r.state = l.state
        WHERE r.state = 'pending' OR r.fire_at > $5
        ORDER BY r.id FOR UPDATE OF r),
    {_cancel_picked(", started_at = NULL, worker = NULL")}"""

#: live_runs_of_job, once for each job; the runs' primary key for what is found
AHEAD: Final = """
    SELECT r.id::text, r.job_id::text, r.scheduled_at, r.attempt, r.state = 'retrying' AS was_released
    FROM unnest($1::uuid[]) c (job_id)
    CROSS JOIN LATERAL (
        SELECT l.run_id, l.state FROM live_runs l
        WHERE l.job_id = c.job_id AND l.state IN ('running', 'retrying') AND l.tick OFFSET 0) l
    JOIN runs r ON r.id = l.run_id AND r.state = l.state
    WHERE r.fire_at > $2 AND (r.state = 'running' OR r.started_at IS NULL) ORDER BY r.id FOR UPDATE OF r"""
#: the primary keys of runs and live_runs, once for each
WITHDRAW_AHEAD: Final = """
    WITH withdrawn AS (
        UPDATE runs r SET state = 'cancelled', reason = w.reason, finished_at = $3, started_at = NULL,
            worker = NULL, due_at = NULL
        FROM unnest($1::uuid[], $2::text[]) w (id, reason) WHERE r.id = w.id)
    DELETE FROM live_runs WHERE run_id = ANY($1::uuid[])"""

# --- rescuing and pruning -------------------------------------------------------------------------------

_LOST: Final = """
    FROM live_runs l JOIN runs r ON r.id = l.run_id LEFT JOIN workers w ON w.name = r.worker"""
_IS_LOST: Final = """
    coalesce(l.state, '') = 'running' AND CASE WHEN l.state <> r.state THEN false
        WHEN r.awaiting_callback
            THEN r.due_at <= $2 AND coalesce(r.started_at, r.fire_at) >= $4::timestamptz
        ELSE coalesce(r.beat_at, w.beat_at, r.started_at, r.fire_at) < $1::timestamptz
            AND NOT (r.is_pull AND r.started_at < $4::timestamptz) END"""
#: live_runs_held, all of it: it holds running runs and nothing else; the runs' primary key for signal runs
LOST_INSTANCES: Final = f"""
    SELECT l.instance_id::text {_LOST} WHERE {_IS_LOST} AND l.instance_id IS NOT NULL
    ORDER BY r.started_at, r.id LIMIT $3"""
#: the primary keys of runs and live_runs, once for each
ADD_LOSSES: Final = """
    WITH lost AS (UPDATE runs SET losses = losses + 1 WHERE id = ANY($1::uuid[]))
    UPDATE live_runs SET losses = losses + 1 WHERE run_id = ANY($1::uuid[])"""
#: the primary keys of runs and live_runs, once for each
CLEAR_LOSSES: Final = """
    WITH cleared AS (UPDATE runs SET losses = 0 WHERE id = ANY($1::uuid[]))
    UPDATE live_runs SET losses = 0 WHERE run_id = ANY($1::uuid[])"""
#: live_runs_held, once for each worker
HELD_COUNTS: Final = """
    SELECT worker, count(*) FROM live_runs
    WHERE coalesce(state, '') = 'running' AND worker = ANY($1::text[]) AND NOT is_pull GROUP BY worker"""
_LOST_RUN: Final = select_list(
    fields_before(UnfinishedRun, "companions"),
    "r",
    {
        "id": "r.id::text",
        "job_id": "r.job_id::text",
        "policy": "coalesce(j.policy, c.policy, '{}')",
        "response_code": "CASE WHEN r.awaiting_callback THEN r.response_code END",
        "instance_id": "r.instance_id::text",
        "work": "coalesce(j.work, '{}')",
    },
)
#: live_runs_held, all of it; the runs' primary key for each. Of signal runs those whose instance is locked
LOST: Final = f"""
    SELECT {_LOST_RUN}
    {_LOST} LEFT JOIN jobs j ON j.id = r.job_id
    LEFT JOIN agent_classes c
        ON c.workspace = r.workspace AND c.agent = r.agent AND r.instance_id IS NOT NULL
    WHERE {_IS_LOST} AND (l.instance_id IS NULL OR l.instance_id = ANY($5::uuid[]))
    ORDER BY r.started_at, r.id LIMIT $3 FOR UPDATE OF r SKIP LOCKED"""
#: workers, all of it, and live_runs_held, once for each that is dead
DELETE_DEAD_WORKERS: Final = """
    DELETE FROM workers w WHERE w.beat_at < $1
    AND NOT EXISTS (
        SELECT FROM live_runs l
        WHERE coalesce(l.state, '') = 'running' AND l.worker = w.name AND NOT l.is_pull OFFSET 0)"""
DELETE_WORKER: Final = "DELETE FROM workers WHERE name = $1"
#: live_runs_held; the runs' primary key for what is found. Of signal runs those whose instance is locked
HELD_BY: Final = """
    SELECT r.id::text, r.attempt FROM live_runs l JOIN runs r ON r.id = l.run_id
    WHERE coalesce(l.state, '') = 'running' AND l.worker = $1 AND NOT l.is_pull
        AND (l.instance_id IS NULL OR l.instance_id = ANY($2::uuid[]))
        AND CASE WHEN l.state = r.state THEN l.worker = r.worker END
    ORDER BY r.id FOR UPDATE OF r"""
#: the primary keys of runs and attempts; then `ADD_LIVE_RUNS`
RELEASE: Final = f"""
    WITH held AS (SELECT id, worker FROM runs WHERE id = ANY($1::uuid[])),
    released AS (
        UPDATE runs r SET state = 'retrying', worker = NULL, due_at = greatest($2, r.fire_at),
            error = 'released', reason = nullif(r.reason, '{TAKEN_OVER}'),
            started_at = CASE WHEN r.fire_at <= $2 THEN r.started_at END,
            is_pull = r.claim_timeout_ms IS NOT NULL,
            claim_deadline = coalesce(
                greatest($2, r.fire_at) + r.claim_timeout_ms * interval '1 ms', r.claim_deadline)
        FROM held h WHERE r.id = h.id RETURNING r.id, r.attempt, h.worker, r.started_at)
    INSERT INTO attempts (run_id, attempt, worker, started_at, finished_at, error)
    SELECT id, attempt, worker, started_at, $2, 'released' FROM released"""
#: the runs' primary key: a page of it, in its order, which is that of their creation
OLDEST: Final = """
    SELECT r.id::text, r.job_id::text, r.created_at, r.finished_at,
        coalesce(r.finished_at < $1, false) AND NOT r.dead AS prunable
    FROM runs r WHERE r.id > $2 ORDER BY r.id LIMIT $3"""
#: the primary keys of runs, attempts and deliveries
DELETE_RUNS: Final = """
    WITH gone AS (DELETE FROM runs WHERE id = ANY($1::uuid[]) RETURNING id),
    tried AS (DELETE FROM attempts WHERE run_id = ANY($1::uuid[])),
    sent AS (DELETE FROM deliveries WHERE run_id = ANY($1::uuid[]))
    SELECT count(*) FROM gone"""
#: the primary keys of jobs, revisions and cursors, and runs_of_job once for each
DELETE_JOBS_WITHOUT_RUNS: Final = """
    WITH gone AS (
        DELETE FROM jobs j WHERE j.id = ANY($1::uuid[]) AND j.deleted_at IS NOT NULL
        AND NOT EXISTS (SELECT FROM runs r WHERE r.job_id = j.id) RETURNING j.id),
    revised AS (DELETE FROM job_revisions WHERE job_id = ANY(ARRAY(SELECT id FROM gone)))
    DELETE FROM cursors WHERE job_id = ANY(ARRAY(SELECT id FROM gone))"""

# --- jobs -----------------------------------------------------------------------------------------------

_OF_JOB: Final = (
    "agent", "name", "timing", "policy", "work", "payload", "after_job", "after_on", "description", "labels",
    "secret", "old_secret", "old_secret_until_at", "enabled", "disabled_reason", "anchor_at", "failures",
    "version", "updated_at", "pause_note", "pause_until", "decided_ticks",
)  # fmt: skip
#: the columns of a new job, without those of its cursor
_NEW_JOB_COLUMNS: Final = (
    f"id, workspace, created_at, created_by, instance_id, schedule_origin, schedule_id, {', '.join(_OF_JOB)}"
)


def insert_jobs_from(source: str, schema: str = "") -> str:
    """Return the insert of jobs from a source with the type `job_values`."""
    return f"INSERT INTO {schema}jobs ({_NEW_JOB_COLUMNS}) SELECT {_NEW_JOB_COLUMNS} FROM {source}"


def insert_cursors_from(source: str, schema: str = "") -> str:
    """Return the insert of their cursors from the same source."""
    return f"""
    INSERT INTO {schema}cursors (job_id, next_at, wake_at, run_count)
    SELECT id, next_at, wake_at, run_count FROM {source}"""


_NEW_JOBS: Final = insert_jobs_from("unnest($1::job_values[])")
_NEW_CURSORS: Final = insert_cursors_from("unnest($1::job_values[])")
#: jobs_name rejects a name that is taken
CREATE_JOBS: Final = f"WITH made AS ({_NEW_JOBS}) {_NEW_CURSORS}"


def charge_jobs(first: int, condition: str = "") -> str:
    """Return a statement that charges jobs to quotas, with six parameters from this number on."""
    workspaces, agents, jobs, created, live, day = (f"${number}" for number in range(first, first + 6))
    return f"""
    INSERT INTO quotas AS q (workspace, agent, bucket, used, day)
    SELECT workspace, agent, {created}, jobs, {day}
    FROM unnest({workspaces}::text[], {agents}::text[], {jobs}::bigint[]) c (workspace, agent, jobs)
    {condition}
    ON CONFLICT (workspace, agent, bucket) DO UPDATE
    SET day = CASE q.day WHEN EXCLUDED.day + 1 THEN q.day ELSE EXCLUDED.day END,
        used = EXCLUDED.used + CASE WHEN q.day - EXCLUDED.day IN (0, 1) THEN q.used ELSE 0 END
    RETURNING q.workspace, q.agent, q.most, q.used, (
        SELECT l.most FROM quotas l
        WHERE l.workspace = q.workspace AND l.agent = q.agent AND l.bucket = {live})"""


#: the primary key, twice for each. The clocks of two processes may differ at midnight: the later day
#: counts; a day that is later than tomorrow is that of a wrong clock. The row stays locked, so other
#: transactions count jobs after the commit
CHARGE: Final = charge_jobs(1)
#: the same after jobs_name, which leaves out names that are taken; and the primary key of sessions, once for
#: each. Returns which jobs were inserted, whether earlier jobs of their names have left sessions, and what
#: is charged
CREATE_FEW_JOBS: Final = f"""
    WITH made AS ({_NEW_JOBS} ON CONFLICT DO NOTHING RETURNING id),
    planned AS ({_NEW_CURSORS}),
    charged (workspace, agent, most, used, live) AS (
        {charge_jobs(2, "WHERE (SELECT count(*) FROM made) > 0")})
    SELECT (SELECT string_agg(id::text, ',') FROM made), EXISTS (
            SELECT FROM unnest($1::job_values[]) n JOIN sessions s
            ON s.workspace = n.workspace AND s.agent = n.agent AND s.name = '{JOB_SESSION}' || n.name),
        c.* FROM (SELECT) one LEFT JOIN charged c ON true"""
#: the primary keys of jobs and cursors
CHANGE_JOBS: Final = f"""
    WITH changed AS (
        UPDATE jobs j SET {", ".join(f"{column} = n.{column}" for column in _OF_JOB)}
        FROM unnest($1::job_values[]) n WHERE j.id = n.id)
    UPDATE cursors c SET next_at = n.next_at, wake_at = n.wake_at, run_count = n.run_count
    FROM unnest($1::job_values[]) n WHERE c.job_id = n.id"""
#: the primary keys of jobs and cursors
LOCK_JOB: Final = f"{jobs.JOB_BY_ID.postgresql} FOR UPDATE OF c FOR NO KEY UPDATE OF j"
#: jobs_name: a range of it
JOB_IDS_OF_AGENT: Final = """
    SELECT id::text FROM jobs WHERE workspace = $1 AND agent = $2 AND deleted_at IS NULL ORDER BY id"""
#: the primary keys of jobs and cursors, once for each
JOBS_BY_ID: Final = f"{jobs.JOBS_BY_IDS.postgresql} ORDER BY j.id"
#: the same; their cursors are locked before (`LOCK_CURSORS`)
LOCK_JOBS: Final = f"{JOBS_BY_ID} FOR NO KEY UPDATE OF j"
#: the primary key. Also waits for transactions that add runs of these jobs, and they for this one
LOCK_FOR_MOVE: Final = "SELECT FROM jobs WHERE id = ANY($1::uuid[]) ORDER BY id FOR UPDATE"
