"""The mailboxes of instances in SQLite: add runs, and expose the next one. See `store/instances.py`.

SQLite has one writer at a time, so an instance needs no lock.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from wakeful.run.instances import InstanceStatus
from wakeful.run.run import NewRun
from wakeful.run.signal_rules import Arrival
from wakeful.store.changelog import TransactionEvents
from wakeful.store.instances import INSTANCES_TOPIC
from wakeful.store.mailbox_rules import (
    DELAY_SOURCE,
    USUAL_MAILBOX,
    Admission,
    Mailbox,
    SignalKey,
    admit,
    ids_to_remember,
)
from wakeful.store.rows import Move
from wakeful.store.sqlite import statements as sql

# The condition of runs_exposed, in its words: SQLite compares the text.
_EXPOSED: Final = """x.instance_id = i.id
        AND (x.state IN ('running', 'retrying') OR x.state = 'pending' AND x.due_at IS NOT NULL)"""
#: the primary keys of instances and agent_classes, runs_exposed, and a range of runs_mailbox, once for each
MAILBOXES: Final = f"""
    SELECT i.id, i.status, i.version, i.sequence,
        (SELECT count(*) FROM runs INDEXED BY runs_mailbox
            WHERE instance_id = i.id AND state = 'pending' AND fire_at <= ?3),
        coalesce(?2, json_extract(c.definition, '$.mailbox'), {USUAL_MAILBOX}),
        x.state, x.fire_at
    FROM json_each(?1) e CROSS JOIN instances i ON i.id = e.value
    LEFT JOIN runs x INDEXED BY runs_exposed ON {_EXPOSED}
    LEFT JOIN agent_classes c ON c.workspace = i.workspace AND c.agent = i.agent"""
#: the primary key
ADD_INSTANCE: Final = """
    INSERT INTO instances (id, workspace, agent, name, status, created_at, updated_at)
    VALUES (?1, ?2, ?3, ?4, 'active', ?5, ?5) ON CONFLICT (id) DO NOTHING"""
#: the primary key
SET_SEQUENCE: Final = "UPDATE instances SET sequence = ? WHERE id = ?"
#: runs_exposed
HIDE_PENDING: Final = """
    UPDATE runs INDEXED BY runs_exposed SET due_at = NULL
    WHERE instance_id = ? AND (state IN ('running', 'retrying') OR state = 'pending' AND due_at IS NOT NULL)
        AND state = 'pending'"""
#: the primary key of instances, runs_exposed, and the beginning of a range of runs_mailbox, once for each
NEXT: Final = f"""
    SELECT i.status, i.version, x.rowid, x.state, x.due_at, x.requires_version,
        (SELECT rowid FROM runs INDEXED BY runs_mailbox WHERE instance_id = i.id AND state = 'pending'
            ORDER BY fire_at, sequence LIMIT 1)
    FROM json_each(?1) e CROSS JOIN instances i ON i.id = e.value
    LEFT JOIN runs x INDEXED BY runs_exposed ON {_EXPOSED}"""
#: the primary key, once for each
KNOWN_IDS: Final = """
    SELECT s.instance_id, s.source, s.id, s.run_id FROM json_each(?1) e CROSS JOIN signal_ids s
        ON s.instance_id = json_extract(e.value, '$[0]') AND s.source = json_extract(e.value, '$[1]')
        AND s.id = json_extract(e.value, '$[2]')
    WHERE s.expires_at > ?2"""
#: the primary keys of signal_ids and runs, once for each
DELAYS: Final = f"""
    SELECT s.instance_id, s.id, r.id FROM json_each(?) e CROSS JOIN signal_ids s
        ON s.instance_id = json_extract(e.value, '$[0]') AND s.source = '{DELAY_SOURCE}'
        AND s.id = json_extract(e.value, '$[1]')
    CROSS JOIN runs r ON r.id = s.run_id AND r.state = 'pending' AND r.instance_id = s.instance_id"""
#: the primary key; an id that expired and was not pruned yet is replaced
REMEMBER: Final = """
    INSERT INTO signal_ids (instance_id, source, id, run_id, expires_at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (instance_id, source, id) DO UPDATE SET run_id = excluded.run_id,
        expires_at = excluded.expires_at"""
#: runs_waiting: the pending runs of a job that are not in this mailbox
OUTSIDE: Final = """
    SELECT rowid, instance_id FROM runs INDEXED BY runs_waiting
    WHERE job_id = ?1 AND state IN ('pending', 'retrying') AND state = 'pending' AND instance_id IS NOT ?2
    ORDER BY scheduled_at, id"""
#: the primary key
NEXT_NUMBERS: Final = "UPDATE instances SET sequence = sequence + ?2 WHERE id = ?1"
#: by rowid; the primary key of instances
JOIN: Final = """
    UPDATE runs SET instance_id = ?1, instance = ?2, signal = ?3, due_at = NULL, serial = 0, requires = ?4,
        is_pull = 0, claim_timeout_ms = NULL, claim_deadline = NULL,
        sequence = (SELECT sequence FROM instances WHERE id = ?1) - ?5
    WHERE rowid = ?6"""
#: runs_waiting
SET_SIGNAL: Final = """
    UPDATE runs INDEXED BY runs_waiting SET signal = ?3
    WHERE job_id = ?1 AND state IN ('pending', 'retrying') AND instance_id = ?2"""
#: runs_waiting: the waiting runs of a job that are in a mailbox
INSIDE: Final = """
    SELECT DISTINCT instance_id FROM runs INDEXED BY runs_waiting
    WHERE job_id = ? AND state IN ('pending', 'retrying') AND instance_id IS NOT NULL"""
#: runs_waiting
LEAVE: Final = """
    UPDATE runs INDEXED BY runs_waiting SET instance_id = NULL, instance = NULL, signal = NULL,
        sequence = NULL, due_at = coalesce(due_at, max(fire_at, ?2)), serial = ?3, requires_version = 0
    WHERE job_id = ?1 AND state IN ('pending', 'retrying') AND instance_id IS NOT NULL"""
#: by rowid
HIDE: Final = "UPDATE runs SET due_at = NULL WHERE rowid = ?"
EXPOSE: Final = "UPDATE runs SET due_at = fire_at, requires_version = ? WHERE rowid = ?"
RETRY: Final = "UPDATE runs SET due_at = ?, requires_version = ? WHERE rowid = ?"


def add_signals(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    runs: Sequence[NewRun],
    *,
    strict: bool,
    limit: int | None = None,
    exposed_later: Collection[str] = (),
) -> list[NewRun]:
    """Add these pending runs to mailboxes; add instances that do not exist.

    Returns the runs that were inserted, as they are stored. `strict` is that of `mailbox_rules.admit`.
    `limit` is how many runs may wait in each mailbox; None: as the class says. In the mailboxes of
    `exposed_later`, nothing is exposed: the caller does it.
    """
    if not runs:
        return []
    admission = _admission(db, events, now_ms, runs, strict, limit, exposed_later)
    if admission.hidden:
        db.executemany(HIDE_PENDING, [(instance,) for instance in admission.hidden])
    rows = [(*all_values(run, now_ms), sequence) for run, sequence in admission.runs]
    inserted = db.executemany(sql.INSERT_SIGNALS, rows).rowcount
    db.executemany(SET_SEQUENCE, [(number, key) for key, number in admission.sequences.items()])
    written = [run for run, _ in admission.runs]
    if inserted < len(written):
        ids = json.dumps([run.id for run in written])
        there = {run_id for (run_id,) in db.execute(sql.WHICH_EXIST, (ids,))}
        written = [run for run in written if run.id in there]
        expose(db, events, now_ms, admission.sequences)  # the one that was not inserted may be the next
    set_details(db, written)
    if any(run.due_ms is not None for run in written):
        events.publish("runs")
    return written


def all_values(run: NewRun, now_ms: int) -> tuple[object, ...]:
    """Return the values that `INSERT_RUNS` and `INSERT_SIGNALS` set."""
    return (*run.column_values, 1 if run.is_pull else 0, run.claim_deadline_ms, now_ms)


def set_details(db: sqlite3.Connection, runs: Iterable[NewRun]) -> None:
    """Write the details of the few runs that have them."""
    details = [(*run.details, run.id) for run in runs if run.details is not None]
    if details:
        db.executemany(sql.SET_DETAILS, details)


def _admission(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    runs: Sequence[NewRun],
    strict: bool,
    limit: int | None,
    exposed_later: Collection[str],
) -> Admission:
    names = {str(run.instance_id): (run.workspace, run.agent, str(run.instance)) for run in runs}
    mailboxes = _mailboxes(db, names, limit, now_ms)
    missing = {key: name for key, name in names.items() if key not in mailboxes}
    if missing:
        _add_instances(db, events, now_ms, missing)
        mailboxes |= _mailboxes(db, missing, limit, now_ms)
    for key in exposed_later:
        if key in mailboxes:
            mailboxes[key] = mailboxes[key]._replace(busy=True)
    return admit(runs, mailboxes, now_ms, strict=strict)


def _add_instances(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    instances: Mapping[str, tuple[str, str, str]],
) -> None:
    """Add those of these instances that do not exist: workspace, agent and name by id."""
    rows = [(key, *name, now_ms) for key, name in instances.items()]
    if db.executemany(ADD_INSTANCE, rows).rowcount:
        events.publish(INSTANCES_TOPIC)


def _mailboxes(
    db: sqlite3.Connection, instances: Iterable[str], limit: int | None, now_ms: int
) -> dict[str, Mailbox]:
    status: InstanceStatus
    found = {}
    for key, status, version, sequence, waiting, most, state, fire_ms in db.execute(
        MAILBOXES, (json.dumps(list(instances)), limit, now_ms)
    ):
        exposed_ms = fire_ms if state == "pending" else None
        busy = state is not None and exposed_ms is None
        found[key] = Mailbox(status, version, sequence, waiting, most, busy, exposed_ms)
    return found


def known_signals(db: sqlite3.Connection, now_ms: int, keys: Sequence[SignalKey]) -> dict[SignalKey, str]:
    """Return the first runs of those of these signals that arrived before."""
    if not keys:
        return {}
    rows = db.execute(KNOWN_IDS, (json.dumps(keys), now_ms))
    return {(instance, source, signal_id): run_id for instance, source, signal_id, run_id in rows}


def pending_delays(db: sqlite3.Connection, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the pending runs of those of these delays (instance, id) that have not begun."""
    rows = db.execute(DELAYS, (json.dumps(keys),)) if keys else ()
    return {(instance, delay_id): run_id for instance, delay_id, run_id in rows}


def remember(db: sqlite3.Connection, arrivals: Iterable[Arrival]) -> None:
    """Store the ids of these signals, to recognise duplicates, and those of delays."""
    db.executemany(REMEMBER, ids_to_remember(arrivals))


def move_to_mailbox(
    db: sqlite3.Connection, events: TransactionEvents, now_ms: int, job_id: str, move: Move
) -> set[str]:
    """Move the waiting runs of a job into the mailbox of its recipient, or out of mailboxes without one.

    A run that is retrying outside of a mailbox stays there. Returns the instances whose mailbox changed.
    """
    to = move.recipient
    if to is None:
        left = {instance for (instance,) in db.execute(INSIDE, (job_id,))}
        if left:
            db.execute(LEAVE, (job_id, now_ms, move.serial))
        return left
    db.execute(SET_SIGNAL, (job_id, to.instance_id, to.signal))
    joining = db.execute(OUTSIDE, (job_id, to.instance_id)).fetchall()
    if not joining:
        return set()
    _add_instances(db, events, now_ms, {to.instance_id: (to.workspace, to.agent, to.instance)})
    db.execute(NEXT_NUMBERS, (to.instance_id, len(joining)))
    rows = [
        (to.instance_id, to.instance, to.signal, move.requires, len(joining) - number, rowid)
        for number, (rowid, _) in enumerate(joining, 1)
    ]
    db.executemany(JOIN, rows)
    return {to.instance_id, *(instance for _, instance in joining if instance is not None)}


def expose(
    db: sqlite3.Connection, events: TransactionEvents, now_ms: int, instances: Collection[str]
) -> None:
    """Expose the next run of each of these instances that is active and idle; hide those of the others."""
    if not instances:
        return
    hidden: list[tuple[int]] = []
    exposed: list[tuple[int, int]] = []
    again: list[tuple[int, int, int]] = []
    rows = db.execute(NEXT, (json.dumps(list(instances)),)).fetchall()
    for status, version, held, state, due_ms, required, first in rows:
        if status != "active":
            if state != "running" and due_ms is not None:
                hidden.append((held,))
        elif held is None:
            if first is not None:
                exposed.append((version, first))
        elif state == "pending":
            if first != held:
                hidden.append((held,))
            if first != held or required != version:
                exposed.append((version, first))
        elif state == "retrying" and due_ms is None:  # it was hidden when the instance was paused or blocked
            again.append((now_ms, version, held))
    for statement, given in ((HIDE, hidden), (EXPOSE, exposed), (RETRY, again)):
        if given:
            db.executemany(statement, given)
    events.exposed += len(exposed) + len(again)
