"""The runs of a workspace, with filters; one run with its timeline, and what can be done about it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from starlette.responses import Response

from wakeful.dashboard.context import PageDep, PageRequest, page_router
from wakeful.dashboard.formats import STATES, TRIGGERS
from wakeful.dashboard.run_items import run_item, run_items, timeline
from wakeful.errors import InvalidArgument, WakefulError
from wakeful.run.run import LISTED_STATES
from wakeful.service.rights import Rights
from wakeful.service.runs.run_details import CONSIDERED, RunDetails, RunSearch, RunsFound
from wakeful.values.ids import is_id
from wakeful.values.instants import LATEST_MS

router = page_router()

#: How many runs a page shows.
SHOWN: Final = 50
#: A choice beside the states: runs that wait for a person to confirm their work.
_TO_CONFIRM: Final = "to-confirm"
#: The periods that can be chosen, in hours.
PERIODS: Final = (("", "Any time"), ("1", "Last hour"), ("24", "Last 24 hours"), ("168", "Last 7 days"))
_HOUR_MS: Final = 3_600_000


@router.get("/runs")
async def runs(page: PageDep) -> Response:
    """List runs, newest first."""
    error: str | None = None
    found, search = RunsFound((), None, complete=True), RunSearch()
    try:
        search = await _search(page)
        found = await page.services.runs.finder.search(
            page.principal,
            page.workspace,
            search,
            before=page.query.get("cursor"),
            limit=SHOWN,
        )
    except WakefulError as failed:
        error = failed.message
    return page.render(
        "runs.html",
        title="Runs",
        active="runs",
        error=error,
        search=search,
        items=run_items(found.runs, page.now_ms),
        cursor=found.cursor,
        complete=found.complete,
        considered=CONSIDERED,
        filtered=any(name in page.query for name in _FILTERS),
        states=[("", "All states"), *((state, STATES[state]) for state in (*LISTED_STATES, _TO_CONFIRM))],
        triggers=[("", "All triggers"), *TRIGGERS.items()],
        periods=PERIODS,
    )


_FILTERS: Final = ("state", "trigger", "agent", "instance", "job", "period", "since", "until")


async def _search(page: PageRequest) -> RunSearch:
    query = page.query
    states = tuple(state for state in query.get("state", "").split(",") if state)
    to_confirm = states == (_TO_CONFIRM,)
    if to_confirm:
        states = ()
    for state in states:
        if state not in LISTED_STATES:
            raise InvalidArgument(f"state: '{state[:64]}' is not one of {', '.join(LISTED_STATES)}")
    trigger = query.get("trigger")
    if trigger is not None and trigger not in TRIGGERS:
        raise InvalidArgument(f"trigger: '{trigger[:64]}' is not one of {', '.join(TRIGGERS)}")
    agent, job, job_id = query.get("agent"), query.get("job"), None
    if job is not None and is_id(job):
        job_id = job  # also that of a deleted job
    elif job is not None and agent is not None:
        job_id = (await page.services.jobs.get(page.principal, page.workspace, agent, job)).id
    elif job is not None:
        job_id = (await page.services.jobs.find(page.principal, page.workspace, job)).id
    since_ms, until_ms = _instant("since", query.get("since")), _instant("until", query.get("until"))
    hours = query.get("period", "")
    if hours:
        if hours not in dict(PERIODS):
            raise InvalidArgument("period: choose one of the list")
        since_ms = page.now_ms - int(hours) * _HOUR_MS
    instance = query.get("instance")
    return RunSearch(agent, job_id, states, trigger, since_ms, until_ms, to_confirm, instance)


def _instant(name: str, text: str | None) -> int | None:
    """Return an instant of the query: milliseconds, or ISO 8601, which is in UTC without a zone.

    One that is out of range is the nearest that is not.

    >>> _instant("since", "1970-01-01T00:01"), _instant("since", "250"), _instant("since", None)
    (60000, 250, None)
    """
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) < 16 and int(text) <= LATEST_MS:
        return int(text)
    try:
        at = datetime.fromisoformat(text)
        aware = at if at.tzinfo else at.replace(tzinfo=UTC)
        return min(max(0, round(aware.timestamp() * 1000)), LATEST_MS)
    except (ValueError, OverflowError):
        raise InvalidArgument(f"{name}: '{text[:64]}' is not a time; write 2027-03-01T09:00") from None


@router.get("/runs/{run_id}")
async def run(page: PageDep, run_id: str) -> Response:
    """Show a run."""
    details = await page.services.runs.details.get(page.principal, page.workspace, run_id)
    found = details.run
    rights = await page.services.rights.load(page.principal, page.workspace, (found.agent,), (found,))
    return page.render(
        "run.html",
        title=f"Run {found.id[-8:]}" if found.job_name is None else f"Run of {found.job_name}",
        active="runs",
        details=details,
        item=run_item(found, page.now_ms),
        steps=timeline(details),
        follow_ups=run_items(details.follow_ups, page.now_ms),
        can=_allowed_actions(rights, details),
    )


def _allowed_actions(rights: Rights, details: RunDetails) -> frozenset[str]:
    """Return what the caller can do with the run in its state. The services check it again."""
    run, job = details.run, details.job
    can: set[str] = set()
    if run.state in ("pending", "retrying"):
        can.add("cancel")
    if run.state == "running":
        can.add("stop")
    if run.dead:
        can |= {"replay", "discard"}
    if run.state == "running" and not run.verifying:
        callback = job is not None and _has_callback(details)
        if run.awaiting_callback or run.is_pull or callback:
            can.add("complete")
    if run.verifying:
        can.add("verify")
    can &= {*rights.run(run)}
    if job is not None and not details.job_deleted and "run" in rights.job(job):
        can.add("again")
    return frozenset(can)


def _has_callback(details: RunDetails) -> bool:
    work = details.job.definition.work if details.job is not None else None
    return work is not None and (work.target or {}).get("completion") == "callback"
