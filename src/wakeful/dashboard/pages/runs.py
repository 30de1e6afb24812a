"""The runs of a workspace, with filters; one run with its timeline, and what can be done about it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from starlette.responses import Response

from wakeful.dashboard.context import PageDep, PageRequest, page_router
from wakeful.dashboard.formats import STATES, TRIGGERS, known_zone, local, pretty
from wakeful.dashboard.markdown import is_markdown, prepare_markdown
from wakeful.dashboard.run_items import run_item, run_items, timeline
from wakeful.document import payload_to_text
from wakeful.errors import InvalidArgument, WakefulError
from wakeful.run.run import LISTED_STATES
from wakeful.service.rights import Rights
from wakeful.service.runs.run_details import CONSIDERED, RunDetails, RunSearch, RunsFound, RunView
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
    zone = known_zone(page.query["tz"]) if "tz" in page.query else page.tz
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
        can=await _selectable(page, found.runs),
        cursor=found.cursor,
        complete=found.complete,
        considered=CONSIDERED,
        filtered=any(name in page.query for name in _FILTERS),
        states=[("", "All states"), *((state, STATES[state]) for state in (*LISTED_STATES, _TO_CONFIRM))],
        triggers=[("", "All triggers"), *TRIGGERS.items()],
        periods=PERIODS,
        zones=sorted({page.tz, zone, "UTC"}),
        zone=zone,
        since=_control(search.since_ms if "since" in page.query else None, zone),
        until=_control(search.until_ms, zone),
    )


async def _selectable(page: PageRequest, runs: Sequence[RunView]) -> dict[str, str]:
    """Return what the caller can do with each run, if anything, by id: `cancel`, `stop` or `replay`."""
    rights = await page.services.rights.load(
        page.principal, page.workspace, (run.agent for run in runs), runs
    )
    found: dict[str, str] = {}
    for run in runs:
        action = _STEPS.get(run.state) or ("replay" if run.dead else "")
        if action and action in rights.run(run):
            found[run.id] = action
    return found


_STEPS: Final = {"pending": "cancel", "retrying": "cancel", "running": "stop"}


def _control(ms: int | None, tz: str) -> str:
    """Return an instant as the value of a control for date and time.

    >>> _control(0, "Asia/Tokyo"), _control(None, "UTC")
    ('1970-01-01T09:00', '')
    """
    return "" if ms is None else f"{local(ms, tz):%Y-%m-%dT%H:%M}"


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
    zone = known_zone(query.get("tz"))
    since_ms = _instant("since", query.get("since"), zone)
    until_ms = _instant("until", query.get("until"), zone)
    hours = query.get("period", "")
    if hours:
        if hours not in dict(PERIODS):
            raise InvalidArgument("period: choose one of the list")
        since_ms = page.now_ms - int(hours) * _HOUR_MS
    instance = query.get("instance")
    return RunSearch(agent, job_id, states, trigger, since_ms, until_ms, to_confirm, instance)


def _instant(name: str, text: str | None, tz: str = "UTC") -> int | None:
    """Return an instant of the query: milliseconds, or ISO 8601, which is in the zone if it has none.

    One that is out of range is the nearest that is not.

    >>> _instant("since", "1970-01-01T00:01"), _instant("since", "250"), _instant("since", None)
    (60000, 250, None)
    >>> _instant("since", "1970-01-02T00:00", "Asia/Tokyo")
    54000000
    """
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) < 16 and int(text) <= LATEST_MS:
        return int(text)
    try:
        at = datetime.fromisoformat(text)
        aware = at if at.tzinfo else at.replace(tzinfo=ZoneInfo(tz))
        return min(max(0, round(aware.timestamp() * 1000)), LATEST_MS)
    except (ValueError, OverflowError):
        raise InvalidArgument(f"{name}: '{text[:64]}' is not a time; write 2027-03-01T09:00") from None


@router.get("/runs/{run_id}")
async def run(page: PageDep, run_id: str) -> Response:
    """Show a run."""
    details = await page.services.runs.details.get(page.principal, page.workspace, run_id)
    found = details.run
    rights = await page.services.rights.load(page.principal, page.workspace, (found.agent,), (found,))
    steps = timeline(details)
    outputs = [text for step in steps for name, text in step.boxes if name == "Output"]
    await prepare_markdown(text for text in outputs if is_markdown(text))
    return page.render(
        "run.html",
        title=f"Run {found.id[-8:]}" if found.job_name is None else f"Run of {found.job_name}",
        active="runs",
        details=details,
        item=run_item(found, page.now_ms),
        steps=steps,
        follow_ups=run_items(details.follow_ups, page.now_ms),
        can=_allowed_actions(rights, details),
        payload=pretty(found.payload if found.payload is not None else _job_payload(details)),
    )


def _job_payload(details: RunDetails) -> str:
    """Return the payload that a run of the job has without one of its own, as JSON."""
    work = details.job.definition.work if details.job is not None else None
    return payload_to_text(work.body) or "null" if work is not None else "null"


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
