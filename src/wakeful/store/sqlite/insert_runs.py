"""Inserting runs into SQLite, thousands at a time."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from wakeful.run.run import NewRun
from wakeful.store.changelog import TransactionEvents
from wakeful.store.sql.usage import MISSED
from wakeful.store.sqlite import statements as sql
from wakeful.store.sqlite.mailbox import add_signals, all_values, set_details
from wakeful.store.sqlite.session import translate

_MISSED: Final = translate(MISSED)
_running_values: Final = attrgetter(*sql.RUNNING_FIELDS)
_pending_values: Final = attrgetter(*sql.PENDING_FIELDS)


def write_runs(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    runs: Sequence[NewRun],
    *,
    strict: bool = False,
) -> Sequence[NewRun]:
    """Insert these runs, and return those that were inserted: a tick that has a run keeps it.

    A pending run of an instance goes into its mailbox. If it may not, it is skipped; with `strict`, an error
    is raised (`mailbox_rules.admit`).
    """
    running: list[tuple[object, ...]] = []
    pending: list[tuple[object, ...]] = []
    other: list[NewRun] = []
    signals: list[NewRun] = []
    for run in runs:
        if run.instance_id is not None and run.state == "pending":
            signals.append(run)
        elif not _is_usual(run):
            other.append(run)
        elif run.state == "running":
            running.append((*_running_values(run), 1 if run.serial else 0, now_ms))
        elif run.state == "pending":
            pending.append((*_pending_values(run), 1 if run.serial else 0, now_ms))
        else:
            other.append(run)
    inserted = sql.INSERT_RUNNING.execute(db, running) + sql.INSERT_PENDING.execute(db, pending)
    if other:
        inserted += db.executemany(sql.INSERT_RUNS, [all_values(run, now_ms) for run in other]).rowcount
    set_details(db, runs)
    if signals:
        stored = {run.id: run for run in add_signals(db, events, now_ms, signals, strict=strict)}
        inserted += len(stored)
        runs = [stored.get(run.id, run) for run in runs]
    if inserted < len(runs):
        ids = json.dumps([run.id for run in runs])
        there = {run_id for (run_id,) in db.execute(sql.WHICH_EXIST, (ids,))}
        runs = [run for run in runs if run.id in there]
    if pending or other:
        events.publish_pending(run for run in runs if run.instance_id is None)
    events.record_inserted(runs)
    if other:
        missed = [run.id for run in runs if run.state == "missed"]
        if missed and db.execute(_MISSED, (now_ms, json.dumps(missed))).rowcount:
            events.publish("incidents")
    return runs


def _is_usual(run: NewRun) -> bool:
    """Return whether the run has none of the fields that few runs have."""
    return (
        run.triggered_by is None
        and run.reason is None
        and run.until_ms is None
        and run.replay_of is None
        and run.payload is None
        and run.claim_timeout_ms is None
        and not run.requires_version
        and run.instance_id is None
    )


async def insert_runs(
    db: sqlite3.Connection, events: TransactionEvents, now_ms: int, runs: Sequence[NewRun]
) -> Sequence[NewRun]:
    """Insert these runs, and return those that were inserted."""
    return write_runs(db, events, now_ms, runs)
