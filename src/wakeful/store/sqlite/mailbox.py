"""The mailboxes of instances in SQLite: add runs, and expose the next one. See `store/instances.py`.

SQLite has one writer at a time, so an instance needs no lock.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from wakeful.instances import InstanceStatus
from wakeful.run import NewRun
from wakeful.signal_rules import Arrival
from wakeful.store.instances import INSTANCES_TOPIC
from wakeful.store.mailbox_rules import USUAL_MAILBOX, Admission, Mailbox, admit
from wakeful.store.sqlite import statements as sql
from wakeful.store.sqlite.connection import TransactionEvents

# The condition of runs_exposed, in its words: SQLite compares the text.
_EXPOSED: Final = """x.instance_id = i.id
        AND (x.state IN ('running', 'retrying') OR x.state = 'pending' AND x.due_at IS NOT NULL)"""
#: the primary keys of instances and agent_classes, runs_exposed, and a range of runs_mailbox, once for each
MAILBOXES: Final = f"""
    SELECT i.id, i.status, i.version, i.sequence,
        (SELECT count(*) FROM runs INDEXED BY runs_mailbox WHERE instance_id = i.id AND state = 'pending'),
        coalesce(?2, json_extract(c.definition, '$.mailbox'), {USUAL_MAILBOX}),
        x.state, x.fire_at
    FROM json_each(?1) e CROSS JOIN instances i ON i.id = e.value
    LEFT JOIN runs x INDEXED BY runs_exposed ON {_EXPOSED}
    LEFT JOIN agent_classes c ON c.workspace = i.workspace AND c.agent = i.agent"""
#: the primary key
ADD_INSTANCE: Final = """
    INSERT INTO instances (id, workspace, agent, name, status, created_at, updated_at)
    VALUES (?1, ?2, ?3, ?4, 'active', ?5, ?5)"""
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
#: the primary key; an id that expired and was not pruned yet is replaced
REMEMBER: Final = """
    INSERT INTO signal_ids (instance_id, source, id, run_id, expires_at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (instance_id, source, id) DO UPDATE SET run_id = excluded.run_id,
        expires_at = excluded.expires_at"""
#: by rowid
HIDE: Final = "UPDATE runs SET due_at = NULL WHERE rowid = ?"
EXPOSE: Final = "UPDATE runs SET due_at = fire_at, requires_version = ? WHERE rowid = ?"
RETRY: Final = "UPDATE runs SET due_at = ?, requires_version = ? WHERE rowid = ?"

#: Identifies a signal: instance, source, id.
SignalKey = tuple[str, str, str]


def add_signals(
    db: sqlite3.Connection,
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
    admission = _admission(db, events, now_ms, runs, strict, limit)
    db.executemany(HIDE_PENDING, [(instance,) for instance in admission.hidden])
    rows = [
        (*run, 1 if run.is_pull else 0, run.claim_deadline_ms, now_ms, sequence)
        for run, sequence in admission.runs
    ]
    inserted = db.executemany(sql.INSERT_SIGNALS, rows).rowcount
    db.executemany(SET_SEQUENCE, [(number, key) for key, number in admission.sequences.items()])
    written = [run for run, _ in admission.runs]
    if inserted < len(written):
        ids = json.dumps([run.id for run in written])
        there = {run_id for (run_id,) in db.execute(sql.WHICH_EXIST, (ids,))}
        written = [run for run in written if run.id in there]
        expose(db, events, now_ms, admission.sequences)  # the one that was not inserted may be the next
    if any(run.due_ms is not None for run in written):
        events.publish("runs")
    return written


def _admission(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    runs: Sequence[NewRun],
    strict: bool,
    limit: int | None,
) -> Admission:
    names = {str(run.instance_id): (run.workspace, run.agent, run.instance) for run in runs}
    mailboxes = _mailboxes(db, names, limit)
    missing = [(key, *name, now_ms) for key, name in names.items() if key not in mailboxes]
    if missing:
        db.executemany(ADD_INSTANCE, missing)
        events.publish(INSTANCES_TOPIC)
        mailboxes |= _mailboxes(db, [row[0] for row in missing], limit)
    return admit(runs, mailboxes, now_ms, strict=strict)


def _mailboxes(db: sqlite3.Connection, instances: Iterable[str], limit: int | None) -> dict[str, Mailbox]:
    status: InstanceStatus
    found = {}
    for key, status, version, sequence, waiting, most, state, fire_ms in db.execute(
        MAILBOXES, (json.dumps(list(instances)), limit)
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


def remember(db: sqlite3.Connection, arrivals: Iterable[Arrival]) -> None:
    """Store the ids of these signals, to recognise duplicates."""
    rows = [
        (each.run.instance_id, each.source, each.signal_id, each.run.id, each.expires_ms)
        for each in arrivals
        if each.signal_id is not None
    ]
    db.executemany(REMEMBER, rows)


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
    db.executemany(HIDE, hidden)
    db.executemany(EXPOSE, exposed)
    db.executemany(RETRY, again)
    if exposed or again:
        events.publish("runs")
