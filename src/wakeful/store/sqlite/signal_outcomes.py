"""What handlers of signals returned, in SQLite: written with the outcomes of their runs.

This module reads facts and writes effects. `wakeful.run.signal_rules` decides.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from wakeful.run.consequences import JOB_DELETED
from wakeful.run.instances import STOPPED, AgentClass
from wakeful.run.outcome import Finished, Handled
from wakeful.run.signal_rules import (
    InstanceFacts,
    SignalFacts,
    any_delay,
    delay_keys,
    instances_to_lock,
    new_of_agents,
    recipients,
    schedule_keys,
    signal_effects,
    signal_keys,
)
from wakeful.store.changelog import TransactionEvents
from wakeful.store.job_changes import overdue_runs, schedule_change, stored_schedules
from wakeful.store.quotas import QuotaOwner
from wakeful.store.row_mapping import changed_row, job_to_row, schedule_key
from wakeful.store.rows import JobRow
from wakeful.store.sql.instances import CLASS_COLUMNS, instance_limits, read_class, room
from wakeful.store.sql.jobs import job_row
from wakeful.store.sqlite import statements as sql
from wakeful.store.sqlite.jobs import create_jobs, delete_job, write_change
from wakeful.store.sqlite.mailbox import add_signals, known_signals, pending_delays, remember
from wakeful.store.sqlite.session import SqliteSession
from wakeful.store.sqlite.waiting_runs import cancel
from wakeful.values.clock import Clock
from wakeful.values.stored_text import clean_text

_NO_LIMIT: Final = 1 << 62
#: jobs_schedule: for each instance a range of it, in its order
SCHEDULES: Final = f"""
    SELECT {", ".join(f"j.{column}" for column in sql.JOB_COLUMNS.split(", "))}
    FROM json_each(?) e CROSS JOIN jobs j INDEXED BY jobs_schedule
        ON j.instance_id = e.value AND j.deleted_at IS NULL
    ORDER BY e.key, j.schedule_origin, j.schedule_id"""
#: the primary key of instances, once for each; with ?2 and ?3 also ranges of runs_mailbox
INSTANCES: Final = """
    SELECT i.id, i.status, i.revision, CASE WHEN ?2 THEN (
        SELECT count(*) FROM runs INDEXED BY runs_mailbox
        WHERE instance_id = i.id AND state = 'pending' AND fire_at <= ?4) ELSE 0 END, CASE WHEN ?3 THEN (
        SELECT count(*) FROM runs INDEXED BY runs_mailbox
        WHERE instance_id = i.id AND state = 'pending' AND fire_at > ?4) ELSE 0 END
    FROM json_each(?1) e CROSS JOIN instances i ON i.id = e.value"""
#: the primary key, once for each
CLASSES: Final = f"""
    SELECT {CLASS_COLUMNS} FROM json_each(?) e CROSS JOIN agent_classes
    WHERE workspace = json_extract(e.value, '$[0]') AND agent = json_extract(e.value, '$[1]')"""
#: the primary key, once for each
INACTIVE: Final = """
    SELECT workspace, name FROM json_each(?) e CROSS JOIN agents
    WHERE workspace = json_extract(e.value, '$[0]') AND name = json_extract(e.value, '$[1]') AND NOT active"""
#: the primary key
UPDATE_INSTANCE: Final = """
    UPDATE instances SET data = coalesce(?3, data), version = iif(?3 IS NULL, version, ?4),
        revision = revision + (?3 IS NOT NULL), memory = coalesce(?5, memory), status = coalesce(?6, status),
        note = iif(?6 IS NULL, note, ?7), handled_at = ?2, updated_at = ?8
    WHERE id = ?1"""
#: runs_mailbox: a range of it
PENDING: Final = """
    SELECT id FROM runs INDEXED BY runs_mailbox WHERE instance_id = ? AND state = 'pending'"""
#: the primary key
SET_EMITTED: Final = "UPDATE runs SET emitted = ? WHERE id = ?"


def read_schedules(db: sqlite3.Connection, instances: Iterable[str]) -> list[JobRow]:
    """Return the jobs of the schedules of these instances, by origin and id."""
    given = list(instances)
    return [job_row(row) for row in db.execute(SCHEDULES, (json.dumps(given),))] if given else []


async def change_schedules(
    db: sqlite3.Connection,
    events: TransactionEvents,
    clock: Clock,
    now_ms: int,
    old: Iterable[JobRow],
    created: Sequence[JobRow],
    changed: Iterable[JobRow],
    deleted: Iterable[str],
) -> None:
    """Delete, change and create schedules. `old` has those that are changed, as they are stored."""
    stored = {row.id: row for row in old}
    for job_id in deleted:  # first: a schedule that takes the place of another has its name
        await delete_job(
            db, events, clock, job_id, now_ms, JOB_DELETED, lambda row: overdue_runs(row, now_ms)
        )
    for row in changed:
        before = stored[row.id]
        await write_change(db, events, now_ms, before, schedule_change(before, row, now_ms))
    if created:
        await create_jobs(db, events, now_ms, created, None, None)


class StoredFacts:
    """The facts about a batch, and the rows of the schedules that it changes."""

    __slots__ = ("facts", "jobs")

    def __init__(self, facts: SignalFacts, jobs: Sequence[JobRow]) -> None:
        self.facts = facts
        self.jobs = jobs


async def read_facts(db: sqlite3.Connection, now_ms: int, outcomes: Iterable[Finished]) -> StoredFacts | None:
    """Read what the directives of these outcomes depend on; None if there are none."""
    returned = [each for each in outcomes if each.handled is not None]
    if not returned:
        return None
    handlers = [each.handled for each in returned if each.handled is not None]
    to = [owner for each in handlers for owner in recipients(each).values()]
    jobs = read_schedules(db, {each.instance_id for each in handlers if each.schedules or each.stop})
    dynamic = Counter(row.instance_id for row in jobs if row.schedule_origin == "dynamic")
    instances = {
        key: InstanceFacts(status, revision, waiting, dynamic[key], delayed)
        for key, status, revision, waiting, delayed in db.execute(
            INSTANCES, (json.dumps(instances_to_lock(returned)), bool(to), any_delay(handlers), now_ms)
        )
    }
    delays = pending_delays(db, delay_keys(handlers))
    if not to and not jobs and not any(each.schedules for each in handlers):
        return StoredFacts(SignalFacts(instances, delays=delays), jobs)
    keys = [key for each in handlers for key in signal_keys(each)]
    new = frozenset(key for each in handlers for key in recipients(each) if key not in instances)
    owners = {(each.workspace, each.agent) for each in handlers if each.schedules}
    return StoredFacts(
        SignalFacts(
            instances,
            _classes(db, {(workspace, agent) for workspace, agent, _ in to}) if to else {},
            stored_schedules(jobs, {key for each in handlers for key in schedule_keys(each)}),
            {key: row.id for row in jobs if (key := schedule_key(row)) is not None},
            frozenset(known_signals(db, now_ms, keys)),
            frozenset(db.execute(INACTIVE, (json.dumps(list(owners)),))) if owners else frozenset(),
            new,
            await _room(db, new, handlers) if new else {},
            delays,
        ),
        jobs,
    )


async def _room(
    db: sqlite3.Connection, new: Collection[str], handlers: Sequence[Handled]
) -> dict[QuotaOwner, int]:
    """Return how many instances may be added."""
    session = SqliteSession(db)
    found: dict[QuotaOwner, int] = {}
    limits = next(each.limits for each in handlers if each.sends)  # the same in the whole process
    for workspace, count in new_of_agents(handlers, new).items():
        most = await instance_limits(session, workspace, count, limits)
        found |= await room(session, workspace, most, Counter())
    return found


def _classes(db: sqlite3.Connection, owners: set[tuple[str, str]]) -> dict[tuple[str, str], AgentClass]:
    found = [read_class(row) for row in db.execute(CLASSES, (json.dumps(list(owners)),))]
    return {(each.workspace, each.agent): each for each in found}


async def write_directives(
    db: sqlite3.Connection,
    events: TransactionEvents,
    clock: Clock,
    now_ms: int,
    outcomes: Sequence[Finished],
    stored: StoredFacts,
) -> list[str]:
    """Write what the handlers returned, for outcomes that are written. Returns the runs that emitted."""
    now_ms = max(now_ms, clock.now_ms())  # a delay counts from the commit, not from the wait for the lock
    effects = signal_effects(outcomes, stored.facts, now_ms)
    updates = [
        (
            each.instance_id,
            each.handled_ms,
            each.data,
            each.version,
            each.memory,
            each.status,
            None if each.note is None else clean_text(each.note),
            now_ms,
        )
        for each in effects.instances
    ]
    db.executemany(UPDATE_INSTANCE, updates)
    for instance in effects.stopped:  # before their jobs are deleted, for the same reason on all runs
        waiting = db.execute(PENDING, (instance,)).fetchall()
        cancel(db, events, now_ms, [(run_id, STOPPED) for (run_id,) in waiting])
    rows = {row.id: row for row in stored.jobs}
    await change_schedules(
        db, events, clock, now_ms, stored.jobs,
        [job_to_row(job) for job in effects.created],
        [changed_row(rows[job.id], job) for job in effects.changed],
        effects.deleted,
    )  # fmt: skip
    if effects.arrivals:
        # `refuse` has compared them with the limits as they were then.
        runs = [each.run for each in effects.arrivals]
        ended = {each.instance_id for each in outcomes if each.instance_id is not None}
        sent = add_signals(db, events, now_ms, runs, strict=False, limit=_NO_LIMIT, exposed_later=ended)
        events.record_inserted(sent)
        remember(db, effects.arrivals)
    if effects.cancelled:
        cancel(db, events, now_ms, effects.cancelled)
    if not effects.emitted:
        return []
    db.executemany(SET_EMITTED, [(text, run_id) for run_id, text in effects.emitted])
    emitted = [run_id for run_id, _ in effects.emitted]
    events.record_emitted(emitted)
    return emitted
