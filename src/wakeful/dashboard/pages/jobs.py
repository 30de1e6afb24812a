"""The list of jobs: search, filters, last outcomes, cost per day, and actions on several jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

from markupsafe import Markup
from starlette.responses import Response

from wakeful.api.http.job_lists import JobList, read_page
from wakeful.dashboard import charts
from wakeful.dashboard.context import PageDep, PageRequest, page_router
from wakeful.dashboard.formats import at, duration, money, state_word
from wakeful.errors import InvalidArgument, NotFound
from wakeful.job.job import JobRecord
from wakeful.job.target_kinds import TARGET_KINDS
from wakeful.service.jobs.job_details import JobSummary, RunOutcome
from wakeful.service.jobs.job_query import CHOICES, JobQuery, read_job_query, read_order
from wakeful.service.jobs.jobs import MOST_COUNTED
from wakeful.service.serializers import explain_job

router = page_router()

#: How many jobs a page shows.
SHOWN: Final = 40
_DAY_MS: Final = 86_400_000
#: The filter without one: internal jobs are shown only if asked for.
_ALL: Final = JobQuery(internal="hide")
_SCHEDULES: Final = {
    "cron": "Cron",
    "every": "Interval",
    "at": "Once",
    "after": "After another job",
    "none": "No schedule",
}
_STATES: Final = {
    "agent_inactive": "inactive",
    "approval": "approval",
    "paused": "paused",
}


class JobItem(NamedTuple):
    """A row of the list."""

    job: JobRecord
    #: one of the states of lists
    state: str
    #: why it is in this state
    state_title: str
    #: its schedule in words
    schedule: str
    #: the zone of its schedule
    tz: str | None
    bars: Markup
    last: RunOutcome | None
    #: how long its last run took
    took: str
    cost_today: float
    #: the cost of each of the last days; None: it had none
    costs: Markup | None
    #: its newest open incident
    incident: str | None
    #: which budget is used up, so that it does not run
    budget: str | None = None


@router.get("/jobs")
async def jobs(page: PageDep) -> Response:
    """List jobs."""
    error: str | None = None
    query = _ALL
    shown: Sequence[JobRecord] = ()
    cursor: str | None = None
    found = 0
    try:
        query = read_job_query(_job_query(page), page.query.get("agent"), _labels(page))
        order = read_order(page.query.get("sort"))
        wanted = JobList(query, True, order, False, SHOWN, page.query.get("cursor"))
        shown, cursor = await read_page(page.services, page.principal, page.workspace, query.agent, wanted)
        found = len(shown)
        if cursor or "cursor" in page.query:
            found = await page.services.jobs.count(page.principal, page.workspace, query)
    except (InvalidArgument, NotFound) as refused:
        error = refused.message
    summaries = await page.services.jobs.overviews.of(page.principal, page.workspace, shown)
    blocked = await page.services.admin.budgets.used_up(page.workspace, shown)
    filtered = query not in (_ALL, replace(_ALL, internal="show"))
    rights = await page.rights(shown)
    return page.render(
        "jobs.html",
        title="Jobs",
        active="jobs",
        error=error,
        items=[job_item(page, job, summaries[job.id])._replace(budget=blocked.get(job.id)) for job in shown],
        may={job.id: rights.job(job) for job in shown},
        cursor=cursor,
        found=found,
        most=MOST_COUNTED + 1,
        filtered=filtered,
        selection=_selection(query, page.query.get("label")),
        states=[("", "All states"), *((state, state_word(state)) for state in CHOICES["state"])],
        creators=[("", "Any creator"), ("person", "By a person"), ("agent", "By an agent")],
        schedules=[("", "Any schedule"), *_SCHEDULES.items()],
        internal=[("", "Internal jobs hidden"), ("show", "Internal jobs shown")],
        targets=[("", "Any target"), *((kind, kind.capitalize()) for kind in TARGET_KINDS)],
    )


def _job_query(page: PageRequest) -> Mapping[str, str]:
    query = page.query
    given = {**query, "internal": query.get("internal") or "hide"}
    return {**given, "createdBy": query["created_by"]} if "created_by" in query else given


def _labels(page: PageRequest) -> list[str]:
    return [label.strip() for label in page.query.get("label", "").split(",") if label.strip()]


def _selection(query: JobQuery, label: str | None) -> dict[str, object]:
    """Return the body of a request about all jobs that the filter finds."""
    given: dict[str, object | None] = {
        "agent": query.agent,
        "label": [text.strip() for text in label.split(",") if text.strip()] if label else None,
        "q": query.q,
        "state": query.state,
        "creator": query.creator,
        "createdBy": query.created_by,
        "schedule": query.schedule,
        "target": query.target,
        "internal": query.internal,
    }
    return {key: value for key, value in given.items() if value} or {"all": True}


def job_item(page: PageRequest, job: JobRecord, summary: JobSummary) -> JobItem:
    """Return the row of a job."""
    timing = job.definition.timing
    state = job_state(job)
    last = summary.last_run
    return JobItem(
        job,
        state,
        _state_title(job, state),
        explain_job(job.definition),
        timing.schedule.tz if timing else None,
        _bars(tuple(summary.runs)),
        last,
        duration(last.duration_ms) if last is not None and last.duration_ms is not None else "",
        summary.costs[-1],
        _cost_chart(summary.costs, page.now_ms) if any(summary.costs) else None,
        summary.incidents[-1] if summary.incidents else None,
    )


def job_state(job: JobRecord) -> str:
    """Return the state of a job, as lists filter it."""
    if job.enabled:
        return "failing" if job.failures else "active"
    return _STATES.get(job.disabled_reason or "", "ended")


def _state_title(job: JobRecord, state: str) -> str:
    if state == "failing":
        return f"{job.failures} failures in a row"
    if state == "paused":
        until = f", until {at(job.pause_until_ms)}" if job.pause_until_ms else ""
        return (job.pause_note or "paused") + until
    return "" if job.enabled else (job.disabled_reason or "").replace("_", " ")


@lru_cache(maxsize=1_000)
def _bars(runs: tuple[RunOutcome, ...]) -> Markup:
    """Return the chart of the last runs. Cached: a list that is shown again mostly has the same runs."""
    return charts.outcome_strokes([_bar(run) for run in runs], label=_outcomes_in_words(runs))


def _bar(run: RunOutcome) -> charts.Bar:
    took = run.duration_ms
    # A run without a duration that has ended is a short bar: nothing ran.
    value = float(took) if took is not None else (None if run.finished_ms is None else 0.0)
    return charts.Bar(run.state, value, "")


def _outcomes_in_words(runs: Sequence[RunOutcome]) -> str:
    if not runs:
        return "No runs yet"
    counts: dict[str, int] = {}
    for run in runs:
        counts[run.state] = counts.get(run.state, 0) + 1
    words = ", ".join(f"{number} {state_word(state).lower()}" for state, number in counts.items())
    return f"Last {len(runs)} runs: {words}"


def _cost_chart(costs: Sequence[float], now_ms: int) -> Markup:
    first = now_ms - (len(costs) - 1) * _DAY_MS
    titles = [f"{at(first + day * _DAY_MS)[5:10]}: {money(cost)}" for day, cost in enumerate(costs) if cost]
    return charts.columns(costs, (), width=56, height=20, label=f"Cost per day: {'; '.join(titles)}")
