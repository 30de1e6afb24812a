"""Planning in PostgreSQL: claim, decide, insert, cancel, advance.

The claim locks the cursors of due jobs and skips locked ones: any number of planners share the work, and none
waits for another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from wakeful.run.run import NewRun
from wakeful.store.changelog import ChangedJob, TransactionEvents
from wakeful.store.mailbox_rules import refused_ticks
from wakeful.store.plans import DECISIONS_AT_ONCE, CatchupState, DueJob, JobPlan, Planned
from wakeful.store.postgres import statements as sql
from wakeful.store.postgres.insert_runs import insert_runs
from wakeful.store.postgres.session import Breaks, Db
from wakeful.store.postgres.waiting_runs import cancel
from wakeful.store.sql.new_runs import check_written

#: the jobs' primary key, once for each
SET_STATE: Final = """
    UPDATE jobs j SET missed = s.missed, spread_from = s.spread_from, spread_until = s.spread_until
    FROM unnest($1::uuid[], $2::integer[], $3::timestamptz[], $4::timestamptz[])
        s (id, missed, spread_from, spread_until)
    WHERE j.id = s.id"""
#: the runs' primary key, once for each
SET_MISSED: Final = """
    UPDATE runs r SET missed = m.missed FROM unnest($1::uuid[], $2::integer[]) m (id, missed)
    WHERE r.id = m.id"""
#: the jobs' primary key, once for each
END_PAUSES: Final = """
    UPDATE jobs SET pause_note = NULL, pause_until = NULL, failures = 0, version = version + 1,
        updated_at = $2
    WHERE id = ANY($1::uuid[])"""


async def write_catchup(
    db: Db, jobs: Sequence[tuple[str, CatchupState]], runs: Sequence[tuple[str, int]]
) -> None:
    """Write the catch-up states of jobs, and the number of missed ticks before each of these runs."""
    if jobs:
        states = map(list, zip(*[(job_id, *state) for job_id, state in jobs], strict=True))
        await db.execute(SET_STATE, *states)
    if runs:
        await db.execute(SET_MISSED, *map(list, zip(*runs, strict=True)))


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
    runs: list[NewRun] = []
    ahead: list[JobPlan] = []
    halted: list[JobPlan] = []
    changed: list[ChangedJob] = []
    cancelled: list[tuple[str, str]] = []
    awake: list[str] = []
    caught_up: list[tuple[str, CatchupState]] = []
    missed_before: list[tuple[str, int]] = []
    breaks = Breaks(DECISIONS_AT_ONCE)
    for job_id in job_ids:
        if breaks.is_due():
            await asyncio.sleep(0)  # requests are answered meanwhile
        *columns, running, waiting, _any_pending = found[job_id]
        job = DueJob._make((*columns, _ids(running), _ids(waiting)))
        made = decide(job)
        if made is None:
            continue
        if made.catchup is not None:
            caught_up.append((job_id, made.catchup))
            missed_before += made.missed
        runs += made.runs
        ahead.append(made)
        cancelled += made.cancelled
        if made.resumed:
            awake.append(job_id)
        if not made.enabled or made.disabled_reason is not None or made.resumed:
            halted.append(made)
            changed.append(ChangedJob(job_id, job.workspace, job.agent, job.name))
    written = await insert_runs(db, events, now_ms, runs)
    check_written(runs, written, len(job_ids))
    if cancelled:
        await cancel(db, events, now_ms, cancelled)
    if ahead:
        await db.execute(
            sql.ADVANCE,
            ",".join([made.job_id for made in ahead]),
            sql.numbers([made.next_ms for made in ahead]),
            sql.numbers([made.wake_ms for made in ahead]),
            sql.numbers([made.run_count for made in ahead]),
        )
    await write_catchup(db, caught_up, missed_before)
    if awake:
        await db.execute(END_PAUSES, awake, now_ms)
    if halted:
        await db.execute(
            sql.HALT,
            [made.job_id for made in halted],
            [made.enabled for made in halted],
            [made.disabled_reason for made in halted],
            [made.decided_ticks for made in halted],
        )
        events.record_changed_jobs(changed)
    if written is not runs and (refused := refused_ticks(written)):
        events.record_changed_jobs(await db.fetch(sql.END_REFUSED, refused))
    if any(row["any_pending"] for row in facts):
        events.publish("runs")  # workers that tried to start one meanwhile found its job locked
    return Planned(len(job_ids), list(written))


def _ids(text: str | None) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


async def next_wake_ms(db: Db) -> int | None:
    wake: int | None = await db.fetchval(sql.NEXT_WAKE)
    return wake
