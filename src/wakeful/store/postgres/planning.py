"""Planning in PostgreSQL: claim, decide, insert, cancel, advance.

The claim locks the cursors of due jobs and skips locked ones: any number of planners share the work, and none
waits for another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from wakeful.store.changelog import TransactionEvents
from wakeful.store.mailbox_rules import refused_ticks
from wakeful.store.plans import DECISIONS_AT_ONCE, DueJob, JobPlan, Planned
from wakeful.store.postgres import statements as sql
from wakeful.store.postgres.insert_runs import insert_runs
from wakeful.store.postgres.session import Breaks, Db, PostgresSession
from wakeful.store.postgres.waiting_runs import cancel
from wakeful.store.sql.new_runs import check_written
from wakeful.store.sql.planning import PlanningPass


async def plan(
    db: Db,
    events: TransactionEvents,
    now_ms: int,
    until_ms: int,
    limit: int,
    decide: Callable[[DueJob], JobPlan | None],
) -> Planned:
    claimed = await db.fetch(sql.CLAIM, until_ms, limit)
    if not claimed:
        return Planned(0, [])
    job_ids = [row["job_id"] for row in claimed]
    next_ms, run_counts = ([row[name] for row in claimed] for name in ("next_ms", "run_count"))
    facts = await db.fetch(sql.FACTS, ",".join(job_ids), sql.numbers(next_ms), sql.numbers(run_counts))
    found = {row["id"]: row for row in facts}
    if len(found) < len(claimed):  # rows were deleted by hand: plan the others
        await db.execute(sql.DELETE_CURSORS, [job_id for job_id in job_ids if job_id not in found])
        job_ids = [job_id for job_id in job_ids if job_id in found]
    made = PlanningPass()
    breaks = Breaks(DECISIONS_AT_ONCE)
    for job_id in job_ids:
        if breaks.is_due():
            await asyncio.sleep(0)  # requests are answered meanwhile
        *columns, running, waiting, _any_pending = found[job_id]
        job = DueJob._make((*columns, _ids(running), _ids(waiting)))
        decided = decide(job)
        if decided is not None:
            made.add(job, decided)
    written = await insert_runs(db, events, now_ms, made.runs)
    check_written(made.runs, written, len(job_ids))
    if made.cancelled:
        await cancel(db, events, now_ms, made.cancelled)
    if made.plans:
        await db.execute(
            sql.ADVANCE,
            ",".join([each.job_id for each in made.plans]),
            sql.numbers([each.next_ms for each in made.plans]),
            sql.numbers([each.wake_ms for each in made.plans]),
            sql.numbers([each.run_count for each in made.plans]),
        )
    if made.halted:
        await db.execute(
            sql.HALT,
            [each.job_id for each in made.halted],
            [each.enabled for each in made.halted],
            [each.disabled_reason for each in made.halted],
            [each.decided_ticks for each in made.halted],
        )
    await made.write_states(PostgresSession(db), events, now_ms)
    if written is not made.runs and (refused := refused_ticks(written)):
        events.record_changed_jobs(await db.fetch(sql.END_REFUSED, refused))
    if any(row["any_pending"] for row in facts):
        events.publish("runs")  # workers that tried to start one meanwhile found its job locked
    return Planned(len(job_ids), list(written))


def _ids(text: str | None) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()
