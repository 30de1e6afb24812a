"""The form of a job: new, edit and duplicate. Saving and testing go through the API (job_form.js)."""

from __future__ import annotations

import json
from typing import Final

from starlette.responses import Response

from wakeful.dashboard.context import PageDep, PageRequest, page_router
from wakeful.dashboard.job_controls import groups, placed_controls, target_control
from wakeful.document.definition import default_fields, instant_text, schedule_text
from wakeful.job.job import JobRecord
from wakeful.service.auth.masking import mask_value
from wakeful.service.jobs.job_snippets import minimal
from wakeful.service.serializers import serialize_job
from wakeful.values.json_value import Json

router = page_router()

_NAME: Final = 64
#: Fields without a default.
_OWN: Final = ("name", "schedule", "tz")


@router.get("/jobs/new")
async def new_job(page: PageDep) -> Response:
    """Show the form of a new job; `?from=agent/name` copies one."""
    source = page.query.get("from")
    job: dict[str, Json] = {}
    agent = page.principal.agent or page.query.get("agent") or "default"
    if source:
        found = await _find(page, source)
        agent = page.principal.agent or found.agent
        job = {**_document(page, found), "name": f"{found.name[: _NAME - 5]}-copy", "enabled": True}
    title = f"Copy of {source}" if source else "New job"
    return await _form(page, title, agent, job, None, {})


@router.get("/agents/{agent}/jobs/{name}/edit")
async def edit_job(page: PageDep, agent: str, name: str) -> Response:
    """Show the form of a job; `?suggestion=ID` proposes its changes."""
    found = await page.services.jobs.get(page.principal, page.workspace, agent, name)
    suggested: dict[str, Json] = {}
    if chosen := page.query.get("suggestion"):
        suggestion = await page.services.admin.suggestions.get(page.principal, page.workspace, chosen)
        if suggestion.job_id == found.id:
            change: dict[str, Json] = json.loads(suggestion.change)
            suggested = minimal({"name": found.name, "tz": _zone(found), **change})
            suggested = {key: value for key, value in suggested.items() if key not in ("name", "tz")}
    return await _form(page, f"Edit {found.name}", agent, _document(page, found), found, suggested)


async def _form(
    page: PageRequest,
    title: str,
    agent: str,
    job: dict[str, Json],
    saved: JobRecord | None,
    suggested: dict[str, Json],
) -> Response:
    context = await page.services.accounts.context(page.workspace, agent)
    defaults: dict[str, Json] = {**default_fields(context.defaults), **dict.fromkeys(_OWN)}
    schedule, tz = job.get("schedule"), str(job.get("tz") or "UTC")
    if isinstance(schedule, dict):
        job = {**job, "schedule": schedule_text(schedule, tz)}
        defaults["deleteAfterRun"] = schedule.get("kind") == "at"
    for name in ("startAt", "endAt"):
        if isinstance(at_ms := job.get(name), int):
            job = {**job, name: instant_text(at_ms, tz)}
    inherited: Json = dict(context.target) if context.target else None
    return page.render(
        "job_form.html",
        title=title,
        active="jobs",
        agent=agent,
        saved=saved,
        may_save="edit" in (await page.rights((saved,))).job(saved) if saved else page.may("job.write"),
        default_tz=context.defaults.tz,
        enabled=job.get("enabled", True),
        fields=placed_controls(job, defaults),
        groups=groups(job, defaults),
        target=target_control(job.get("target"), mask_value(inherited)),
        suggested=json.dumps(suggested),
    )


def _document(page: PageRequest, job: JobRecord) -> dict[str, Json]:
    return serialize_job(page.principal, job)


def _zone(job: JobRecord) -> str:
    timing = job.definition.timing
    return (timing.schedule.tz if timing else None) or "UTC"


async def _find(page: PageRequest, source: str) -> JobRecord:
    """Return the job that is copied: `agent/name`, or the name or id of a job of any agent."""
    agent, slash, name = source.partition("/")
    if not slash:
        return await page.services.jobs.find(page.principal, page.workspace, source)
    return await page.services.jobs.get(page.principal, page.workspace, agent, name)
