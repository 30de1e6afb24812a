"""Runs and the workers that hold them, in PostgreSQL: take, prefetch, beat, rescue, release, prune."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Final

from asyncpg import Record

from wakeful.job.start_rules import Capabilities
from wakeful.run.consequences import Consequences
from wakeful.run.outcome import Finished
from wakeful.store.changelog import TransactionEvents
from wakeful.store.lane_shares import (
    MOST_AGENTS,
    MOST_OWNERS,
    NOT_SHARED,
    Contenders,
    DueOwner,
    LaneOccupancy,
    Owner,
    choose_runs,
    divide,
    may_prefetch,
    totals,
)
from wakeful.store.mailbox_rules import slots_of_instances
from wakeful.store.plans import NO_SLOTS, TakeNext
from wakeful.store.postgres import statements as sql
from wakeful.store.postgres.mailbox import expose, lock, lock_held_by
from wakeful.store.postgres.mailbox_statements import START_NEXT
from wakeful.store.postgres.outcomes import finish
from wakeful.store.postgres.session import Db
from wakeful.store.postgres.waiting_runs import release_runs
from wakeful.store.rows import TakenRun, UnfinishedRun
from wakeful.values.clock import Clock

FIRST_ID: Final = "00000000-0000-0000-0000-000000000000"
_SMALLEST_PAGE: Final = 1000
#: by due time, then by age
_longest_due: Final = itemgetter("due_at", "id")
_HELD: Final = "r.worker = $1 AND r.state = 'running' AND r.started_at IS NULL"
#: the primary keys of runs and attempts; then `ADD_LIVE_RUNS`
GIVE_BACK: Final = f"""
    WITH held AS (
        SELECT r.id FROM unnest($2::uuid[], $3::integer[]) g (id, attempt)
        CROSS JOIN LATERAL (SELECT r.* FROM runs r WHERE r.id = g.id OFFSET 0) r
        WHERE r.attempt = g.attempt AND {_HELD}),
    released AS (
        UPDATE runs r SET state = 'retrying', worker = NULL, due_at = r.fire_at, error = 'released',
            is_pull = r.claim_timeout_ms IS NOT NULL,
            claim_deadline = greatest(r.fire_at, $4::timestamptz) + r.claim_timeout_ms * interval '1 ms'
        WHERE r.id = ANY(ARRAY(SELECT id FROM held ORDER BY id)) AND CASE WHEN {_HELD} THEN true END
        RETURNING r.id, r.attempt),
    noted AS (
        INSERT INTO attempts (run_id, attempt, worker, finished_at, error)
        SELECT id, attempt, $1, $4, 'released' FROM released)
    SELECT id::text FROM released"""


async def take(
    db: Db,
    events: TransactionEvents,
    now_ms: int,
    worker: str,
    free: Mapping[str, int],
    capabilities: Capabilities,
    prefetch: Mapping[str, int] = NO_SLOTS,
    usage: Mapping[str, LaneOccupancy] = NOT_SHARED,
) -> list[TakenRun]:
    lanes = totals(free, prefetch)
    rows, weights = await choose_runs(
        now_ms,
        capabilities,
        lanes,
        usage,
        partial(_contenders, db, now_ms, capabilities),
        partial(_pick, db, now_ms, lanes, capabilities, prefetch),
        partial(_pick_of_owners, db, now_ms, capabilities),
        itemgetter("id"),
    )
    picked, later = list(chain.from_iterable(rows.values())), list[str]()
    if prefetch:
        picked, later = _divide(rows, free)
    signals = any(row["is_signal"] for row in picked)
    taken = await start(db, events, now_ms, worker, picked, signals=signals, later=later)
    if not weights:
        return taken
    return [run._replace(weight=weights.get(run.workspace, 1)) for run in taken]


async def _contenders(
    db: Db, now_ms: int, capabilities: Capabilities, lanes: Collection[str]
) -> dict[str, Contenders]:
    """Return who has due runs in these lanes."""
    if not lanes:
        return {}
    names, versions = list(capabilities), list(capabilities.values())
    found = await db.fetch(sql.DUE_OWNERS, now_ms, list(lanes), names, versions, MOST_OWNERS, MOST_AGENTS)
    return Contenders.by_lane(DueOwner(*row) for row in found)


async def _pick(
    db: Db,
    now_ms: int,
    counts: Mapping[str, int],
    capabilities: Capabilities,
    prefetch: Mapping[str, int],
    lanes: Collection[str],
) -> dict[str, list[Record]]:
    """Lock the runs of these lanes that are due longest, by lane."""
    if not lanes:
        return {}
    statement = sql.PICK_MORE if prefetch else sql.PICK
    names, versions = list(capabilities), list(capabilities.values())
    picked = await db.fetch(statement, now_ms, list(lanes), [counts[each] for each in lanes], names, versions)
    if prefetch:
        picked = sorted(picked, key=_longest_due)
    rows: dict[str, list[Record]] = {}
    for row in picked:
        rows.setdefault(row["lane"], []).append(row)
    return rows


async def _pick_of_owners(
    db: Db,
    now_ms: int,
    capabilities: Capabilities,
    lane: str,
    contenders: Contenders,
    limits: Mapping[Owner, int],
) -> dict[Owner, list[Record]]:
    """Lock the runs of each owner that are due longest, up to its limit."""
    wanted = [
        (name, capabilities[name], *owner, limit)
        for owner, limit in limits.items()
        for name in contenders.requires[owner]
    ]
    columns = map(list, zip(*wanted, strict=True))
    picked = await db.fetch(sql.PICK_OF_OWNERS, now_ms, lane, *columns)
    rows: dict[Owner, list[Record]] = {}
    for row in sorted(picked, key=_longest_due):
        owner = row["workspace"], row["agent"]
        runs = rows.setdefault(owner, [])
        if len(runs) < limits[owner]:
            runs.append(row)
    return rows


async def take_suspects(
    db: Db,
    events: TransactionEvents,
    now_ms: int,
    worker: str,
    lanes: Sequence[str],
    capabilities: Capabilities,
    limit: int,
) -> list[TakenRun]:
    names, versions = list(capabilities), list(capabilities.values())
    picked = await db.fetch(sql.PICK_SUSPECTS, now_ms, list(lanes), names, versions, limit)
    signals = any(row["is_signal"] for row in picked)
    return await start(db, events, now_ms, worker, picked, signals=signals)


def _divide(lanes: Mapping[str, Sequence[Record]], free: Mapping[str, int]) -> tuple[list[Record], list[str]]:
    """Return the runs to claim, and the ids of those among them that start later."""
    chosen: list[Record] = []
    later: list[str] = []
    for lane, rows in lanes.items():
        now, then = divide(rows, free.get(lane, 0), _may_prefetch)
        chosen += [*now, *then]
        later += [row["id"] for row in then]
    return chosen, later


def _may_prefetch(row: Record) -> bool:
    return may_prefetch(row["attempt"], row["policy"], row["reason"], row["is_signal"])


async def start(
    db: Db,
    events: TransactionEvents,
    now_ms: int,
    worker: str,
    picked: Sequence[Record],
    *,
    signals: bool = False,
    later: Sequence[str] = (),
) -> list[TakenRun]:
    """Mark these runs (`id`, `job_id`, `serial`) as running under this worker, if they still have their turn.

    `signals`: some are signal runs. Those named in `later` are prefetched.
    """
    if not picked:
        return []
    locked = await lock_turns(db, picked)
    statement = sql.START_SIGNALS if signals else sql.START
    ids = [row["id"] for row in picked]
    rows = await db.fetch(statement, now_ms, ids, locked, worker, later)
    taken = [TakenRun(*row) for row in rows]
    events.record_started([run.id for run in taken])
    if not later:
        return taken
    prefetched = frozenset(later)
    return [run._replace(slot="later") if run.id in prefetched else run for run in taken]


async def lock_turns(db: Db, picked: Sequence[Record]) -> list[str]:
    """Lock the cursors of the jobs of those of these runs that are serial. Return the jobs that were free."""
    turns = {row["job_id"] for row in picked if row["serial"] and row["job_id"] is not None}
    return [job_id for (job_id,) in await db.fetch(sql.LOCK_TURNS, list(turns))] if turns else []


async def finish_and_take(
    db: Db,
    events: TransactionEvents,
    clock: Clock,
    now_ms: int,
    worker: str,
    finished: Sequence[Finished],
    consequences: Consequences,
    take_next: TakeNext,
) -> tuple[set[str], list[TakenRun]]:
    idle: set[str] = set()
    written = await finish(db, events, clock, now_ms, worker, finished, consequences, idle)
    taken: list[TakenRun] = []
    lanes = slots_of_instances(finished, written, take_next)
    if lanes:
        names, versions = list(take_next.capabilities), list(take_next.capabilities.values())
        started_ms = max(now_ms, clock.now_ms())
        rows = await db.fetch(
            START_NEXT, list(lanes), list(lanes.values()), names, versions, started_ms, worker
        )
        taken = [TakenRun(*row)._replace(slot="previous") for row in rows]
        events.record_started([run.id for run in taken])
        idle.difference_update(str(run.instance_id) for run in taken)
    await expose(db, events, now_ms, idle)
    if take_next.free or take_next.prefetch:
        at_ms = max(now_ms, clock.now_ms())
        capabilities, usage = take_next.capabilities, take_next.usage
        taken += await take(
            db, events, at_ms, worker, take_next.free, capabilities, take_next.prefetch, usage
        )
    return written, taken


async def rescue(
    db: Db,
    events: TransactionEvents,
    clock: Clock,
    now_ms: int,
    dead_before_ms: int,
    limit: int,
    judge: Callable[[UnfinishedRun], Finished],
    consequences: Consequences,
    spared_before_ms: int,
) -> list[str]:
    # Instances are locked before their runs. Other locks are not held yet.
    since = dead_before_ms, now_ms, limit, spared_before_ms
    found = {instance_id for (instance_id,) in await db.fetch(sql.LOST_INSTANCES, *since)}
    if found:
        await lock(db, found)
    rows = await db.fetch(sql.LOST, *since, list(found))
    lost = [UnfinishedRun(*row) for row in rows]
    workers = list({run.worker for run in lost if run.worker is not None and not run.is_pull})
    # Not the number of these runs: another rescuer may have locked some of them.
    counts = await db.fetch(sql.HELD_COUNTS, workers) if workers else []
    held: dict[str | None, int] = dict(map(tuple, counts))
    judged: dict[str | None, list[Finished]] = {}
    for run in lost:
        outcome = judge(run._replace(companions=max(0, held.get(run.worker, 0) - 1)))
        judged.setdefault(run.worker, []).append(outcome)
    rescued: set[str] = set()
    for worker, outcomes in judged.items():
        rescued |= await finish(db, events, clock, now_ms, worker, outcomes, consequences)
        suspects = [each.run_id for each in outcomes if each.suspect and each.run_id in rescued]
        if suspects:
            await db.execute(sql.ADD_LOSSES, suspects)
    await db.execute(sql.DELETE_DEAD_WORKERS, dead_before_ms)
    return [run.id for run in lost if run.id in rescued]


async def release(
    db: Db, events: TransactionEvents, worker: str, now_ms: int, keep: Sequence[tuple[str, int]] | None
) -> int:
    kept = set(keep or ())
    instances = await lock_held_by(db, worker)
    found = await db.fetch(sql.HELD_BY, worker, instances)
    held = [run_id for run_id, attempt in found if (run_id, attempt) not in kept]
    await release_runs(db, events, now_ms, held)
    await expose(db, events, now_ms, instances)
    if keep is None:
        await db.execute(sql.DELETE_WORKER, worker)
    return len(held)


async def prune(
    db: Db, events: TransactionEvents, before_ms: int, limit: int, after_id: str
) -> tuple[int, str]:
    """Delete runs that finished before `before_ms`, and deleted jobs without runs.

    Reads pages of runs in the order of creation, after `after_id`, up to the first that was created too late.
    Returns the number of deleted runs, and the id after which the next pass continues.
    """
    page, after_id = max(limit, _SMALLEST_PAGE), after_id or FIRST_ID
    old: list[Record] = []
    while True:
        rows = await db.fetch(sql.OLDEST, before_ms, after_id, page)
        old += [row for row in rows if row["prunable"]]
        if len(old) >= limit:
            break
        if len(rows) < page or rows[-1]["created_at"] >= before_ms:
            after_id = FIRST_ID
            break
        after_id = rows[-1]["id"]
    if not old:
        return 0, after_id
    old = sorted(old, key=itemgetter("finished_at"))[:limit]
    pruned = int(await db.fetchval(sql.DELETE_RUNS, [row["id"] for row in old]))
    jobs = {row["job_id"] for row in old if row["job_id"] is not None}
    if jobs:
        await db.execute(sql.DELETE_JOBS_WITHOUT_RUNS, list(jobs))
    return pruned, after_id


async def give_back(
    db: Db, events: TransactionEvents, worker: str, now_ms: int, runs: Sequence[tuple[str, int]]
) -> int:
    if not runs:
        return 0
    ids, attempts = map(list, zip(*runs, strict=True))
    released = [run_id for (run_id,) in await db.fetch(GIVE_BACK, worker, ids, attempts, now_ms)]
    if released:
        await db.execute(sql.ADD_LIVE_RUNS, released)
        events.record_retried(released)
        events.publish("runs")
    return len(released)
