"""Ticks that are recorded as running ahead of their instant, when their job changes before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from wakeful.store.postgres import statements as sql
from wakeful.store.postgres.waiting_runs import release_runs

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db, TransactionEvents


async def settle_ahead(
    db: Db, events: TransactionEvents, now_ms: int, jobs: Mapping[str, Callable[[int], str | None]]
) -> None:
    """Cancel or release the ticks of these jobs that are recorded as running before their instant.

    `jobs` has a function for each job that returns the reason to cancel a tick; None releases it, so that it
    starts with the changed job. In both cases `stop:` notifies its worker.
    """
    ahead = await db.fetch(sql.AHEAD, list(jobs), now_ms) if jobs else []
    if not ahead:
        return
    reasons = {run_id: jobs[job_id](tick) for run_id, job_id, tick, *_ in ahead}
    cancelled = {run_id: reason for run_id, reason in reasons.items() if reason is not None}
    if cancelled:
        await db.execute(sql.WITHDRAW_AHEAD, list(cancelled), list(cancelled.values()), now_ms)
        events.ended(list(cancelled))
        events.publish("runs")
        jobs_of = {run_id: job_id for run_id, job_id, *_ in ahead}
        for run_id, reason in cancelled.items():
            events.cancelled.append((run_id, jobs_of[run_id], reason))
            events.publish(f"stop:{run_id}")
    released = {
        run_id: attempt for run_id, _, _, attempt, before in ahead if reasons[run_id] is None and not before
    }
    await release_runs(db, events, now_ms, list(released))
    for run_id, attempt in released.items():
        events.publish(f"stop:{run_id}:{attempt}")
