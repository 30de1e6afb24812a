"""One run: its timeline, and what can be done about it."""

from __future__ import annotations

from starlette.responses import Response

from wakeful.dashboard.context import Page, PageDep, page_router
from wakeful.dashboard.run_items import run_item, run_items
from wakeful.dashboard.run_timeline import timeline
from wakeful.service.runs.run_details import RunDetails

router = page_router()


@router.get("/runs/{run_id}")
async def run(page: PageDep, run_id: str) -> Response:
    """Show a run."""
    details = await page.services.run_details.get(page.principal, page.workspace, run_id)
    found = details.run
    return page.render(
        "run.html",
        title=f"Run {found.id[-8:]}" if found.job_name is None else f"Run of {found.job_name}",
        active="runs",
        details=details,
        item=run_item(found, page.now_ms),
        steps=timeline(details),
        follow_ups=run_items(details.follow_ups, page.now_ms),
        can=_allowed(page, details),
    )


def _allowed(page: Page, details: RunDetails) -> frozenset[str]:
    """Return what the caller can do with the run in its state. The services check it again."""
    run = details.run
    can: set[str] = set()
    if page.may("run"):
        if run.state in ("pending", "retrying"):
            can.add("cancel")
        if run.state == "running":
            can.add("stop")
        if run.job_id is not None and not details.job_deleted:
            can.add("again")
    if run.dead and page.may("dead-letter"):
        can |= {"replay", "discard"}
    if page.may("work") and run.state == "running" and not run.verifying:
        callback = details.job is not None and _has_callback(details)
        if run.awaiting_callback or run.is_pull or callback:
            can.add("complete")
    if run.verifying and page.may("verify"):
        can.add("verify")
    return frozenset(can)


def _has_callback(details: RunDetails) -> bool:
    work = details.job.definition.work if details.job is not None else None
    return work is not None and (work.target or {}).get("completion") == "callback"
