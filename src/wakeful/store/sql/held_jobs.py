"""The jobs of new runs that are not ticks: they must exist until the runs are written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from wakeful.errors import NotFound
from wakeful.job.job import check_version
from wakeful.run.run import NewRun
from wakeful.store.sql.driver import Session
from wakeful.values.ids import is_id

#: the primary key, once for each. A transaction that changes a job waits, and then sees the new runs. FOR KEY
#: SHARE is too weak: it may return the version before a change that has just been committed
HOLD_JOBS: Final = """
    SELECT id::text, name, version FROM jobs
    WHERE id = ANY($1::uuid[]) AND deleted_at IS NULL ORDER BY id FOR SHARE"""


async def hold_jobs(session: Session, runs: Iterable[NewRun], version: int | None = None) -> None:
    """Keep the jobs of these runs from being deleted or moved before this transaction ends.

    NotFound: one was deleted. StaleJob: it is not at this version. A replay needs no job: it is
    asked for after a deletion too, and the run that it replays keeps the row of the job.
    """
    wanted = {run.job_id: run for run in runs if run.job_id is not None and run.replay_of is None}
    if not wanted:
        return
    found = {row[0]: row for row in await session.rows(HOLD_JOBS, sorted(filter(is_id, wanted)))}
    for job_id, run in wanted.items():
        if job_id not in found:
            raise NotFound(f"no job '{run.job_name}': it was deleted; list the jobs to see their names")
        _, name, current = found[job_id]
        check_version(name, current, version)
