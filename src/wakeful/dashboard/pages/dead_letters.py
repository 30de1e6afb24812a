"""Dead letters by cause."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from wakeful.dashboard.context import PageDep, page_router
from wakeful.run.dead_letter_groups import DeadLetterSelection, cause_of
from wakeful.service.runs.dead_letters import GROUPED
from wakeful.values.ids import is_id

router = page_router()

_PAGE: Final = 50
_GROUPS: Final = 100


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
        runs, before = await services.dead_letters.list(
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
            runs=[(run, cause_of(run)) for run in runs],
            cursor=before,
        )
    found = await services.dead_letters.groups(principal, workspace, agent, job)
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
