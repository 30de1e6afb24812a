"""Inserting runs into PostgreSQL, thousands at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from asyncpg import UniqueViolationError

from wakeful.run.run import NewRun
from wakeful.store.changelog import TransactionEvents
from wakeful.store.postgres import statements as sql
from wakeful.store.postgres.mailbox import add_signals, set_details
from wakeful.store.postgres.session import Db, PostgresSession, savepoint
from wakeful.store.sql.new_runs import check_held, hold_jobs, jobs_to_hold
from wakeful.store.sql.usage import MISSED
from wakeful.values.ids import is_id

#: A savepoint, two statements, costs more than a check of each of so many runs.
FEW: Final = 30


async def _insert_all(db: Db, rows: Sequence[Sequence[object]], now_ms: int) -> bool:
    """Insert these runs, all or none. Return whether all are new."""
    try:
        async with savepoint(db):
            await db.execute(sql.INSERT_RUNS, rows, now_ms)
    except UniqueViolationError:
        return False
    return True


async def insert_runs(
    db: Db,
    events: TransactionEvents,
    now_ms: int,
    runs: Sequence[NewRun],
    *,
    strict: bool = False,
    versions: Sequence[int | None] | None = None,
) -> Sequence[NewRun]:
    """Insert these runs, and return those that were inserted: a tick that has a run keeps it.

    A signal run that may not enter its mailbox is skipped; with `strict` it raises an error. With `versions`,
    the jobs of the runs are held, and must exist at these versions (`new_runs.hold_jobs`).
    """
    if not runs:
        return runs
    signals = [run for run in runs if run.instance_id is not None and run.state == "pending"]
    if versions is not None and (signals or len(runs) > FEW):
        await hold_jobs(PostgresSession(db), runs, versions)
        versions = None
    if signals:
        there = {run.id for run in signals}
        plain = [run for run in runs if run.id not in there]
        written = [
            *await insert_runs(db, events, now_ms, plain),
            *await add_signals(db, events, now_ms, signals, strict=strict),
        ]
        as_stored = {run.id: run for run in written}
        return [as_stored[run.id] for run in runs if run.id in as_stored]
    rows = [run.column_values for run in runs]
    if versions is not None:
        found = await db.fetch(sql.ADD_RUNS, rows, now_ms, list(filter(is_id, jobs_to_hold(runs))))
        held = [(row["id"], row["name"], row["version"]) for row in found if row["name"] is not None]
        check_held(runs, versions, held)
        added = {row["id"] for row in found if row["name"] is None}
        runs = [run for run in runs if run.id in added]
    elif len(runs) <= FEW or not await _insert_all(db, rows, now_ms):
        inserted = set(str(await db.fetchval(sql.INSERT_NEW_RUNS, rows, now_ms)).split(","))
        runs = [run for run in runs if run.id in inserted]
    await set_details(db, runs)
    events.publish_pending(runs)
    events.record_inserted(runs)
    missed = [run.id for run in runs if run.state == "missed"]
    if missed and await PostgresSession(db).execute(MISSED, now_ms, missed):
        events.publish("incidents")
    return runs
