"""Outcomes of signal runs in PostgreSQL: what their handlers returned, in the transaction of the outcome.

`open_mailboxes` locks what the outcomes may change and refuses those whose directives cannot be stored. After
the outcomes are written behind their fence, `write_directives` writes what follows from them. It is decided
in `wakeful.run.signal_rules`.

Schedules of instances are jobs. One is added or deleted by a transaction that holds the lock of its instance.
Jobs are locked before instances; so a transaction finds them first, locks them, then the instance, and then
checks that they are still the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from asyncpg import Record, SerializationError

from wakeful.run.consequences import JOB_DELETED, Withdrawal, needs
from wakeful.run.instances import STOPPED, AgentClass
from wakeful.run.outcome import Finished, Handled
from wakeful.run.signal_rules import (
    Arrival,
    InstanceFacts,
    SignalFacts,
    any_delay,
    delay_keys,
    instances_to_lock,
    new_of_agents,
    recipients,
    refuse,
    signal_effects,
    signal_keys,
)
from wakeful.store.changelog import TransactionEvents
from wakeful.store.instances import INSTANCES_TOPIC
from wakeful.store.job_changes import overdue_runs, schedule_change, stored_schedules
from wakeful.store.postgres import mailbox_statements as mail
from wakeful.store.postgres import statements as sql
from wakeful.store.postgres.insert_runs import insert_runs
from wakeful.store.postgres.jobs import HOLD_EXISTING, create_jobs, write_changes
from wakeful.store.postgres.mailbox import (
    known_signals,
    lock_limits,
    pending_delays,
    remember,
    write_signals,
)
from wakeful.store.postgres.session import Db, PostgresSession
from wakeful.store.postgres.waiting_runs import cancel, delete_jobs, withdraw
from wakeful.store.quotas import QuotaOwner
from wakeful.store.row_mapping import changed_row, job_to_row, schedule_key
from wakeful.store.rows import JobRow
from wakeful.store.sql.incidents import close_of_jobs
from wakeful.store.sql.instances import read_class, room
from wakeful.store.sql.new_runs import check_written
from wakeful.values.clock import Clock
from wakeful.values.stored_text import clean_text

#: jobs_schedule: a range of it for each instance
SCHEDULE_IDS: Final = """
    SELECT j.id::text FROM unnest($1::uuid[]) i (id) CROSS JOIN LATERAL (
        SELECT id FROM jobs WHERE instance_id = i.id AND deleted_at IS NULL OFFSET 0) j"""


async def schedule_ids(db: Db, instance_ids: Sequence[str]) -> set[str]:
    """Return the ids of the jobs of all schedules of these instances."""
    if not instance_ids:
        return set()
    return {job_id for (job_id,) in await db.fetch(SCHEDULE_IDS, list(instance_ids))}


async def hold_agents(db: Db, owners: Sequence[QuotaOwner]) -> frozenset[QuotaOwner]:
    """Lock these agents against changes, as far as they exist: agents are locked before jobs.

    Returns those that are not active.
    """
    if not owners:
        return frozenset()
    workspaces, agents = map(list, zip(*owners, strict=True))
    rows = await db.fetch(HOLD_EXISTING, workspaces, agents)
    return frozenset((row["workspace"], row["name"]) for row in rows if not row["active"])


async def lock_schedules(db: Db, job_ids: Sequence[str]) -> dict[str, JobRow]:
    """Lock these jobs, whose cursors are locked, and return those that exist."""
    rows = await db.fetch(sql.LOCK_JOBS, list(job_ids)) if job_ids else ()
    return {job.id: job for job in (JobRow(*row) for row in rows)}


async def check_unchanged(db: Db, instance_ids: Sequence[str], found: set[str]) -> None:
    """Repeat the transaction if schedules were added before these instances were locked."""
    if not await schedule_ids(db, instance_ids) <= found:
        raise SerializationError("schedules of the instance were added meanwhile")


async def change_schedules(
    db: Db,
    events: TransactionEvents,
    clock: Clock,
    now_ms: int,
    rows: Mapping[str, JobRow],
    created: Sequence[JobRow],
    changed: Sequence[JobRow],
    deleted: Sequence[str],
) -> None:
    """Write these changes of schedules. `rows` are their jobs before, by id; they are locked."""
    gone = [rows[job_id] for job_id in deleted if job_id in rows]
    if gone:
        ids = [row.id for row in gone]
        due = [run for row in gone for run in overdue_runs(row, now_ms)]
        check_written(due, await insert_runs(db, events, now_ms, due))
        await delete_jobs(db, events, dict.fromkeys(ids, now_ms))
        withdrawals = [Withdrawal(job_id, now_ms, JOB_DELETED, manual=True) for job_id in ids]
        await withdraw(db, events, withdrawals, max(now_ms, clock.now_ms()))
        await close_of_jobs(PostgresSession(db), events, ids, now_ms, JOB_DELETED)
        await db.execute(sql.DELETE_JOBS_WITHOUT_RUNS, ids)
    if changed:
        changes = [(rows[new.id], schedule_change(rows[new.id], new, now_ms)) for new in changed]
        await write_changes(db, events, now_ms, changes)
    if created:
        await create_jobs(db, events, now_ms, created, None)


class Opened(NamedTuple):
    """What is locked for the signal runs of a batch of outcomes."""

    #: the instances of the runs, and the recipients of their signals
    instances: Collection[str]
    #: recipients that did not exist
    added: Collection[str]
    facts: SignalFacts
    #: the jobs of the schedules that may change, by id
    jobs: Mapping[str, JobRow]
    #: those of the jobs that the outcomes may end which have a next tick
    has_next: set[str]


class Directives(NamedTuple):
    """What was written for a batch of outcomes."""

    #: the jobs of `Opened.has_next` that have a next tick now
    has_next: set[str]
    #: the runs that emitted signals
    emitted: Sequence[str]


async def open_mailboxes(
    db: Db, now_ms: int, finished: Sequence[Finished]
) -> tuple[Sequence[Finished], Opened]:
    """Lock the jobs and instances of these outcomes. Returns the outcomes; some are refused."""
    handled = [each.handled for each in finished if each.handled is not None]
    scheduling = [each for each in handled if each.schedules or each.stop]
    owners = sorted({(each.workspace, each.agent) for each in scheduling})
    own = [each.instance_id for each in scheduling]
    inactive = await hold_agents(db, owners)
    schedules = await schedule_ids(db, own)
    has_next = await _lock_jobs(db, finished, schedules)
    jobs = await lock_schedules(db, list(schedules))
    added = await _add_recipients(db, now_ms, handled)
    locked = instances_to_lock(finished)
    rows = await db.fetch(mail.LOCK_INSTANCES, locked)
    if schedules or own:
        await check_unchanged(db, own, schedules)
    facts = (await _facts(db, now_ms, handled, rows, jobs))._replace(
        inactive=inactive, new=frozenset(added), room=await _room(db, added, handled) if added else {}
    )
    return refuse(finished, facts), Opened(locked, added, facts, jobs, has_next)


async def _lock_jobs(db: Db, finished: Sequence[Finished], schedules: Collection[str]) -> set[str]:
    """Lock the cursors and jobs that the outcomes may change. Returns the jobs that have a next tick."""
    of_jobs = [each for each in finished if each.job_id is not None]
    handled = [each.handled for each in of_jobs if each.handled is not None]
    need = needs([*of_jobs, *(each.refusal() for each in handled if each.refusal is not None)])
    cursors = {*need.ending_jobs, *schedules}
    found = await db.fetch(sql.LOCK_CURSORS, list(cursors)) if cursors else ()
    jobs = {each.job_id for each in of_jobs}
    if jobs:
        await db.execute(mail.LOCK_FAILING, list(jobs), list(need.failed_jobs))
    return {job_id for job_id, has_next in found if has_next}


async def _add_recipients(db: Db, now_ms: int, handled: Sequence[Handled]) -> set[str]:
    """Add the recipients of signals that do not exist. Returns their ids."""
    names = {key: each for one in handled if one.sends for key, each in recipients(one).items()}
    if not names:
        return set()
    ids = sorted(names)
    columns = map(list, zip(*(names[key] for key in ids), strict=True))
    return {key for (key,) in await db.fetch(mail.ADD_MISSING, ids, *columns, now_ms)}


async def _room(db: Db, added: Collection[str], handled: Sequence[Handled]) -> dict[QuotaOwner, int]:
    """Return how many instances may be added. These recipients have been added; they do not count."""
    found: dict[QuotaOwner, int] = {}
    limits = next(each.limits for each in handled if each.sends)  # the same in the whole process
    for workspace, count in sorted(new_of_agents(handled, added).items()):
        most = await lock_limits(db, workspace, count, limits)
        found |= await room(PostgresSession(db), workspace, most, count)
    return found


async def _facts(
    db: Db,
    now_ms: int,
    handled: Sequence[Handled],
    rows: Sequence[Record],
    jobs: Mapping[str, JobRow],
) -> SignalFacts:
    """Read what follows depends on. For handlers that only change the state, the rows are all."""
    sending = [each for each in handled if each.sends]
    waiting: dict[str, tuple[int, int]] = {}
    classes: dict[tuple[str, str], AgentClass] = {}
    known: Collection[tuple[str, str, str]] = ()
    if sending:
        to = {key for each in sending for key in recipients(each)}
        counts = await db.fetch(mail.WAITING, list(to), now_ms, any_delay(sending))
        waiting = {key: (due, delayed) for key, due, delayed in counts}
        agents = sorted({(each.workspace, send.agent) for each in sending for send in each.sends})
        columns = map(list, zip(*agents, strict=True))
        found = [read_class(row) for row in await db.fetch(mail.CLASSES, *columns)]
        classes = {(each.workspace, each.agent): each for each in found}
        known = await known_signals(db, now_ms, [key for each in sending for key in signal_keys(each)])
    keys = {job_id: key for job_id, job in jobs.items() if (key := schedule_key(job)) is not None}
    dynamic = Counter(key.instance_id for key in keys.values() if key.origin == "dynamic")
    instances = {}
    for key, status, revision in rows:
        due, delayed = waiting.get(key, (0, 0))
        instances[key] = InstanceFacts(status, revision, due, dynamic[key], delayed)
    return SignalFacts(
        instances,
        classes,
        stored_schedules(jobs.values(), set(keys.values())),
        {key: job_id for job_id, key in keys.items()},
        frozenset(known),
        delays=await pending_delays(db, delay_keys(handled)),
    )


async def write_directives(
    db: Db, events: TransactionEvents, clock: Clock, now_ms: int, written: Sequence[Finished], opened: Opened
) -> Directives:
    """Write what follows from these outcomes. Nothing is exposed, and emitted signals are not delivered."""
    now_ms = max(now_ms, clock.now_ms())  # a delay counts from the commit, not from the wait for locks
    effects = signal_effects(written, opened.facts, now_ms)
    if effects.instances:
        updates = [
            each if each.note is None else each._replace(note=clean_text(each.note))
            for each in effects.instances
        ]
        await db.execute(mail.UPDATE_INSTANCES, *map(list, zip(*updates, strict=True)), now_ms)
    if effects.stopped:
        pending = await db.fetch(mail.PENDING_OF, list(effects.stopped))
        await cancel(db, events, now_ms, [(run_id, STOPPED) for (run_id,) in pending])
    if effects.created or effects.changed or effects.deleted:
        created = [job_to_row(job) for job in effects.created]
        changed = [changed_row(opened.jobs[job.id], job) for job in effects.changed]
        await change_schedules(
            db, events, clock, now_ms, opened.jobs, created, changed, list(effects.deleted)
        )
    if effects.arrivals:
        await _receive(db, events, now_ms, effects.arrivals)
    if effects.cancelled:
        await cancel(db, events, now_ms, effects.cancelled)
    run_ids = [run_id for run_id, _ in effects.emitted]
    if run_ids:
        await db.execute(mail.SET_EMITTED, run_ids, [emitted for _, emitted in effects.emitted])
        events.record_emitted(run_ids)
    if opened.added:
        used = {str(each.run.instance_id) for each in effects.arrivals}
        if not used.isdisjoint(opened.added):
            events.publish(INSTANCES_TOPIC)
        if unused := set(opened.added) - used:  # the outcome that sends to it was fenced or refused
            await db.execute(mail.DELETE_INSTANCES, list(unused))
    again = {job.id for job in effects.changed if job.next_ms is not None}
    ended = {job.id for job in effects.changed if job.next_ms is None}.union(effects.deleted)
    return Directives((opened.has_next | again) - ended, run_ids)


async def _receive(db: Db, events: TransactionEvents, now_ms: int, arrivals: Sequence[Arrival]) -> None:
    """Store signals in mailboxes whose instances are locked. They are exposed at the end."""
    left = Counter(str(each.run.instance_id) for each in arrivals)
    rows = await db.fetch(mail.RESERVE, list(left), list(left.values()))
    last: dict[str, int] = dict(map(tuple, rows))
    numbered = []
    for each in arrivals:
        key = str(each.run.instance_id)
        left[key] -= 1
        numbered.append((each.run, last[key] - left[key]))
    await write_signals(db, events, now_ms, numbered)
    await remember(db, arrivals)
