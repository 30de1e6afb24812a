"""Runs that executors claim, in PostgreSQL: claims, leases, and runs that nobody claimed in time.

`claim_timeout_ms` is how long such a run waits for an executor each time it is due. `claim_deadline` is the
end of its current or last wait. Each statement names its index; the rules are those of `statements`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Final

from asyncpg import Record

from wakeful.run.consequences import Consequences
from wakeful.run.outcome import Finished
from wakeful.store.changelog import TransactionEvents, claim_topic
from wakeful.store.claim_requests import ClaimedRun, ClaimRequest, assign_runs, plan_ranges
from wakeful.store.columns import fields_before, select_list
from wakeful.store.plans import TURN_MS
from wakeful.store.postgres import statements as sql
from wakeful.store.postgres.changelog import OneStatement
from wakeful.store.postgres.leases import lock_turns
from wakeful.store.postgres.outcomes import finish
from wakeful.store.postgres.session import Db, PostgresSession
from wakeful.store.postgres.waiting_runs import release_runs
from wakeful.store.rows import Renewal, RunView, TakenRun, UnfinishedRun
from wakeful.store.sql.runs import runs_by_ids, view_columns
from wakeful.values.clock import Clock
from wakeful.values.ids import is_id

#: how many columns of a claimed run are those of `TakenRun`; the others are of `RunView`
_TAKEN: Final = len(sql.TAKEN_FIELDS)

_CLAIMABLE: Final = f"""
    l.workspace = $2 AND l.is_pull AND l.due_at <= $1 AND r.state = l.state AND r.lane = l.lane AND r.is_pull
    AND (s.lanes IS NULL OR strpos(s.lanes, chr(30) || l.lane || chr(30)) > 0)
    AND (NOT l.serial OR {sql.HAS_THE_TURN})"""
_PICKED: Final = """
    SELECT r.id::text, l.job_id::text, l.serial, r.agent, r.lane, l.due_at
    FROM live_runs l JOIN runs r ON r.id = l.run_id"""


def _pick_for(agents: bool, more: str = "") -> str:
    of_agent, agent = ("l.agent = s.agent AND", ", agent") if agents else ("", "")
    return f"""
    SELECT p.* FROM unnest($3::text[], $4::integer[]{", $5::text[]" if agents else ""}) s (lanes, most{agent})
    CROSS JOIN LATERAL ({_PICKED} WHERE {of_agent} {_CLAIMABLE} {more}
        ORDER BY l.due_at, l.run_id LIMIT s.most FOR UPDATE OF r SKIP LOCKED) p"""


#: live_runs_claimable: a range of it, in its order, once for each filter of lanes; the runs' primary key for
#: the rows found
CLAIMABLE: Final = _pick_for(agents=False)
#: live_runs_claimable_of_agent: a range of it for each agent, in its order; then as above. Locks on runs
#: that no claim gets end with the transaction
CLAIMABLE_OF_AGENTS: Final = _pick_for(agents=True)
_START: Final = f"""
        UPDATE runs r SET state = 'running', worker = {{worker}}, due_at = NULL, beat_at = $1,
            claim_id = {{claim_id}}, waiting = NULL, started_at = $1, attempt = {sql.NEXT_ATTEMPT}"""
_MARKED: Final = """
    marked AS (
        UPDATE live_runs l SET state = 'running', worker = s.worker, due_at = NULL
        FROM started s WHERE l.run_id = s.id)"""
_GIVEN: Final = f"""{select_list(sql.TAKEN_FIELDS, "s", sql.OF_RUN)}, {view_columns("s")},
        EXISTS (SELECT FROM workspaces w WHERE w.name = s.workspace AND w.budget IS NOT NULL) OR EXISTS (
            SELECT FROM agents a
            WHERE a.workspace = s.workspace AND a.name = s.agent AND a.budget IS NOT NULL) AS has_budget"""
#: as `statements.START`, each for its executor and claim; and the primary keys of deliveries, workspaces and
#: agents, once for each
START_CLAIMED: Final = f"""
    WITH started AS ({_START.format(worker="c.worker", claim_id="c.claim_id")}
        FROM unnest($2::uuid[], $4::text[], $5::text[]) c (id, worker, claim_id), live_runs l
        WHERE r.id = ANY($2::uuid[]) AND l.run_id = r.id AND c.id = r.id AND l.due_at <= $1
            AND (NOT l.serial OR ({sql.STILL_HAS_THE_TURN}))
        RETURNING r.*, l.due_at AS was_due_at),{_MARKED}
    SELECT {_GIVEN}
    FROM started s LEFT JOIN jobs j ON j.id = s.job_id ORDER BY s.was_due_at, s.id"""


def _claim_at_once(agents: bool) -> str:
    # The time of the run itself is checked after it is locked: `live_runs` may be older.
    worker, claim_id = ("$6", "$7") if agents else ("$5", "$6")
    return f"""
    WITH picked AS MATERIALIZED ({_pick_for(agents, "AND r.due_at <= $1")}),
    checked AS MATERIALIZED (SELECT NOT EXISTS (SELECT FROM picked WHERE serial) AS ok),
    started AS ({_START.format(worker=worker, claim_id=claim_id)}
        FROM live_runs l
        WHERE r.id = ANY(ARRAY(SELECT id::uuid FROM picked WHERE (SELECT ok FROM checked)))
            AND l.run_id = r.id AND r.due_at <= $1
        RETURNING r.*, l.due_at AS was_due_at),{_MARKED},
    noted AS (
        INSERT INTO changes (at, kind, count, items)
        SELECT $1, 'run.started', count(*), string_agg(id::text, chr(10) ORDER BY was_due_at, id)
        FROM started HAVING count(*) > 0)
    SELECT {_GIVEN}, c.ok
    FROM checked c LEFT JOIN started s ON true LEFT JOIN jobs j ON j.id = s.job_id
    ORDER BY s.was_due_at, s.id"""


#: as `CLAIMABLE` and `START_CLAIMED` for one request, as a transaction of its own, unless a run must wait for
#: its turn
CLAIM_AT_ONCE: Final = _claim_at_once(agents=False)
CLAIM_AT_ONCE_OF_AGENTS: Final = _claim_at_once(agents=True)
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
    FROM unnest($3::uuid[], $4::integer[], $5::text[], $6::text[], $7::text[])
        h (id, attempt, agent, worker, waiting)
    WHERE r.id = h.id AND CASE WHEN r.attempt = h.attempt THEN
        r.state = 'running' AND r.is_pull AND NOT r.awaiting_callback AND r.workspace = $2
        AND (h.agent IS NULL OR r.agent = h.agent) AND (h.worker IS NULL OR r.worker = h.worker) END
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
    db: Db, events: TransactionEvents, now_ms: int, workspace: str, requests: Sequence[ClaimRequest]
) -> list[list[ClaimedRun]]:
    picked = await _pick(db, now_ms, workspace, requests)
    given = assign_runs(requests, picked, itemgetter("agent", "lane"))
    holders = {
        row["id"]: (number, request.worker, request.claim_id)
        for number, (request, rows) in enumerate(zip(requests, given, strict=True))
        for row in rows
    }
    claimed: list[list[ClaimedRun]] = [[] for _ in requests]
    if not holders:
        return claimed
    locked = await lock_turns(db, [row for rows in given for row in rows])
    _, workers, claim_ids = map(list, zip(*holders.values(), strict=True))
    started = await db.fetch(START_CLAIMED, now_ms, list(holders), locked, workers, claim_ids)
    for row in started:
        run, view = TakenRun(*row[:_TAKEN]), RunView(*row[_TAKEN:-1])
        claimed[holders[run.id][0]].append(ClaimedRun(run, view, row["has_budget"]))
    events.record_started([each.run.id for runs in claimed for each in runs])
    return claimed


async def claim_at_once(
    db: Db, now_ms: int, workspace: str, request: ClaimRequest
) -> OneStatement[list[list[ClaimedRun]]] | None:
    """Do `claim` with one statement, for one request and one agent or all. None: nothing is claimed.

    That is so if one of the runs is serial: then it must be checked whose turn it is.
    """
    scope = request.scope
    agents = [] if scope.agent is None else [[scope.agent]]
    rows = await db.fetch(
        CLAIM_AT_ONCE_OF_AGENTS if agents else CLAIM_AT_ONCE,
        now_ms, workspace, [scope.lanes_text], [request.limit], *agents, request.worker, request.claim_id,
    )  # fmt: skip
    if not rows[0]["ok"]:
        return None
    given = [
        ClaimedRun(TakenRun(*row[:_TAKEN]), RunView(*row[_TAKEN:-2]), row["has_budget"])
        for row in rows
        if row[0] is not None
    ]
    return OneStatement([given], (), {})


async def _pick(db: Db, now_ms: int, workspace: str, requests: Sequence[ClaimRequest]) -> Sequence[Record]:
    """Lock runs that these requests could get, and return them, longest due first, each once."""
    ranges = plan_ranges(requests)
    of_all = [(part.lanes_text, most) for part, most in ranges if part.agents is None]
    of_agents = [(part.lanes_text, most, part.agent) for part, most in ranges if part.agents is not None]
    rows: list[Record] = []
    for statement, given in ((CLAIMABLE, of_all), (CLAIMABLE_OF_AGENTS, of_agents)):
        if given:
            rows += await db.fetch(statement, now_ms, workspace, *map(list, zip(*given, strict=True)))
    if len(ranges) == 1:
        return rows
    return sorted({row["id"]: row for row in rows}.values(), key=itemgetter("due_at", "id"))


async def taken_runs(db: Db, ids: Sequence[str]) -> list[tuple[TakenRun, RunView]]:
    """Return runs that are running, with what a launch needs of each."""
    views = {view.id: view for view in await runs_by_ids(PostgresSession(db), ids)}
    taken = [TakenRun(*row) for row in await db.fetch(TAKEN_RUNS, list(ids))]
    return [(run, views[run.id]) for run in taken]


async def renew(
    db: Db,
    now_ms: int,
    workspace: str,
    renewals: Sequence[Renewal],
) -> list[UnfinishedRun]:
    known = [each for each in renewals if is_id(each.run_id)]
    if not known:
        return []
    in_order = sorted(known, key=attrgetter("run_id"))  # every transaction locks runs in this order
    rows = await db.fetch(RENEW, now_ms, workspace, *map(list, zip(*in_order, strict=True)))
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
