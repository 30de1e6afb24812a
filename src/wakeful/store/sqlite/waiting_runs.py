"""Runs in SQLite that wait again, or elsewhere: released by their worker, or moved with their job."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence

from wakeful.store.rows import Move
from wakeful.store.sqlite import pull_statements
from wakeful.store.sqlite import statements as sql
from wakeful.store.sqlite.connection import TransactionEvents
from wakeful.store.sqlite.mailbox import expose, move_to_mailbox


def release_runs(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    held: Sequence[tuple[str, int, str | None, int | None]],
    instances: Collection[str] = (),
) -> None:
    """Retry these running runs: immediately, or at their instant if that is later.

    Each is (id, attempt, worker, start). `instances` are those of signal runs among them.
    """
    if held:
        db.executemany(sql.ADD_ATTEMPT, [(*row, now_ms, "released", None, None) for row in held])
        db.executemany(sql.RELEASE, [(now_ms, row[0]) for row in held])
        events.retried([row[0] for row in held])
        events.publish("runs")
        expose(db, events, now_ms, instances)


def move(db: sqlite3.Connection, events: TransactionEvents, now_ms: int, job_id: str, to: Move) -> None:
    """Move unfinished runs to another lane, requirement or mailbox. See `Store.change_job`."""
    instances = move_to_mailbox(db, events, now_ms, job_id, to)
    db.execute(pull_statements.FOLLOW, (job_id, to.requires, to.lane, to.claim_timeout_ms))
    given = job_id, to.lane, now_ms, to.claim_timeout_ms, to.requires
    if db.execute(pull_statements.MOVE, given).rowcount:
        events.publish("runs")
    expose(db, events, now_ms, instances)
