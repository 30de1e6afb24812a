"""Find jobs by name or by id. An id is looked up before a name, because a name may have the form of an id."""

from __future__ import annotations

from typing import Final

from wakeful.errors import FailedPrecondition, NotFound
from wakeful.service.auth.access import Principal, visible_agent
from wakeful.store.port import Store
from wakeful.store.rows import JobFilter, JobRow
from wakeful.values.ids import is_id

#: How many jobs of one name an error lists.
_SHOWN: Final = 10


async def find_job(store: Store, workspace: str, agent: str, job: str) -> JobRow | None:
    """Return the job of an agent with this id or name."""
    if is_id(job):
        row = await store.job_by_id(job)
        if row is not None and (row.workspace, row.agent) == (workspace, agent):
            return row
    return await store.job(workspace, agent, job)


async def find_job_of_any_agent(store: Store, principal: Principal, workspace: str, job: str) -> JobRow:
    """Return the job with this id, or with this name if one agent only has it.

    NotFound: the principal sees no such job. FailedPrecondition: several agents have a job of this name.
    """
    if is_id(job):
        row = await store.job_by_id(job)
        if row is not None and row.workspace == workspace and principal.agent in (None, row.agent):
            return row
    rows = await store.jobs(JobFilter(workspace, visible_agent(principal, None), name=job, limit=_SHOWN + 1))
    if not rows:
        raise no_job(job)
    if len(rows) > 1:
        names = ", ".join(f"{row.agent}/{row.name}" for row in rows[:_SHOWN])
        more = " and others" if len(rows) > _SHOWN else ""
        raise FailedPrecondition(
            f"several agents have a job '{job}': {names}{more}; name the agent, or give the id of the job"
        )
    return rows[0]


def no_job(name: str) -> NotFound:
    """Return the error for a job name or id that does not exist."""
    return NotFound(f"no job '{name}'; list the jobs to see their names")
