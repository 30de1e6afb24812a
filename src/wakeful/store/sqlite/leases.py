"""Runs and the workers that hold them, in SQLite: take, prefetch, beat, rescue, release, prune."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from operator import attrgetter
from typing import Any, Final, NamedTuple

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
from wakeful.store.rows import AttemptView, ClaimedSlot, TakenRun, UnfinishedRun
from wakeful.store.sqlite import statements as sql
from wakeful.store.sqlite.mailbox import expose
from wakeful.store.sqlite.outcomes import finish, settle
from wakeful.store.sqlite.waiting_runs import HeldRun, delete_without_runs, release_runs
from wakeful.values.clock import Clock

#: the primary key
GIVE_BACK: Final = """
    UPDATE runs SET state = 'retrying', worker = NULL, due_at = fire_at, error = 'released',
        is_pull = claim_timeout_ms IS NOT NULL, claim_deadline = claim_timeout_ms + max(fire_at, ?4)
    WHERE id = ?1 AND attempt = ?2 AND worker = ?3 AND state = 'running' AND started_at IS NULL"""


class DueRun(NamedTuple):
    """A run that may be taken: the row of a statement that selects `DUE_RUN`."""

    run: TakenRun
    due_ms: int
    rowid: int


#: by due time, then by age
longest_due: Final = attrgetter("due_ms", "rowid")


def read_due_runs(rows: Iterable[Iterable[Any]]) -> list[DueRun]:
    """Return the rows of a statement that selects `DUE_RUN`."""
    return [DueRun(TakenRun(*columns), due_ms, rowid) for *columns, due_ms, rowid in rows]


async def take(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    worker: str,
    free: Mapping[str, int],
    capabilities: Capabilities,
    prefetch: Mapping[str, int] = NO_SLOTS,
    usage: Mapping[str, LaneOccupancy] = NOT_SHARED,
) -> list[TakenRun]:
    lanes = totals(free, prefetch)
    found, weights = await choose_runs(
        now_ms,
        capabilities,
        lanes,
        usage,
        partial(_contenders, db, now_ms, capabilities),
        partial(_longest_due_runs, db, now_ms, lanes, capabilities),
        partial(_runs_of_owners, db, now_ms, capabilities),
        attrgetter("rowid"),
    )
    started: list[DueRun] = []
    later: list[DueRun] = []
    for lane, rows in found.items():
        now, then = divide(rows, free.get(lane, 0), _may_prefetch)
        started += now
        later += then
    taken = _mark_taken(db, events, now_ms, worker, started, later)
    if not weights:
        return taken
    return [run._replace(weight=weights.get(run.workspace, 1)) for run in taken]


async def _longest_due_runs(
    db: sqlite3.Connection,
    now_ms: int,
    counts: Mapping[str, int],
    capabilities: Capabilities,
    lanes: Collection[str],
) -> dict[str, list[DueRun]]:
    """Return the runs of each of these lanes that are due longest."""
    found: dict[str, list[DueRun]] = {lane: [] for lane in lanes}
    given = now_ms, json.dumps(list(lanes)), json.dumps(dict(capabilities))
    for lane, requires, version, first_ms in db.execute(sql.FIRST_DUE, given).fetchall() if lanes else ():
        rows, count, until_ms = found[lane], counts[lane], now_ms
        if len(rows) == count:  # only runs that are due longer than the last of these can replace it
            until_ms = rows[-1].due_ms - 1
        if first_ms <= until_ms:
            rows += read_due_runs(db.execute(sql.TAKE, (lane, requires, version, until_ms, count)))
            rows.sort(key=longest_due)
            del rows[count:]
    return found


async def _contenders(
    db: sqlite3.Connection, now_ms: int, capabilities: Capabilities, lanes: Collection[str]
) -> dict[str, Contenders]:
    """Return who has due runs in these lanes."""
    found: list[DueOwner] = []
    for lane, (requires, version) in product(lanes, capabilities.items()):
        first = db.execute(sql.FIRST_OWNER, (lane, requires, now_ms, version)).fetchone()
        if first is not None:
            found += _due_owners(db, now_ms, lane, requires, first)
    if not found:
        return {}
    names = json.dumps(list({each.workspace for each in found}))
    weights = dict(db.execute(sql.LANE_WEIGHTS, (names,)))
    if weights:
        found = [each._replace(weight=weights.get(each.workspace, 1)) for each in found]
    return Contenders.by_lane(found)


def _due_owners(
    db: sqlite3.Connection, now_ms: int, lane: str, requires: str, first: Owner
) -> Iterator[DueOwner]:
    """Return the owners of due runs, from the first on, and then those before it."""
    (last_workspace, last_agent), agents = first, 0
    statement, wrapped = sql.THIS_OR_NEXT_OWNER, False
    for _ in range(MOST_OWNERS):
        row = db.execute(statement, (lane, requires, last_workspace, last_agent)).fetchone()
        if row is None and not wrapped:
            wrapped, statement = True, sql.THIS_OR_NEXT_OWNER
            row = db.execute(statement, (lane, requires, "", "")).fetchone()
        if row is None:
            return
        workspace, agent, due_ms = row
        if wrapped and (workspace, agent) >= first:
            return
        if due_ms <= now_ms:
            yield DueOwner(lane, requires, workspace, agent, due_ms)
        agents = agents + 1 if workspace == last_workspace else 1
        last_workspace = workspace
        last_agent = agent if agents < MOST_AGENTS else "~"  # which comes after all characters of a name
        statement = sql.NEXT_OWNER


async def _runs_of_owners(
    db: sqlite3.Connection,
    now_ms: int,
    capabilities: Capabilities,
    lane: str,
    contenders: Contenders,
    limits: Mapping[Owner, int],
) -> dict[Owner, list[DueRun]]:
    """Return the runs of each owner that are due longest, up to its limit."""
    found: dict[Owner, list[DueRun]] = {owner: [] for owner in limits}
    single = [owner for owner, limit in limits.items() if limit == 1]
    wanted = [(name, capabilities[name], *owner) for owner in single for name in contenders.requires[owner]]
    if wanted:
        given = lane, json.dumps(wanted), now_ms
        for due in read_due_runs(db.execute(sql.TAKE_FIRST_OF_OWNERS, given)):
            first = found[due.run.workspace, due.run.agent]
            first[:] = sorted([*first, due], key=longest_due)[:1]
    for owner, limit in limits.items():
        if limit == 1:
            continue
        rows: list[DueRun] = []
        for requires in contenders.requires[owner]:
            of_owner = lane, requires, capabilities[requires], *owner, now_ms, limit
            more = read_due_runs(db.execute(sql.TAKE_OF_OWNER, of_owner))
            rows = sorted(rows + more, key=longest_due)[:limit] if rows else more
        found[owner] = rows
    return found


async def take_suspects(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    worker: str,
    lanes: Sequence[str],
    capabilities: Capabilities,
    limit: int,
) -> list[TakenRun]:
    given = now_ms, json.dumps(list(lanes)), json.dumps(dict(capabilities)), limit
    due = read_due_runs(db.execute(sql.TAKE_SUSPECTS, given))
    return _mark_taken(db, events, now_ms, worker, due, ())


async def finish_and_take(
    db: sqlite3.Connection,
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
        started_ms = max(now_ms, clock.now_ms())
        given = json.dumps(lanes), json.dumps(dict(take_next.capabilities)), started_ms
        due = read_due_runs(db.execute(sql.TAKE_NEXT, given))
        rows = [(worker, started_ms, each.run.state_version, each.rowid) for each in due]
        db.executemany(sql.MARK_NEXT_TAKEN, rows)
        taken = _note_started(events, due, "previous")
        idle.difference_update(str(run.instance_id) for run in taken)
    expose(db, events, now_ms, idle)
    if take_next.free or take_next.prefetch:
        at_ms = max(now_ms, clock.now_ms())
        capabilities, usage = take_next.capabilities, take_next.usage
        taken += await take(
            db, events, at_ms, worker, take_next.free, capabilities, take_next.prefetch, usage
        )
    return written, taken


def _mark_taken(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    worker: str,
    started: Iterable[DueRun],
    later: Iterable[DueRun],
) -> list[TakenRun]:
    started, later = sorted(started, key=longest_due), sorted(later, key=longest_due)
    for rows, started_ms in ((started, now_ms), (later, None)):
        sql.MARK_TAKEN.execute(db, [(due.run.attempt, due.rowid) for due in rows], worker, started_ms)
    return _note_started(events, started, "free") + _note_started(events, later, "later")


def _may_prefetch(due: DueRun) -> bool:
    run = due.run
    return may_prefetch(run.attempt, run.policy, run.reason, run.instance_id is not None)


def _note_started(events: TransactionEvents, due: Iterable[DueRun], slot: ClaimedSlot) -> list[TakenRun]:
    """Record that these runs are running. Return them with the slot that they use."""
    taken = [each.run if each.run.slot == slot else each.run._replace(slot=slot) for each in due]
    events.record_started([run.id for run in taken])
    return taken


async def rescue(
    db: sqlite3.Connection,
    events: TransactionEvents,
    clock: Clock,
    now_ms: int,
    dead_before_ms: int,
    limit: int,
    judge: Callable[[UnfinishedRun], Finished],
    consequences: Consequences,
    spared_before_ms: int,
) -> list[str]:
    since = dead_before_ms, now_ms, limit, spared_before_ms
    lost = [UnfinishedRun(*row) for row in db.execute(sql.LOST, since)]
    held = Counter(run.worker or "" for run in lost if not run.is_pull)
    if len(lost) >= limit:  # these may be a part of the runs of a worker
        held = Counter(dict(db.execute(sql.HELD_COUNTS)))
    judged: dict[str | None, list[Finished]] = {}
    for run in lost:
        outcome = judge(run._replace(companions=max(0, held[run.worker or ""] - 1)))
        judged.setdefault(run.worker, []).append(outcome)
    rescued: set[str] = set()
    for worker, outcomes in judged.items():
        rescued |= await settle(db, events, clock, now_ms, worker, outcomes, consequences)
        db.executemany(sql.ADD_LOSS, [(each.run_id,) for each in outcomes if each.suspect])
    dead = {name for (name,) in db.execute(sql.DEAD_WORKERS, (dead_before_ms,))}
    if dead:
        dead.difference_update(name for (name,) in db.execute(sql.BUSY_WORKERS))
        db.executemany(sql.DELETE_WORKER, [(name,) for name in dead])
    return [run.id for run in lost if run.id in rescued]


async def release(
    db: sqlite3.Connection,
    events: TransactionEvents,
    worker: str,
    now_ms: int,
    keep: Sequence[tuple[str, int]] | None,
) -> int:
    kept = set(keep or ())
    held: list[HeldRun] = []
    instances: set[str] = set()
    for *columns, instance_id in db.execute(sql.HELD_BY, (worker, now_ms)):
        run = HeldRun(*columns)
        if (run.id, run.attempt) not in kept:
            held.append(run)
            if instance_id is not None:
                instances.add(instance_id)
    release_runs(db, events, now_ms, held, instances)
    if keep is None:
        db.execute(sql.DELETE_WORKER, (worker,))
    return len(held)


async def prune(
    db: sqlite3.Connection, events: TransactionEvents, before_ms: int, limit: int, after_id: str
) -> tuple[int, str]:
    old = db.execute(sql.PRUNABLE, (before_ms, limit)).fetchall()
    rowids: list[tuple[int]] = []
    run_ids: list[tuple[str]] = []
    jobs: set[str] = set()
    for rowid, run_id, job_id in old:
        rowids.append((rowid,))
        run_ids.append((run_id,))
        if job_id is not None:
            jobs.add(job_id)
    db.executemany(sql.DELETE_RUN, rowids)
    db.executemany(sql.DELETE_ATTEMPTS, run_ids)
    db.executemany(sql.DELETE_DELIVERY, run_ids)
    delete_without_runs(db, jobs)
    return len(old), after_id


async def give_back(
    db: sqlite3.Connection,
    events: TransactionEvents,
    worker: str,
    now_ms: int,
    runs: Sequence[tuple[str, int]],
) -> int:
    released = [each for each in runs if db.execute(GIVE_BACK, (*each, worker, now_ms)).rowcount]
    if released:
        attempts = [
            (run_id, *AttemptView(attempt, worker, None, now_ms, "released")) for run_id, attempt in released
        ]
        db.executemany(sql.ADD_ATTEMPT, attempts)
        events.record_retried([run_id for run_id, _attempt in released])
        events.publish("runs")
    return len(released)
