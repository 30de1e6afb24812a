"""Planning in PostgreSQL: claim, ask, bear, cancel, advance.

The claim locks the cursors of due jobs and passes over those that are locked: any number of planners share
the work out between them, and none waits for another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from wakeful.store import postgres_statements as sql
from wakeful.store.port import Planned
from wakeful.store.postgres_births import bear
from wakeful.store.postgres_outcomes import cancel
from wakeful.store.rows import DueJob, JobPlan, RunRow

if TYPE_CHECKING:
    from wakeful.store.postgres_connection import Db, Tell

_NONE: tuple[str, ...] = ()


async def plan(
    db: Db,
    tell: Tell,
    now_ms: int,
    until_ms: int,
    limit: int,
    decide: Callable[[DueJob], JobPlan | None],
) -> Planned:
    """One planning pass. See `Store.plan`."""
    claimed = await db.fetch(sql.CLAIM, until_ms, limit)
    if not claimed:
        return Planned(0, [])
    jobs = {}
    any_pending = False
    running: dict[str, tuple[str, ...]] = {}
    waiting: dict[str, tuple[str, ...]] = {}
    for row in await db.fetch(sql.FACTS, ",".join([job_id for job_id, _, _ in claimed])):
        job_id, run_id = row[0], row[9]
        jobs[job_id] = row
        if run_id is None:
            continue
        if row[10] != "pending":
            running[job_id] = (*running.get(job_id, _NONE), run_id)
        elif row[11]:
            waiting[job_id] = (*waiting.get(job_id, _NONE), run_id)
        any_pending = any_pending or row[10] == "pending"
    runs: list[RunRow] = []
    ahead: list[tuple[str, int | None, int | None, int]] = []
    halted: list[tuple[str, bool, str | None]] = []
    cancelled: list[tuple[str, str]] = []
    for job_id, next_ms, run_count in claimed:
        live = running.get(job_id, _NONE), waiting.get(job_id, _NONE)
        planned = decide(DueJob._make((*jobs[job_id][:9], next_ms, run_count, *live)))
        if planned is None:
            continue
        _, next_ms, wake_ms, run_count, enabled, reason, born, superseded = planned
        runs += born
        ahead.append((job_id, next_ms, wake_ms, run_count))
        if superseded:
            cancelled += superseded
        if not enabled or reason is not None:
            halted.append((job_id, enabled, reason))
    written = await bear(db, tell, now_ms, runs)
    if cancelled:
        await cancel(db, tell, now_ms, cancelled)
    if ahead:
        await db.execute(sql.ADVANCE, ahead)
    if halted:
        await db.execute(sql.HALT, *map(list, zip(*halted, strict=True)))
    if any_pending:
        tell("runs")  # whoever wanted to start one of them meanwhile found its job locked
    return Planned(len(claimed), list(written))


async def next_wake_ms(db: Db) -> int | None:
    """The earliest `wake_at` of all jobs."""
    wake: int | None = await db.fetchval(sql.NEXT_WAKE)
    return wake
