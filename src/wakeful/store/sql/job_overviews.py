"""What a list of jobs shows of each: last outcomes, cost per day, open incidents; few statements for all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from wakeful.store.overviews import DayCost, JobOverview, RunOutcome
from wakeful.store.sql.driver import Session

_COLUMNS: Final = "r.state, r.trigger, r.fire_at, r.started_at, r.finished_at"
#: runs_of_job: the end of a range for each job; SQLite reads the rows by the primary key
RUNS: Final = {
    "postgresql": f"""
        SELECT o.id::text, r.id::text, {_COLUMNS} FROM unnest($1::uuid[]) o (id)
        CROSS JOIN LATERAL (
            SELECT r.id, {_COLUMNS} FROM runs r WHERE r.job_id = o.id ORDER BY r.id DESC LIMIT $2) r
        ORDER BY r.id""",
    "sqlite": f"""
        SELECT o.value, r.id, {_COLUMNS} FROM json_each($1) o CROSS JOIN runs r ON r.id IN (
            SELECT e.id FROM runs e INDEXED BY runs_of_job WHERE e.job_id = o.value
            ORDER BY e.id DESC LIMIT $2)
        ORDER BY r.id""",
}
#: the primary key of jobs, and a range of that of spending for each
COSTS: Final = """
    SELECT j.id::text, s.day, s.tokens, s.cost FROM jobs j
    JOIN spending s ON s.workspace = j.workspace AND s.agent = j.agent AND s.job = j.id::text AND s.day >= $2
    WHERE j.id = ANY($1::uuid[]) ORDER BY s.day"""
#: job_incidents_cause, once for each job
INCIDENTS: Final = """
    SELECT i.job_id::text, i.id::text FROM job_incidents i
    WHERE i.job_id = ANY($1::uuid[]) AND i.closed_at IS NULL ORDER BY i.id"""


async def job_overviews(
    session: Session, kind: str, job_ids: Sequence[str], runs: int, since_day: int
) -> dict[str, JobOverview]:
    """Return what a list shows of these jobs. See `OverviewStore.job_overviews`."""
    ids = list(job_ids)
    outcomes: dict[str, list[RunOutcome]] = defaultdict(list)
    for job_id, *columns in await session.rows(RUNS[kind], ids, runs):
        outcomes[job_id].append(RunOutcome(*columns))
    costs: dict[str, list[DayCost]] = defaultdict(list)
    for job_id, *columns in await session.rows(COSTS, ids, since_day):
        costs[job_id].append(DayCost(*columns))
    incidents: dict[str, list[str]] = defaultdict(list)
    for job_id, incident_id in await session.rows(INCIDENTS, ids):
        incidents[job_id].append(incident_id)
    return {
        job_id: JobOverview(tuple(outcomes[job_id]), tuple(costs[job_id]), tuple(incidents[job_id]))
        for job_id in ids
    }
