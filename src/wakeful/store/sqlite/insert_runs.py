"""Inserting runs into SQLite, thousands at a time."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from wakeful.run.run import NewRun
from wakeful.store.sqlite import statements as sql
from wakeful.store.sqlite.connection import TransactionEvents
from wakeful.store.sqlite.mailbox import add_signals, set_details
from wakeful.store.sqlite.usage import note_missed


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
    running, pending, other, signals = [], [], [], []
    for run in runs:
        (
            run_id, job_id, workspace, agent, job_name, scheduled, fire, trigger, by, state, reason, covers,
            until, attempt, worker, lane, serial, due, started, _, key, replay_of, payload,
            claim_timeout, requires, requires_version, instance, _, _, _,
        ) = run  # fmt: skip
        if (
            by is None and reason is None and until is None and replay_of is None and payload is None
            and claim_timeout is None and not requires_version and instance is None
        ):  # fmt: skip
            if state == "running":
                running.append(
                    (run_id, job_id, workspace, agent, job_name, scheduled, fire, trigger, covers, attempt,
                     worker, lane, 1 if serial else 0, started, key, requires, now_ms)
                )  # fmt: skip
                continue
            if state == "pending":
                pending.append(
                    (run_id, job_id, workspace, agent, job_name, scheduled, fire, trigger, covers, attempt,
                     lane, 1 if serial else 0, due, key, requires, now_ms)
                )  # fmt: skip
                continue
        elif instance is not None and state == "pending":
            signals.append(run)
            continue
        other.append((*run[:-1], 1 if run.is_pull else 0, run.claim_deadline_ms, now_ms))
    inserted = sql.INSERT_RUNNING.execute(db, running) + sql.INSERT_PENDING.execute(db, pending)
    if other:
        inserted += db.executemany(sql.INSERT_RUNS, other).rowcount
    set_details(db, runs)
    if signals:
        stored = {run.id: run for run in add_signals(db, events, now_ms, signals, strict=strict)}
        inserted += len(stored)
        runs = [stored.get(run.id, run) for run in runs]
    if inserted < len(runs):
        ids = json.dumps([run.id for run in runs])
        there = {run_id for (run_id,) in db.execute(sql.WHICH_EXIST, (ids,))}
        runs = [run for run in runs if run.id in there]
    if pending or any(run[9] == "pending" for run in other):
        events.publish("runs")
    events.inserted(runs)
    if other:
        missed = [run[0] for run in runs if run[9] == "missed"]
        if missed:
            note_missed(db, events, now_ms, missed)
    return runs


async def insert_runs(
    db: sqlite3.Connection, events: TransactionEvents, now_ms: int, runs: Sequence[NewRun]
) -> Sequence[NewRun]:
    """Insert these runs, and return those that were inserted."""
    return write_runs(db, events, now_ms, runs)
