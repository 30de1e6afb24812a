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
from wakeful.job.job import JobRecord
from wakeful.run.run import RunState
from wakeful.service.jobs.job_details import CHARTED
from wakeful.service.jobs.job_snippets import minimal, write_texts
from wakeful.service.jobs.revision_rules import document_of
from wakeful.service.runs.run_details import RunSearch
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
    """Show a job. A region reads only what it shows: each finished run refreshes two of them."""
    found = await page.services.jobs.get(page.principal, page.workspace, agent, name)
    return page.render(
        "job.html",
        title=found.name,
        active="jobs",
        job=found,
        tz=_tz(found),
        **(await _overview(page, found) if page.wants("overview") else {}),
        **(await _runs(page, found) if page.wants("runs") else {}),
        **({} if page.regions else await _rest(page, found)),
    )


async def _overview(page: Page, job: JobRecord) -> dict[str, Any]:
    """Return how the job does, with its charts."""
    services, principal, workspace = page.services, page.principal, page.workspace
    details = await services.job_details.get(principal, job)
    days = int(page.query["days"]) if page.query.get("days") in DAYS else int(DAYS[0])
    counts = await services.figures.job_days(principal, workspace, job.agent, job.id, days)
    charted = run_items(details.runs, page.now_ms)
    day_list = day_items(counts, page.now_ms, days)
    return {
        "details": details,
        "incidents": await services.incidents.list(
            principal, workspace, agent=job.agent, job=job.id, states=("open", "acknowledged"), limit=5
        ),
        "state": "active" if job.enabled else "paused" if job.disabled_reason == "paused" else "disabled",
        "explained": explain_job(job.definition),
        "webhook": (job.definition.work.own_target or {}).get("kind") == "webhook",
        "days": days,
        "day_list": [day for day in reversed(day_list) if day.counts],
        "day_bars": day_bars(
            day_list, lambda since, until: page.url("runs", job=job.id, since=since, until=until)
        ),
        "run_bars": run_bars(charted, lambda run_id: page.url("runs", run_id)),
        "charted": charted,
        "slots": CHARTED,
        "durations": durations(charted),
        "delays": delays(charted),
        "costs": costs(charted),
    }


async def _runs(page: Page, job: JobRecord) -> dict[str, Any]:
    """Return the list of its runs."""
    state = page.query.get("state")
    if state is not None and state not in _STATES:
        raise InvalidArgument(f"state: '{state[:64]}' is not one of {', '.join(_STATES)}")
    search = RunSearch(job.agent, job.id, () if state is None else (state,))
    found = await page.services.run_finder.search(
        page.principal, page.workspace, search, before=page.query.get("cursor"), limit=SHOWN
    )
    return {"items": run_items(found.runs, page.now_ms), "cursor": found.cursor}


async def _rest(page: Page, job: JobRecord) -> dict[str, Any]:
    """Return what no region shows: ticks, chain, definition, suggestions and history."""
    services, principal, workspace = page.services, page.principal, page.workspace
    suggested = await services.suggestions.list(
        principal, workspace, agent=job.agent, job=job.id, statuses=("open", "applied"), limit=5
    )
    base_url = services.public_url or str(page.request.base_url).rstrip("/")
    document = document_of(job.definition)
    defaults = services.accounts.defaults
    enabled = {**document, "enabled": job.enabled}
    return {
        "states": [("", "All states"), *((each, STATES[each]) for each in _STATES)],
        "ticks": tick_items(_ticks(job), _tz(job), page.now_ms),
        "chain": await services.job_details.chain(job),
        "definition": minimal(document, defaults),
        "revisions": await services.jobs.revisions.list(principal, workspace, job.agent, job.name),
        "suggestions": [serialize_suggestion(each) for each in suggested],
        "snippets": await write_texts(enabled, workspace, job.agent, base_url, defaults),
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
