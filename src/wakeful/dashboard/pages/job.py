"""One job: how it does, when it runs next, its runs with charts, its definition and its history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from starlette.responses import Response

from wakeful.dashboard.charts import Bar, DayBar
from wakeful.dashboard.context import PageDep, PageRequest, page_router
from wakeful.dashboard.formats import STATES, at, duration, local, money, state_word
from wakeful.dashboard.pages.jobs import job_state
from wakeful.dashboard.run_items import RunItem, bar_title, run_items
from wakeful.errors import InvalidArgument
from wakeful.job.job import JobRecord
from wakeful.job.target_kinds import find_kind
from wakeful.run.run import LISTED_STATES
from wakeful.service.jobs.job_details import CHARTED
from wakeful.service.jobs.job_snippets import minimal, write_texts
from wakeful.service.jobs.revision_rules import Revision, differing_fields, document_of
from wakeful.service.runs.run_details import RunSearch
from wakeful.service.serializers import SUGGESTIONS, explain_job

router = page_router()

#: How many runs, ticks and audit entries the page shows.
_RUNS: Final = 20
_TICKS: Final = 8
_AUDITED: Final = 10
_DAYS: Final = ("30", "90")
DAY_MS: Final = 86_400_000
#: How many runs a chart shows.
SLOTS: Final = 60


@router.get("/agents/{agent}/jobs/{name}")
async def job(page: PageDep, agent: str, name: str) -> Response:
    """Show a job. A region reads only what it shows: each finished run refreshes two of them."""
    found = await page.services.jobs.get(page.principal, page.workspace, agent, name)
    return page.render(
        "job.html",
        title=found.name,
        active="jobs",
        job=found,
        may=(await page.rights((found,))).job(found),
        tz=_tz(found),
        **(await _overview(page, found) if page.wants("overview") else {}),
        **(await _runs(page, found) if page.wants("runs") else {}),
        **(_definition(page, found) if page.wants("ticks", "definition") else {}),
        **({} if page.regions else await _rest(page, found)),
    )


async def _overview(page: PageRequest, job: JobRecord) -> dict[str, Any]:
    """Return how the job does, with its charts."""
    services, principal, workspace = page.services, page.principal, page.workspace
    details = await services.jobs.details.get(principal, job)
    days = int(page.query["days"]) if page.query.get("days") in _DAYS else int(_DAYS[0])
    counts = await services.admin.figures.job_days(principal, workspace, job.agent, job.id, days)
    charted = run_items(details.runs, page.now_ms)
    day_list = day_items(counts, page.now_ms, days)
    kind = find_kind(job.definition.work.own_target)
    return {
        "details": details,
        "incidents": await services.admin.incidents.list(
            principal, workspace, agent=job.agent, job=job.id, states=("open", "acknowledged"), limit=5
        ),
        "state": job_state(job),
        "explained": explain_job(job.definition),
        "is_signed": kind is not None and kind.is_signed,
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


async def _runs(page: PageRequest, job: JobRecord) -> dict[str, Any]:
    """Return the list of its runs."""
    state = page.query.get("state")
    if state is not None and state not in LISTED_STATES:
        raise InvalidArgument(f"state: '{state[:64]}' is not one of {', '.join(LISTED_STATES)}")
    search = RunSearch(job.agent, job.id, () if state is None else (state,))
    found = await page.services.runs.finder.search(
        page.principal, page.workspace, search, before=page.query.get("cursor"), limit=_RUNS
    )
    return {"items": run_items(found.runs, page.now_ms), "cursor": found.cursor}


def _definition(page: PageRequest, job: JobRecord) -> dict[str, Any]:
    """Return what the job is and when it fires."""
    return {
        "ticks": tick_items(_ticks(job), _tz(job), page.now_ms),
        "definition": minimal(document_of(job.definition), page.services.accounts.defaults),
    }


async def _rest(page: PageRequest, job: JobRecord) -> dict[str, Any]:
    """Return what no region shows: chain, suggestions and history."""
    services, principal, workspace = page.services, page.principal, page.workspace
    suggested = await services.admin.suggestions.list(
        principal, workspace, agent=job.agent, job=job.id, statuses=("open", "applied"), limit=5
    )
    base_url = services.public_url or str(page.request.base_url).rstrip("/")
    enabled = {**document_of(job.definition), "enabled": job.enabled}
    return {
        "states": [("", "All states"), *((each, STATES[each]) for each in LISTED_STATES)],
        "chain": await services.jobs.details.chain(job),
        **_compared(page, await services.jobs.revisions.list(principal, workspace, job.agent, job.name)),
        "suggestions": [SUGGESTIONS.to_json(each) for each in suggested],
        "snippets": await write_texts(enabled, workspace, job.agent, base_url, services.accounts.defaults),
        "audit": await _audit(page, job),
    }


def _compared(page: PageRequest, revisions: Sequence[Revision]) -> dict[str, Any]:
    """Return the revisions, and what differs between the two that the query names."""
    by_version = {str(each.version): each for each in revisions}
    one, other = (by_version.get(page.query.get(name, "")) for name in ("from", "to"))
    differences = [] if one is None or other is None else differing_fields(one, other)
    return {"revisions": revisions, "compared": (one, other), "differences": differences}


async def _audit(page: PageRequest, job: JobRecord) -> list[Any]:
    """Return the newest audit entries of the job, for those who may read them."""
    if not page.may("audit.read"):
        return []
    found = await page.services.admin.audit.search(
        page.principal, page.workspace, subject=f"{job.agent}/{job.name}", limit=_AUDITED
    )
    return list(found.rows)


def _tz(job: JobRecord) -> str:
    timing = job.definition.timing
    return "UTC" if timing is None else timing.schedule.tz or "UTC"


def _ticks(job: JobRecord) -> list[int]:
    ticks = job.ticks
    if ticks is None or job.next_ms is None:
        return []
    return list(ticks.upcoming(job.next_ms - 1, _TICKS))  # the next tick may be due and not planned yet


class TickItem(NamedTuple):
    """A planned tick."""

    at_ms: int
    #: in the zone of the job
    text: str
    #: what is special about it: the clocks change before it
    mark: str


class RunSeries(NamedTuple):
    """Values of the last runs, oldest first, with a tooltip for each; 0 where there is no run yet."""

    values: list[float]
    titles: list[str]
    #: half of the values are at most `p50`, 95 of 100 at most `p95`; None: there are no values
    p50: float | None
    p95: float | None


class DayItem(NamedTuple):
    """The finished runs of a day (UTC)."""

    at_ms: int
    counts: dict[str, int]
    #: the mean duration of its runs
    mean_ms: int | None

    @property
    def runs(self) -> int:
        """How many runs ended on this day."""
        return sum(self.counts.values())


def day_items(counts: Sequence[tuple[int, str, int, int]], now_ms: int, days: int) -> list[DayItem]:
    """Return the last days, oldest first, from counts of (day, state, runs, duration)."""
    today = now_ms // DAY_MS
    found: list[DayItem] = []
    for day in range(today - days + 1, today + 1):
        of_day = [each for each in counts if each[0] == day]
        by_state = {state: runs for _, state, runs, _ in of_day if runs}
        timed = sum(runs for _, state, runs, _ in of_day if state in ("succeeded", "failed"))
        took = sum(ms for _, state, _, ms in of_day if state in ("succeeded", "failed"))
        found.append(DayItem(day * DAY_MS, by_state, took // timed if timed else None))
    return found


def day_bars(items: Sequence[DayItem], link: Callable[[int, int], str]) -> list[DayBar]:
    """Return days as bars; `link` returns the address of the runs between two instants."""
    return [
        DayBar(
            item.counts,
            f"{local(item.at_ms):%Y-%m-%d}: {_counts_text(item.counts)}",
            link(item.at_ms, item.at_ms + DAY_MS) if item.counts else None,
        )
        for item in items
    ]


def _counts_text(counts: Mapping[str, int]) -> str:
    if not counts:
        return "no runs"
    return ", ".join(f"{runs:,} {state_word(state).lower()}" for state, runs in sorted(counts.items()))


def run_bars(items: Sequence[RunItem], link: Callable[[str], str]) -> list[Bar]:
    """Return runs, given newest first, as bars, oldest first; the height is the duration."""
    return [Bar(item.state, _height(item), bar_title(item), link(item.run.id)) for item in reversed(items)]


def _height(item: RunItem) -> float | None:
    return None if item.duration_ms is None else float(item.duration_ms)


def run_series(
    items: Sequence[RunItem], value: Callable[[RunItem], float | None], text: Callable[[float | None], str]
) -> RunSeries:
    """Return a value of each run that has it, oldest first."""
    values, titles = [], []
    for item in reversed(items[:SLOTS]):
        one = value(item)
        if one is not None:
            values.append(float(one))
            titles.append(f"{at(item.run.scheduled_ms)}: {text(one)}, {state_word(item.state).lower()}")
    ordered = sorted(values)
    p50, p95 = (ordered[-(-len(ordered) * part // 100) - 1] if ordered else None for part in (50, 95))
    missing = SLOTS - len(values)
    return RunSeries([0.0] * missing + values, [""] * missing + titles, p50, p95)


def durations(items: Sequence[RunItem]) -> RunSeries:
    """Return how long runs took."""
    return run_series(items, lambda item: item.duration_ms if item.run.finished_ms else None, duration)


def delays(items: Sequence[RunItem]) -> RunSeries:
    """Return how late runs started."""
    return run_series(items, lambda item: item.delay_ms, duration)


def costs(items: Sequence[RunItem]) -> RunSeries:
    """Return what runs cost; runs without a reported cost are left out."""
    return run_series(items, lambda item: item.spent.cost if item.spent and item.spent.cost else None, money)


def tick_items(ticks_ms: Sequence[int], tz: str, now_ms: int) -> list[TickItem]:
    """Return ticks in the zone of the job; the first after a change of its clocks is marked.

    >>> saturday, sunday = 1_774_659_600_000, 1_774_764_000_000
    >>> [tick.mark for tick in tick_items([saturday, sunday], "Europe/Berlin", saturday - 1)]
    ['', 'clocks go forward 1 h before it']
    """
    found = []
    offset = local(now_ms, tz).utcoffset() or timedelta()
    for ms in ticks_ms:
        there = local(ms, tz)
        now = there.utcoffset() or timedelta()
        mark = ""
        if now != offset:
            which = "forward" if now > offset else "back"
            mark = f"clocks go {which} {duration(abs(now - offset) / timedelta(milliseconds=1))} before it"
        found.append(TickItem(ms, f"{there:%a %Y-%m-%d %H:%M:%S %Z}", mark))
        offset = now
    return found
