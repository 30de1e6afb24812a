"""One job: how it does, when it runs next, its runs, its definition and its history."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from wakeful.dashboard.context import Page, PageDep, page_router
from wakeful.dashboard.formats import STATES
from wakeful.dashboard.job_charts import (
    costs,
    day_bars,
    day_items,
    delays,
    durations,
    run_bars,
    tick_items,
)
from wakeful.dashboard.run_items import run_items
from wakeful.errors import InvalidArgument
from wakeful.job import JobRecord
from wakeful.run import RunState
from wakeful.service.jobs.job_details import CHARTED
from wakeful.service.jobs.job_snippets import minimal, snippets
from wakeful.service.jobs.revision_rules import document_of
from wakeful.service.runs.run_finder import RunSearch
from wakeful.service.serializers import explain_job
from wakeful.service.suggestion_serializers import serialize_suggestion

router = page_router()

#: How many runs, ticks and audit entries the page shows.
SHOWN: Final = 20
TICKS: Final = 8
AUDITED: Final = 10
DAYS: Final = ("30", "90")
_STATES: Final = tuple(state.value for state in RunState)


@router.get("/agents/{agent}/jobs/{name}")
async def job(page: PageDep, agent: str, name: str) -> Response:
    """Show a job."""
    services, principal, workspace = page.services, page.principal, page.workspace
    details = await services.job_details.get(principal, workspace, agent, name)
    found = details.job
    state = page.query.get("state")
    if state is not None and state not in _STATES:
        raise InvalidArgument(f"state: '{state[:64]}' is not one of {', '.join(_STATES)}")
    search = RunSearch(agent, found.id, () if state is None else (state,))
    runs = await services.run_finder.search(
        principal, workspace, search, before=page.query.get("cursor"), limit=SHOWN
    )
    days = int(page.query["days"]) if page.query.get("days") in DAYS else int(DAYS[0])
    counts = await services.figures.job_days(principal, workspace, agent, found.id, days)
    charted = run_items(details.runs, page.now_ms)
    day_list = day_items(counts, page.now_ms, days)
    return page.render(
        "job.html",
        title=found.name,
        active="jobs",
        details=details,
        job=found,
        state="active" if found.enabled else "paused" if found.disabled_reason == "paused" else "disabled",
        explained=explain_job(found.definition),
        days=days,
        day_list=[day for day in reversed(day_list) if day.counts],
        day_bars=day_bars(
            day_list, lambda since, until: page.url("runs", job=found.id, since=since, until=until)
        ),
        run_bars=run_bars(charted, lambda run_id: page.url("runs", run_id)),
        charted=charted,
        slots=CHARTED,
        durations=durations(charted),
        delays=delays(charted),
        costs=costs(charted),
        ticks=tick_items(_ticks(found), _tz(found), page.now_ms),
        tz=_tz(found),
        items=run_items(runs.runs, page.now_ms),
        cursor=runs.cursor,
        states=[("", "All states"), *((each, STATES[each]) for each in _STATES)],
        definition=minimal(document_of(found.definition), services.accounts.defaults),
        webhook=(found.definition.work.own_target or {}).get("kind") == "webhook",
        **await _related(page, found),
    )


async def _related(page: Page, job: JobRecord) -> dict[str, Any]:
    services, principal, workspace = page.services, page.principal, page.workspace
    where = principal, workspace, job.agent, job.name
    suggested = await services.suggestions.list(
        principal, workspace, agent=job.agent, job=job.id, statuses=("open", "applied"), limit=5
    )
    incidents = await services.incidents.list(
        principal, workspace, agent=job.agent, job=job.id, states=("open", "acknowledged"), limit=5
    )
    base_url = services.public_url or str(page.request.base_url).rstrip("/")
    document = {**document_of(job.definition), "enabled": job.enabled}
    return {
        "revisions": await services.jobs.revisions.list(*where),
        "suggestions": [serialize_suggestion(each) for each in suggested],
        "incidents": incidents,
        "snippets": snippets(document, workspace, job.agent, base_url, services.accounts.defaults),
        "audit": await _audit(page, job),
    }


async def _audit(page: Page, job: JobRecord) -> list[Any]:
    """Return the newest audit entries of the job, for those who may read them."""
    if not page.may("audit.read"):
        return []
    found = await page.services.audit.search(
        page.principal, page.workspace, subject=f"{job.agent}/{job.name}", limit=AUDITED
    )
    return list(found.rows)


def _tz(job: JobRecord) -> str:
    timing = job.definition.timing
    return "UTC" if timing is None else timing.schedule.tz or "UTC"


def _ticks(job: JobRecord) -> list[int]:
    ticks = job.ticks
    if ticks is None or job.next_ms is None:
        return []
    return list(ticks.upcoming(job.next_ms - 1, TICKS))  # the next tick may be due and not planned yet
