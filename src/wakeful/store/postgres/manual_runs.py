"""Runs that are asked for by hand and judged against the live runs of their job, in PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wakeful.run import NewRun
from wakeful.store.postgres.insert_runs import bear
from wakeful.store.postgres.outcomes import cancel
from wakeful.store.postgres.statements import LOCK_CURSORS
from wakeful.store.row_mapping import view_of
from wakeful.store.rows import LiveRuns, ManualRunRule, RunView

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db, TransactionEvents

#: live_runs_of_job and the runs' primary key: those that run or are between two attempts, and those that wait
#: their turn
LIVE: Final = """
    SELECT r.id::text, r.state FROM live_runs l JOIN runs r ON r.id = l.run_id AND r.state = l.state
    WHERE l.job_id = $1 AND (r.state IN ('running', 'retrying')
        OR r.serial AND r.trigger IN ('schedule', 'user', 'agent'))"""


async def add_judged_run(
    db: Db, tell: TransactionEvents, now_ms: int, run: NewRun, judge: ManualRunRule
) -> RunView:
    """Add what `judge` makes of the run, and cancel what gives way to it. See `Store.add_judged_run`."""
    # The cursor is locked by planners and by workers that start a serial run: until the end neither changes.
    await db.execute(LOCK_CURSORS, [run.job_id])
    found = await db.fetch(LIVE, run.job_id)
    live = LiveRuns(
        tuple(run_id for run_id, state in found if state != "pending"),
        tuple(run_id for run_id, state in found if state == "pending"),
    )
    judged = judge(run, live)
    if judged.cancelled:
        await cancel(db, tell, now_ms, list(judged.cancelled))
    await bear(db, tell, now_ms, [judged.run])
    tell("runs")
    return view_of(judged.run, now_ms)
