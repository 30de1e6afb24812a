"""Lists of jobs over HTTP: their filters, their order and their pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

from fastapi import Depends, Query
from starlette.responses import Response

from wakeful.api.http.dependencies import WorkspaceRequest
from wakeful.api.http.paging import Cursor, Limit, page, read_cursor
from wakeful.api.http.responses import list_response
from wakeful.job.job import JobRecord
from wakeful.service.auth.access import Principal
from wakeful.service.jobs.job_query import LONGEST, JobOrder, JobQuery, read_job_query, read_order
from wakeful.service.jobs.jobs import MOST_COUNTED
from wakeful.service.serializers import serialize_job
from wakeful.service.services import Services
from wakeful.values.json_value import Json

_Text = Annotated[str | None, Query(max_length=LONGEST)]
_STATE: Final = "active, paused, failing, approval (waits for a person), inactive (its agent is), ended."


@dataclass(frozen=True, slots=True)
class JobList:
    """The filters, the order and the page of a list."""

    query: JobQuery
    include_disabled: bool
    order: JobOrder
    count: bool
    limit: int
    cursor: str | None


async def _job_list(
    include_disabled: Annotated[
        bool, Query(description="Include disabled jobs; without it only enabled ones, unless by `state`.")
    ] = False,
    label: Annotated[
        list[str] | None,
        Query(description="Only jobs with this label: 'name=value' or 'name'. Repeat it to require several."),
    ] = None,
    q: Annotated[_Text, Query(description="Only jobs whose `agent/name` has this text.")] = None,
    state: Annotated[_Text, Query(description=f"Only jobs in this state: {_STATE}")] = None,
    creator: Annotated[_Text, Query(description="Only jobs that a `person` or an `agent` created.")] = None,
    created_by: Annotated[_Text, Query(description="Only jobs with this `createdBy`.")] = None,
    schedule: Annotated[
        _Text, Query(description="Only jobs with this kind of schedule: cron, every, at, after, none.")
    ] = None,
    target: Annotated[_Text, Query(description="Only jobs with this kind of target.")] = None,
    internal: Annotated[
        _Text,
        Query(description="`hide`: without the jobs that Wakeful creates for itself."),
    ] = None,
    sort: Annotated[
        _Text, Query(description="By `name`, or by the `next` tick, without jobs that have none.")
    ] = None,
    count: Annotated[bool, Query(description=f"Also count the jobs, up to {MOST_COUNTED}.")] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> JobList:
    given = {
        "q": q,
        "state": state,
        "creator": creator,
        "createdBy": created_by,
        "schedule": schedule,
        "target": target,
        "internal": internal,
    }
    query = read_job_query(given, labels=label or ())
    shows_disabled = include_disabled or query.state is not None
    return JobList(query, shows_disabled, read_order(sort), count, limit, cursor)


JobListDep = Annotated[JobList, Depends(_job_list)]


async def list_page(about: WorkspaceRequest, agent: str | None, wanted: JobList) -> Response:
    """Return a page of a list of jobs."""
    shown, next_cursor = await read_page(about.services, *about.caller, agent, wanted)
    rights = await about.services.rights.load(*about.caller, (job.agent for job in shown))
    content: dict[str, Json | Iterator[Json]] = {
        "jobs": (serialize_job(about.principal, job, rights=rights) for job in shown),
        "cursor": next_cursor,
    }
    if wanted.count:
        query = replace(wanted.query, agent=agent)
        found = await about.services.jobs.count(
            *about.caller, query, include_disabled=wanted.include_disabled
        )
        content["count"] = min(found, MOST_COUNTED)
        content["hasMore"] = found > MOST_COUNTED
    return await list_response(content)


async def read_page(
    services: Services, principal: Principal, workspace: str, agent: str | None, wanted: JobList
) -> tuple[Sequence[JobRecord], str | None]:
    """Return the jobs of a page, and the cursor of the next one."""
    query = wanted.query
    scope = ("jobs", workspace, agent, wanted.include_disabled, query, wanted.order)
    after: tuple[str, str] | None = None
    after_tick: tuple[int, str] | None = None
    if wanted.cursor is not None and wanted.order == "name":
        last_agent, last_name = read_cursor(wanted.cursor, scope, str, str)
        after = str(last_agent), str(last_name)
    elif wanted.cursor is not None:
        wake_ms, job_id = read_cursor(wanted.cursor, scope, int, str)
        after_tick = int(wake_ms), str(job_id)
    found = await services.jobs.list(
        principal,
        workspace,
        agent,
        include_disabled=wanted.include_disabled,
        labels=query.labels,
        after=after,
        limit=wanted.limit + 1,
        query=query,
        order=wanted.order,
        after_tick=after_tick,
    )
    by_name = wanted.order == "name"
    return page(
        found,
        wanted.limit,
        scope,
        lambda job: (job.agent, job.name) if by_name else (job.wake_ms or 0, job.id),
    )
