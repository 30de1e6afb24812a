"""The run in which a call is made, and what is made in it."""

from __future__ import annotations

from typing import Final

from wakeful.job.self_scheduling import CallingRun, RunCharge, refused_charge
from wakeful.store.sql.driver import Session
from wakeful.values.ids import is_id

#: the primary keys of runs, sessions and jobs
CALLING_RUN: Final = """
    SELECT r.workspace, r.agent, r.state, r.trigger, r.session, s.channel, s.send_to, r.depth, j.work
    FROM runs r
    LEFT JOIN sessions s ON s.workspace = r.workspace AND s.agent = r.agent AND s.name = r.session
    LEFT JOIN jobs j ON j.id = r.job_id
    WHERE r.id = $1"""
#: the primary key
CHARGE: Final = """
    UPDATE runs SET jobs_made = jobs_made + $2
    WHERE id = $1 AND state = 'running' AND jobs_made + $2 <= $3"""
#: the primary key
CHARGED: Final = "SELECT state, jobs_made FROM runs WHERE id = $1"


async def calling_run(session: Session, run_id: str) -> CallingRun | None:
    """Return the run of that id, with its conversation and the work of its job."""
    row = await session.row(CALLING_RUN, run_id) if is_id(run_id) else None
    return None if row is None else CallingRun(run_id, *row)


async def charge_run(session: Session, charge: RunCharge) -> None:
    """Count what is made in a run; raise an error if the run is not running, or its limit is reached."""
    if await session.execute(CHARGE, charge.run_id, charge.jobs, charge.limit):
        return
    row = await session.row(CHARGED, charge.run_id)
    raise refused_charge(charge, None if row is None else row[0], 0 if row is None else int(row[1]))
