"""Mailboxes in PostgreSQL: locks of instances, numbers of signals, and which run of a mailbox is exposed.

Lock order: cursors, jobs, instances by id, runs. See `store/instances.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from wakeful.run.instances import InstanceLimits, InstanceStatus
from wakeful.run.run import NewRun
from wakeful.run.signal_rules import Arrival
from wakeful.store.changelog import TransactionEvents
from wakeful.store.instances import INSTANCES_TOPIC
from wakeful.store.mailbox_rules import Mailbox, SignalKey, admit, ids_to_remember
from wakeful.store.postgres import mailbox_statements as sql
from wakeful.store.postgres.session import Db, PostgresSession
from wakeful.store.postgres.statements import SET_DETAILS, numbers
from wakeful.store.rows import Move
from wakeful.store.sql.instances import instance_limits


class Numbered(NamedTuple):
    """An instance that is locked, with numbers that are reserved for new runs."""

    status: InstanceStatus
    #: the last number before those
    sequence: int
    is_new: bool


async def lock(db: Db, instance_ids: Iterable[str]) -> None:
    """Lock these instances, as far as they exist."""
    await db.execute(sql.LOCK_INSTANCES, sorted(instance_ids))


async def lock_limits(
    db: Db, workspace: str, agents: Collection[str], limits: InstanceLimits
) -> dict[str, int]:
    """Return `instance_limits`. If there are any, no other transaction adds instances meanwhile."""
    found = await instance_limits(PostgresSession(db), workspace, agents, limits)
    if found:
        await db.execute(sql.LOCK_LIMITS, workspace)
    return found


async def lock_of_runs(db: Db, run_ids: Sequence[str]) -> list[str]:
    """Lock the instances of these runs. Returns them."""
    return [key for (key,) in await db.fetch(sql.LOCK_INSTANCES_OF_RUNS, run_ids)]


async def lock_of_jobs(db: Db, job_ids: Sequence[str]) -> list[str]:
    """Lock the instances of the runs of these jobs that are not over. Returns them."""
    return [key for (key,) in await db.fetch(sql.LOCK_INSTANCES_OF_JOBS, job_ids)]


async def lock_held_by(db: Db, worker: str) -> list[str]:
    """Lock the instances whose run this worker holds. Returns them."""
    return [key for (key,) in await db.fetch(sql.LOCK_INSTANCES_HELD_BY, worker)]


async def lock_for_move(
    db: Db, events: TransactionEvents, now_ms: int, moves: Mapping[str, Move]
) -> list[str]:
    """Lock the instances of the runs of these jobs, and those to which they move. Returns them.

    Recipients of pending runs that do not exist are added.
    """
    joining = [job_id for job_id, each in moves.items() if each.recipient is not None]
    pending = {job_id for (job_id,) in await db.fetch(sql.WITH_PENDING, joining)} if joining else set()
    to = {
        each.recipient.instance_id: each.recipient
        for job_id, each in moves.items()
        if each.recipient is not None and job_id in pending
    }
    if to:
        ids = sorted(to)
        workspaces, agents = [to[key].workspace for key in ids], [to[key].agent for key in ids]
        names = [to[key].instance for key in ids]
        if await db.fetch(sql.ADD_MISSING, ids, workspaces, agents, names, now_ms):
            events.publish(INSTANCES_TOPIC)
    return [key for (key,) in await db.fetch(sql.LOCK_INSTANCES_FOR_MOVE, list(moves), list(to))]


async def move_to_mailboxes(
    db: Db, now_ms: int, moves: Mapping[str, Move], instances: Collection[str]
) -> None:
    """Move the waiting runs of these jobs into the mailbox of their recipient, or out of mailboxes.

    A run that is retrying outside of a mailbox stays there. `instances` are locked.
    """
    leaving = [(job_id, each.serial) for job_id, each in moves.items() if each.recipient is None]
    if leaving:
        await db.execute(sql.LEAVE, *map(list, zip(*leaving, strict=True)), now_ms)
    to = {
        job_id: each.recipient
        for job_id, each in moves.items()
        if each.recipient is not None and each.recipient.instance_id in instances
    }
    if not to:
        return
    keys = [each.instance_id for each in to.values()]
    await db.execute(sql.SET_SIGNAL, list(to), keys, [each.signal for each in to.values()])
    outside = await db.fetch(sql.OUTSIDE, list(to), keys)
    if outside:
        joining = [to[job_id] for _run_id, job_id in outside]
        left = Counter(each.instance_id for each in joining)
        reserved = dict(map(tuple, await db.fetch(sql.RESERVE, list(left), list(left.values()))))
        sequences: list[int] = []
        for each in joining:
            left[each.instance_id] -= 1
            sequences.append(reserved[each.instance_id] - left[each.instance_id])
        await db.execute(
            sql.JOIN,
            [run_id for run_id, _job_id in outside],
            [each.instance_id for each in joining],
            [each.instance for each in joining],
            [each.signal for each in joining],
            [moves[job_id].requires for _run_id, job_id in outside],
            sequences,
        )


async def lock_and_number(db: Db, now_ms: int, runs: Iterable[NewRun]) -> dict[str, Numbered]:
    """Lock the instances of these runs, and reserve a number for each run; add those that do not exist."""
    names: dict[str, tuple[str, str, str]] = {}
    count: Counter[str] = Counter()
    for run in runs:
        key = str(run.instance_id)
        names[key] = run.workspace, run.agent, str(run.instance)
        count[key] += 1
    ids = sorted(names)
    columns = map(list, zip(*(names[key] for key in ids), strict=True))
    rows = await db.fetch(sql.ADD_INSTANCES, ids, *columns, [count[key] for key in ids], now_ms)
    return {key: Numbered(status, last - count[key], is_new) for key, status, last, is_new in rows}


async def add_signals(
    db: Db,
    events: TransactionEvents,
    now_ms: int,
    runs: Sequence[NewRun],
    *,
    strict: bool,
    limit: int | None = None,
) -> list[NewRun]:
    """Add these pending runs to mailboxes; add instances that do not exist.

    Returns the runs that were inserted, as they are stored. `strict` is that of `mailbox_rules.admit`.
    `limit` is how many runs may wait in each mailbox; None: as the class says.
    """
    locked = await lock_and_number(db, now_ms, runs)
    return await admit_signals(db, events, now_ms, runs, locked, strict=strict, limit=limit)


async def admit_signals(
    db: Db,
    events: TransactionEvents,
    now_ms: int,
    runs: Sequence[NewRun],
    locked: Mapping[str, Numbered],
    *,
    strict: bool,
    limit: int | None = None,
) -> list[NewRun]:
    """Add these pending runs to the mailboxes of instances that are locked. See `add_signals`."""
    if any(each.is_new for each in locked.values()):
        events.publish(INSTANCES_TOPIC)
    mailboxes: dict[str, Mailbox] = {}
    occupants: dict[str, str | None] = {}
    for key, version, waiting, most, held, state, fire_ms in await db.fetch(
        sql.MAILBOXES, list({str(run.instance_id) for run in runs}), limit, now_ms
    ):
        exposed_ms = fire_ms if state == "pending" else None
        busy = held is not None and exposed_ms is None
        numbered = locked[key]
        mailboxes[key] = Mailbox(numbered.status, version, numbered.sequence, waiting, most, busy, exposed_ms)
        occupants[key] = held
    admission = admit(runs, mailboxes, now_ms, strict=strict)
    if admission.hidden:
        started = await _hide(db, [occupants[key] for key in admission.hidden])
        if started:  # by `take`, meanwhile: no new run comes before them
            mailboxes |= {
                key: mailboxes[key]._replace(busy=True) for key, held in occupants.items() if held in started
            }
            admission = admit(runs, mailboxes, now_ms, strict=strict)
    written = await write_signals(db, events, now_ms, admission.runs)
    if len(written) < len(runs):  # the one that was not inserted may be the next
        await expose(db, events, now_ms, mailboxes)
    return written


async def write_signals(
    db: Db, events: TransactionEvents, now_ms: int, numbered: Sequence[tuple[NewRun, int | None]]
) -> list[NewRun]:
    """Insert runs of instances that are locked, each with its number. Returns those that were inserted."""
    runs = [run for run, _ in numbered]
    rows = [run.column_values for run in runs]
    found = await db.fetchval(sql.INSERT_SIGNALS, rows, now_ms, numbers(number for _, number in numbered))
    inserted = set() if found is None else set(found.split(","))
    if len(inserted) < len(runs):  # a tick that has a run keeps it
        runs = [run for run in runs if run.id in inserted]
    await set_details(db, runs)
    if any(run.due_ms is not None for run in runs):
        events.publish("runs")
    events.record_inserted(runs)
    return runs


async def set_details(db: Db, runs: Sequence[NewRun]) -> None:
    """Write the details of the few runs that have them."""
    found = [(run.id, *run.details) for run in runs if run.details is not None]
    if found:
        await db.execute(SET_DETAILS, *map(list, zip(*found, strict=True)))


async def expose(db: Db, events: TransactionEvents, now_ms: int, instances: Collection[str]) -> None:
    """Expose the next run of each of these instances that is active and idle; hide those of the others.

    The instances are locked.
    """
    if not instances:
        return
    hidden: list[str] = []
    exposed: list[tuple[str, int]] = []
    swapped: dict[str, tuple[str, int]] = {}
    for status, version, held, state, due, required, first in await db.fetch(sql.NEXT, list(instances)):
        if status != "active":
            if held is not None and due and state != "running":
                hidden.append(held)
        elif held is None:
            if first is not None:
                exposed.append((first, version))
        elif state == "pending" and first != held:
            swapped[held] = first, version
        elif required != version if state == "pending" else state == "retrying" and not due:
            exposed.append(
                (held, version)
            )  # a retrying run was hidden when the instance was paused or blocked
    if hidden or swapped:  # first: the index allows one exposed run of an instance
        started = await _hide(db, [*hidden, *swapped])
        exposed += [each for held, each in swapped.items() if held not in started]
    if exposed:
        await db.execute(sql.EXPOSE, *map(list, zip(*exposed, strict=True)), now_ms)
        events.exposed += len(exposed)


async def _hide(db: Db, run_ids: Sequence[str | None]) -> set[str]:
    """Hide these runs. Returns those that were started before they could be hidden."""
    hidden = {run_id for (run_id,) in await db.fetch(sql.HIDE, run_ids)}
    return {run_id for run_id in run_ids if run_id is not None and run_id not in hidden}


async def known_signals(db: Db, now_ms: int, keys: Sequence[SignalKey]) -> dict[SignalKey, str]:
    """Return the first runs of those of these signals that arrived before; their instances are locked."""
    if not keys:
        return {}
    rows = await db.fetch(sql.KNOWN_SIGNALS, *map(list, zip(*keys, strict=True)), now_ms)
    return {(key, source, signal_id): run_id for key, source, signal_id, run_id in rows}


async def pending_delays(db: Db, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the pending runs of those of these delays (instance, id) that have not begun."""
    rows = await db.fetch(sql.DELAYS, *map(list, zip(*keys, strict=True))) if keys else ()
    return {(key, delay_id): run_id for key, delay_id, run_id in rows}


async def remember(db: Db, arrivals: Iterable[Arrival]) -> None:
    """Remember the ids of these signals, as far as they have one, and those of delays."""
    rows = ids_to_remember(arrivals)
    if rows:
        await db.execute(sql.ADD_SIGNAL_IDS, *map(list, zip(*rows, strict=True)))
