"""The home page of a workspace: what needs attention, what runs next, and what ran today."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from starlette.responses import Response

from wakeful.dashboard.context import PageDep, PageRequest, page_router
from wakeful.dashboard.formats import clock, number
from wakeful.dashboard.pages.inbox import ShownItem, inbox_items
from wakeful.run.inbox import COUNTED
from wakeful.service.admin.figures import Concern, ConcernKind, Outcomes, Upcoming
from wakeful.values.duration import MINUTE

router = page_router()

#: The page that lists what a concern is about, and its query.
_LISTS: Final[dict[ConcernKind, tuple[str, dict[str, str]]]] = {
    "workers": ("workers", {}),
    "clock": ("workers", {}),
    "blocked_runs": ("runs", {"state": "pending"}),
    "incidents": ("incidents", {}),
    "dead_letters": ("dead-letters", {}),
    "failing_jobs": ("jobs", {"state": "failing"}),
    "unclaimed_runs": ("runs", {"state": "pending"}),
    "lanes": ("runs", {"state": "running"}),
    "budgets": ("cost", {}),
    "missed": ("runs", {"state": "missed"}),
}
_STATES: Final = ("succeeded", "failed", "skipped", "missed", "cancelled")
_TONES: Final = {"failed": "bad", "missed": "warn"}
#: How many upcoming runs are shown at once; the others can be opened.
_SHOWN: Final = 9
#: How much of the inbox is shown.
_WAITING: Final = 3
#: How many names a minute of the timeline lists.
_NAMES: Final = 5
#: Marks on the scale of the timeline, in minutes.
_SCALE: Final = (0, 15, 30, 45, 60)


class ShownConcern(NamedTuple):
    """A concern, with the address of its list."""

    concern: Concern
    href: str


class ShownOutcome(NamedTuple):
    """A state with the number of runs of today, and of yesterday until the same time."""

    state: str
    today: int
    yesterday: int
    tone: str
    href: str


class Timeline(NamedTuple):
    """The next hour."""

    #: the expected number of runs in each minute, and its description; None: it is being computed
    minutes: Sequence[float] | None
    titles: Sequence[str]
    total: int
    scale: Sequence[int]


@router.get("/")
async def home(page: PageDep) -> Response:
    """Show what needs attention, what runs next, and what ran today."""
    figures, principal, workspace = page.services.admin.figures, page.principal, page.workspace
    outcomes = concerns = None
    if page.wants("today", "attention"):
        outcomes = await figures.outcomes(principal, workspace, page.tz)
    if outcomes is not None and page.wants("attention"):
        missed = outcomes.today.get("missed", 0)
        concerns = await page.services.admin.attention.concerns(principal, workspace, missed)
    waiting: list[ShownItem] = []
    counts: Mapping[str, int] = {}
    if page.wants("inbox"):
        inbox = page.services.admin.inbox
        waiting = inbox_items(page, await inbox.list(principal, workspace, limit=_WAITING))
        counts = await inbox.counts(principal, workspace) if waiting else {}
    upcoming = await figures.upcoming(principal, workspace) if page.wants("next") else None
    return page.render(
        "home.html",
        title="Home",
        active="home",
        is_new=not page.regions and upcoming is not None and await _is_new(page, upcoming),
        waiting=waiting,
        waiting_total=sum(counts.values()),
        waiting_more=COUNTED in counts.values(),
        concerns=None if concerns is None else [_show_concern(page, each) for each in concerns],
        outcomes=None if outcomes is None else _outcomes(page, outcomes),
        drift=await figures.drift(principal, workspace) if page.wants("now") else None,
        cost=await figures.cost_today(principal, workspace) if page.wants("today") else None,
        live=await page.services.live.figures(principal, workspace) if page.wants("now") else None,
        timeline=None if upcoming is None else timeline(upcoming, page.tz),
        named=[] if upcoming is None else upcoming.named,
        shown=_SHOWN,
    )


async def _is_new(page: PageRequest, upcoming: Upcoming) -> bool:
    """Return whether the workspace has no jobs."""
    return not upcoming.named and not await page.services.jobs.list(page.principal, page.workspace, limit=1)


def _show_concern(page: PageRequest, concern: Concern) -> ShownConcern:
    name, query = _LISTS[concern.kind]
    return ShownConcern(concern, page.url(name, **query))


def _outcomes(page: PageRequest, outcomes: Outcomes) -> list[ShownOutcome]:
    shown = []
    for state in _STATES:
        today = outcomes.today.get(state, 0)
        tone = _TONES.get(state, "") if today else ""
        yesterday = outcomes.yesterday.get(state, 0)
        shown.append(ShownOutcome(state, today, yesterday, tone, page.url("runs", state=state)))
    return shown


def timeline(upcoming: Upcoming, tz: str) -> Timeline:
    """Return the next hour with a description of each minute, in a zone."""
    scale = [upcoming.start_ms + minute * MINUTE for minute in _SCALE]
    if upcoming.minutes is None:
        return Timeline(None, (), len(upcoming.named), scale)
    names: dict[int, list[str]] = defaultdict(list)
    for run in upcoming.named:
        names[(run.at_ms - upcoming.start_ms) // MINUTE].append(f"{run.agent}/{run.job}")
    # A job may be newer than the counts, which are kept for a minute.
    minutes = [max(value, len(names[index])) for index, value in enumerate(upcoming.minutes)]
    titles = [
        _title(clock(upcoming.start_ms + index * MINUTE, tz), value, names[index])
        for index, value in enumerate(minutes)
    ]
    return Timeline(minutes, titles, round(sum(minutes)), scale)


def _title(at: str, starts: float, names: Sequence[str]) -> str:
    """Return the description of a minute.

    >>> _title("09:15", 7, ["ops/backup", "ops/report"])
    '09:15: 7 runs (ops/backup, ops/report and others)'
    >>> _title("09:16", 0.2, [])
    '09:16: fewer than 1 run'
    """
    runs = round(starts)
    text = f"{at}: {number(runs)} {'run' if runs == 1 else 'runs'}" if runs else f"{at}: fewer than 1 run"
    if not names:
        return text
    listed = ", ".join(names[:_NAMES])
    return f"{text} ({listed}{' and others' if runs > min(len(names), _NAMES) else ''})"
