"""Cancelling runs in PostgreSQL, and deleting a job with its runs that have not started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from wakeful.run.consequences import Withdrawal
from wakeful.store.postgres import statements as sql
from wakeful.store.postgres.mailbox import expose, lock, lock_of_jobs, lock_of_runs

if TYPE_CHECKING:
    from asyncpg import Record

    from wakeful.store.postgres.connection import Db, TransactionEvents


async def cancel(db: Db, events: TransactionEvents, now_ms: int, runs: Sequence[tuple[str, str]]) -> None:
    """Cancel these live runs, each for its reason. The workers of running ones are notified."""
    reasons = dict(runs)
    instances = set(await lock_of_runs(db, list(reasons)))
    cancelled = await db.fetch(sql.CANCEL, list(reasons), list(reasons.values()), now_ms)
    _announce(events, cancelled)
    moved = {row[-1] for row in cancelled if row[-1] is not None} - instances
    if moved:  # to another mailbox, with their job, before they were locked
        await lock(db, moved)
    await expose(db, events, now_ms, instances | moved)


async def withdraw(
    db: Db, events: TransactionEvents, withdrawals: Sequence[Withdrawal], now_ms: int | None
) -> None:
    """Cancel the runs of these jobs that have not started. Without `now_ms`, only those that are pending."""
    if withdrawals:
        job_ids, at_ms, reasons, manual = map(list, zip(*withdrawals, strict=True))
        instances = await lock_of_jobs(db, job_ids)
        _announce(events, await db.fetch(sql.WITHDRAW, job_ids, at_ms, reasons, manual, now_ms))
        await expose(db, events, max(at_ms), instances)


async def delete_jobs(db: Db, events: TransactionEvents, jobs: Mapping[str, int]) -> bool:
    """Mark these jobs as deleted, each at its time. Return whether any was not deleted before."""
    rows = await db.fetch(sql.DELETE_JOBS, list(jobs), list(jobs.values())) if jobs else []
    events.changed(rows)
    return bool(rows)


def _announce(events: TransactionEvents, cancelled: Sequence[Record]) -> None:
    """Announce runs that were cancelled, each with the state that it had, its job and the reason."""
    if cancelled:
        events.ended([run_id for run_id, *_ in cancelled])
        events.publish("runs")
    for run_id, state, job_id, reason, _ in cancelled:
        events.cancelled.append((run_id, job_id, reason))
        if state == "running":
            events.publish(f"stop:{run_id}")
