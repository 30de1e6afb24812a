"""What failed: incidents, and dead letters by cause."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from wakeful.dashboard.context import PageDep, page_router
from wakeful.errors import NotFound
from wakeful.run.dead_letter_groups import DeadLetterSelection, dead_letter_cause
from wakeful.run.incidents import INCIDENT_STATES
from wakeful.service.runs.dead_letters import GROUPED
from wakeful.values.ids import is_id

router = page_router()

_PAGE: Final = 50
_RUNS: Final = 15
#: The filters of the list; `current` is what still fails.
INCIDENT_FILTERS: Final[dict[str, tuple[str, ...]]] = {
    "current": ("open", "acknowledged"),
    **{state: (state,) for state in INCIDENT_STATES},
    "all": (),
}
_GROUPS: Final = 100


@router.get("/incidents")
async def incidents(page: PageDep) -> Response:
    """List incidents, newest first."""
    chosen = page.query.get("state", "current")
    cursor = page.query.get("cursor")
    found = await page.services.admin.incidents.list(
        page.principal,
        page.workspace,
        agent=page.query.get("agent"),
        job=page.query.get("job"),
        states=INCIDENT_FILTERS.get(chosen, INCIDENT_FILTERS["current"]),
        before=cursor if is_id(cursor) else None,
        limit=_PAGE + 1,
    )
    shown = found[:_PAGE]
    return page.render(
        "incidents.html",
        title="Incidents",
        active="incidents",
        incidents=shown,
        chosen=chosen if chosen in INCIDENT_FILTERS else "current",
        states=list(INCIDENT_FILTERS),
        cursor=shown[-1].id if len(found) > _PAGE else None,
    )


@router.get("/incidents/{incident_id}")
async def incident(page: PageDep, incident_id: str) -> Response:
    """Show one incident with the newest failed runs of its job."""
    services, principal, workspace = page.services, page.principal, page.workspace
    found = await services.admin.incidents.get(principal, workspace, incident_id)
    try:
        job = await services.jobs.get(principal, workspace, found.agent, found.job_id)
    except NotFound:
        job = None
    runs = await services.runs.list(
        principal, workspace, found.agent, job_id=found.job_id, states=("failed",), limit=_RUNS
    )
    return page.render(
        "incident.html",
        title=f"Incident of {found.job_name}",
        active="incidents",
        incident=found,
        job=job,
        runs=[run for run in runs if run.id >= found.first_run_id],
    )


@router.get("/dead-letters")
async def dead_letters(page: PageDep) -> Response:
    """Show the groups of dead letters, or with a cause the runs of one group."""
    query = page.query
    agent, job, cause = query.get("agent"), query.get("job"), query.get("cause")
    if page.request.query_params.get("job") == "" and cause is not None:
        job = ""  # runs without a job
    services, principal, workspace = page.services, page.principal, page.workspace
    if cause is not None or query.get("view") == "runs":
        cursor = query.get("cursor")
        runs, before = await services.runs.dead_letters.list(
            principal,
            workspace,
            DeadLetterSelection(agent, job, cause),
            before=cursor if is_id(cursor) else None,
            limit=_PAGE,
        )
        return page.render(
            "dead_letter_runs.html",
            title="Dead letters",
            active="dead-letters",
            agent=agent,
            job=job,
            cause=cause,
            runs=[(run, dead_letter_cause(run.reason, run.response_code, run.error)) for run in runs],
            cursor=before,
        )
    found = await services.runs.dead_letters.groups(principal, workspace, agent, job)
    return page.render(
        "dead_letters.html",
        title="Dead letters",
        active="dead-letters",
        agent=agent,
        job=job,
        found=found,
        groups=found.groups[:_GROUPS],
        grouped=GROUPED,
    )
