"""Runs that executors claim, in PostgreSQL: claims, leases, and runs that nobody claimed in time.

`claim_timeout_ms` is how long such a run waits for an executor each time it is due. `claim_deadline` is the
end of its current or last wait. Each statement names its index; the rules are those of `statements`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from wakeful.run.consequences import Consequences
from wakeful.run.outcome import Finished
from wakeful.store.changelog import claim_topic
from wakeful.store.columns import fields_before, select_list
from wakeful.store.plans import TURN_MS
from wakeful.store.postgres import statements as sql
from wakeful.store.postgres.leases import start
from wakeful.store.postgres.outcomes import finish
from wakeful.store.postgres.session import PostgresSession
from wakeful.store.postgres.waiting_runs import release_runs
from wakeful.store.rows import RunView, TakenRun, UnfinishedRun
from wakeful.store.sql.runs import runs_by_ids
from wakeful.values.clock import Clock
from wakeful.values.ids import is_id

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db, TransactionEvents

_CLAIMABLE: Final = f"""
    l.workspace = $2 AND l.is_pull AND l.due_at <= $1 AND r.state = l.state AND r.lane = l.lane AND r.is_pull
    AND ($3::text[] IS NULL OR l.lane = ANY($3::text[])) AND (NOT l.serial OR {sql.HAS_THE_TURN})"""
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
    {sql.taken_runs(signals=False)}"""


def _unfinished_run(policy: str) -> str:
    expressions = {
        "id": "r.id::text",
        "job_id": "r.job_id::text",
        "policy": f"coalesce({policy}, '{{}}')",
        "response_code": "NULL::integer",
    }
    return select_list(fields_before(UnfinishedRun, "instance_id"), "r", expressions)


#: the primary keys of runs and jobs, once for each. No index has `beat_at` or
#: `started_at`: the work of a run that waits has not started. A run that is being verified
#: is over for its executor
RENEW: Final = f"""
    UPDATE runs r SET beat_at = $1, waiting = h.waiting,
        started_at = CASE WHEN h.waiting IS NULL THEN r.started_at ELSE $1 END
    FROM unnest($2::uuid[], $3::integer[], $7::text[]) h (id, attempt, waiting)
    WHERE r.id = h.id AND CASE WHEN r.attempt = h.attempt THEN
        r.state = 'running' AND r.is_pull AND NOT r.awaiting_callback AND r.workspace = $4
        AND ($5::text IS NULL OR r.agent = $5) AND ($6::text IS NULL OR r.worker = $6) END
    RETURNING {_unfinished_run("(SELECT j.policy FROM jobs j WHERE j.id = r.job_id)")}"""
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
    SELECT {_unfinished_run("j.policy")}
    FROM live_runs l JOIN runs r ON r.id = l.run_id LEFT JOIN jobs j ON j.id = r.job_id
    WHERE l.claim_deadline <= $1 AND l.due_at IS NOT NULL AND r.state = l.state AND r.is_pull
        AND NOT ({_BUSY})
    ORDER BY l.claim_deadline, l.run_id LIMIT $2 FOR UPDATE OF r SKIP LOCKED"""
#: the primary key. The fence of `finish` requires a running run; this one has no worker
MARK_EXPIRED: Final = "UPDATE runs SET state = 'running', due_at = NULL WHERE id = ANY($1::uuid[])"
#: the primary key
CLEAR_START: Final = "UPDATE runs SET started_at = NULL WHERE id = ANY($1::uuid[])"


async def claim(
    db: Db,
    events: TransactionEvents,
    now_ms: int,
    worker: str,
    workspace: str,
    agents: Sequence[str] | None,
    lanes: Sequence[str] | None,
    limit: int,
    claim_id: str | None,
) -> list[tuple[TakenRun, RunView]]:
    if agents is None:
        picked = await db.fetch(CLAIMABLE, now_ms, workspace, _lanes(lanes), limit)
    else:
        names = sorted(set(agents))
        picked = await db.fetch(CLAIMABLE_OF_AGENTS, now_ms, workspace, _lanes(lanes), limit, names)
    taken = await start(db, events, now_ms, worker, picked, now_ms, claim_id)
    if not taken:
        return []
    views = {view.id: view for view in await runs_by_ids(PostgresSession(db), [run.id for run in taken])}
    return [(run, views[run.id]) for run in taken]


async def taken_runs(db: Db, ids: Sequence[str]) -> list[tuple[TakenRun, RunView]]:
    """Return runs that are running, with what a launch needs of each."""
    views = {view.id: view for view in await runs_by_ids(PostgresSession(db), ids)}
    taken = [TakenRun(*row) for row in await db.fetch(TAKEN_RUNS, list(ids))]
    return [(run, views[run.id]) for run in taken]


async def renew(
    db: Db,
    now_ms: int,
    workspace: str,
    held: Sequence[tuple[str, int]],
    agent: str | None,
    worker: str | None,
    waiting: Mapping[str, str],
) -> list[UnfinishedRun]:
    known = sorted((run_id, attempt) for run_id, attempt in held if is_id(run_id))
    if not known:
        return []
    ids, attempts = zip(*known, strict=True)  # lock runs in the order of their ids
    notes = [waiting.get(run_id) for run_id in ids]
    rows = await db.fetch(RENEW, now_ms, list(ids), list(attempts), workspace, agent, worker, notes)
    return [UnfinishedRun(*row) for row in rows]


async def release_claims(
    db: Db,
    events: TransactionEvents,
    now_ms: int,
    workspace: str,
    worker: str,
    runs: Sequence[tuple[str, int]],
    claim_id: str | None,
    agent: str | None,
) -> list[str]:
    whose = worker, workspace, agent
    held: list[str] = []
    named = sorted((run_id, attempt) for run_id, attempt in runs if is_id(run_id))
    if named:
        ids, attempts = map(list, zip(*named, strict=True))
        held += [run_id for (run_id,) in await db.fetch(RETURNABLE, *whose, ids, attempts)]
    if claim_id is not None:
        found = await db.fetch(RETURNABLE_OF_CLAIM, *whose, claim_id)
        held += [run_id for (run_id,) in found if run_id not in held]
        events.publish(claim_topic(workspace, worker, claim_id))
    await release_runs(db, events, now_ms, held)
    return held


def _lanes(lanes: Sequence[str] | None) -> list[str] | None:
    return None if lanes is None else list(lanes)


async def expire(
    db: Db,
    events: TransactionEvents,
    clock: Clock,
    now_ms: int,
    limit: int,
    judge: Callable[[UnfinishedRun], Finished],
    consequences: Consequences,
) -> list[str]:
    await db.execute(RESTART_WAIT, now_ms, now_ms + TURN_MS, limit)
    expired = [UnfinishedRun(*row) for row in await db.fetch(EXPIRED, now_ms, limit)]
    if not expired:
        return []
    await db.execute(MARK_EXPIRED, [run.id for run in expired])
    ended = await finish(db, events, clock, now_ms, None, [judge(run) for run in expired], consequences)
    await db.execute(CLEAR_START, list(ended))
    return [run.id for run in expired if run.id in ended]
