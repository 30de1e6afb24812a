"""Chains of jobs (`after`): what a request is told about them. The store checks them when it writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wakeful.job.job import check_chain
from wakeful.store.port import Store
from wakeful.store.rows import JobRow

#: How many jobs that come after a deleted one are named.
MOST_FOLLOWERS: Final = 20


async def check_new_chain(store: Store, row: JobRow) -> None:
    """Raise InvalidArgument if a job, which is not written yet, would come after itself."""
    if row.after_job is not None:
        before = await store.jobs_before(row.workspace, row.agent, [row.after_job])
        check_chain(row.name, {**before, row.name: row.after_job})


async def missing_upstream(store: Store, rows: Sequence[JobRow]) -> dict[str, tuple[str, ...]]:
    """Return the warning for each of these jobs of one agent that comes after a job that does not exist."""
    wanted = {row.after_job for row in rows if row.after_job is not None} - {row.name for row in rows}
    if not wanted:
        return {}
    known = await store.jobs_before(rows[0].workspace, rows[0].agent, sorted(wanted))
    missing = wanted - set(known)
    return {row.name: (no_upstream(row.name, row.after_job),) for row in rows if row.after_job in missing}


def no_upstream(name: str, after: str) -> str:
    """Return the warning for a job that comes after one that does not exist.

    >>> no_upstream("report", "extract")
    "job 'report' comes after 'extract', which does not exist: it fires once there is a job of that name"
    """
    return (
        f"job '{name}' comes after '{after}', which does not exist: it fires once there is a job of that name"
    )
