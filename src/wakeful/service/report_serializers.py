"""The JSON of what operators see and of figures about jobs, and cost as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from typing import Final, cast
from zoneinfo import ZoneInfo

from wakeful.forecast.peaks import WEEK_MINUTES, Peak, Week
from wakeful.forecast.preview import offset_text
from wakeful.job.job import JobRecord
from wakeful.model import job, operations, reports
from wakeful.model.codec import JsonObject, duration, from_ms, to_json
from wakeful.run.dead_letter_groups import DeadLetterGroup
from wakeful.run.usage import Spent
from wakeful.service.admin.channels import ChannelState, TestResult
from wakeful.service.admin.cost import BudgetState, CostReport, Usage
from wakeful.service.admin.peaks import ComputedWeek
from wakeful.service.admin.settings import SettingState
from wakeful.service.admin.status import ExecutorState, Processes, WorkerState
from wakeful.service.auth.people import PersonRow
from wakeful.service.auth.web_sessions import SignInLink
from wakeful.service.jobs.job_snippets import Snippets
from wakeful.service.jobs.schedule_previews import PreviewedSchedule
from wakeful.service.jobs.target_tests import TargetTest
from wakeful.service.rights import Rights
from wakeful.service.row_codec import RowCodec
from wakeful.service.runs.dead_letters import DeadLetterGroups
from wakeful.service.search import SearchResult
from wakeful.service.serializers import explain_job
from wakeful.store.deliveries import DeliveryView
from wakeful.store.rows import RunView
from wakeful.store.sql.web_sessions import WebSessionRow
from wakeful.values.duration import MINUTE
from wakeful.values.json_value import Json


def _lanes(worker: WorkerState) -> dict[str, dict[str, int]]:
    return {lane: {"used": used, "size": size} for lane, (used, size) in worker.lanes.items()}


def _request(test: TargetTest) -> JsonObject | None:
    sent = test.exchange
    if sent is None:
        return None
    return {"method": "POST", "url": sent.url, "headers": {**sent.headers}, "body": sent.body}


def _response(test: TargetTest) -> JsonObject | None:
    sent = test.exchange
    if sent is None or sent.status is None:
        return None
    headers: list[Json] = [[name, value] for name, value in sent.response_headers]
    return {"status": sent.status, "headers": headers, "body": sent.text}


PROCESSES: Final = RowCodec(
    operations.Workers,
    Processes,
    workers=RowCodec(
        operations.Worker, WorkerState, last_heartbeat_at="beat_ms", this_process="is_this", lanes=_lanes
    ),
    executors=RowCodec(operations.Executor, ExecutorState, last_heartbeat_at="beat_ms"),
)
CHANNELS: Final = RowCodec(operations.Channel, ChannelState)
DELIVERIES: Final = RowCodec(operations.Delivery, DeliveryView, job="job_name")
CHANNEL_TESTS: Final = RowCodec(operations.ChannelTest, TestResult)
SETTINGS: Final = RowCodec(operations.Setting, SettingState, set="is_set")
DEAD_LETTER_GROUPS: Final = RowCodec(
    operations.DeadLetterGroups,
    DeadLetterGroups,
    groups=RowCodec(
        operations.DeadLetterGroup,
        DeadLetterGroup,
        job="job_name",
        count="runs",
        first_failed_at="first_ms",
        last_failed_at="last_ms",
        newest_run_id="newest_id",
    ),
    counted="scanned",
)
_BUDGETS: Final = RowCodec(reports.BudgetState, BudgetState)
SEARCH_RESULTS: Final = RowCodec(
    job.SearchResult,
    SearchResult,
    jobs=RowCodec(job.FoundJob, JobRecord),
    runs=RowCodec(job.FoundRun, RunView, job="job_name"),
)
SNIPPETS: Final = RowCodec(job.JobSnippets, Snippets)
PEOPLE: Final = RowCodec(operations.Person, PersonRow, roles="grants")
WEB_SESSIONS: Final = RowCodec(operations.WebSession, WebSessionRow)
_TARGET_TESTS: Final = RowCodec(operations.TargetTest, TargetTest, request=_request, response=_response)


def serialize_target_test(test: TargetTest) -> JsonObject:
    """Return the result of a test, with the request and the response if one was sent."""
    return _TARGET_TESTS.to_json(test, **({} if test.secret is None else {"secret": test.secret}))


def serialize_sign_in_link(link: SignInLink, base_url: str) -> JsonObject:
    """Return a new sign-in link. The token is in the fragment, which browsers send to no server."""
    found = operations.SignInLink(url=f"{base_url}/sign-in#{link.token}", expires_at=from_ms(link.expires_ms))
    return to_json(found)


def serialize_cost(report: CostReport) -> JsonObject:
    """Return a report. Days without use are left out of agents and jobs."""
    whole = zip(report.dates, report.whole.days, strict=True)
    return to_json(
        reports.Cost(
            workspace=report.workspace,
            agent=report.agent,
            first=report.first,
            last=report.last,
            tokens=report.whole.total.tokens,
            cost=report.whole.total.cost,
            days=tuple(_day(day, spent) for day, spent in whole),
            agents=tuple(
                reports.AgentCost(
                    agent=each.agent,
                    tokens=each.total.tokens,
                    cost=each.total.cost,
                    days=_days(report.dates, each),
                )
                for each in report.agents
            ),
            jobs=tuple(
                reports.JobCost(
                    agent=each.agent,
                    job_id=each.job_id,
                    job=each.job,
                    deleted=each.deleted,
                    tokens=each.total.tokens,
                    cost=each.total.cost,
                    days=_days(report.dates, each),
                )
                for each in report.jobs
            ),
            budgets=tuple(map(_BUDGETS.to_model, report.budgets)),
        )
    )


def _days(dates: Sequence[date], usage: Usage) -> tuple[reports.DaySpent, ...]:
    days = zip(dates, usage.days, strict=True)
    return tuple(_day(day, spent) for day, spent in days if spent != Spent())


def _day(day: date, spent: Spent) -> reports.DaySpent:
    return reports.DaySpent(day=day, tokens=spent.tokens, cost=spent.cost)


def cost_csv(report: CostReport) -> str:
    """Return a report as CSV: a line for each day with use of the workspace, an agent or a job."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(("date", "level", "agent", "job", "job_id", "tokens", "cost"))
    for level, usages in (
        ("agent" if report.agent else "workspace", [report.whole]),
        ("agent", report.agents),
        ("job", report.jobs),
    ):
        writer.writerows(_lines(report.dates, level, usages))
    return text.getvalue()


def _lines(dates: Sequence[date], level: str, usages: Sequence[Usage]) -> Iterator[tuple[object, ...]]:
    for usage in usages:
        for day, spent in zip(dates, usage.days, strict=True):
            if spent != Spent():
                yield (day.isoformat(), level, usage.agent, usage.job or "", usage.job_id, *spent)


def serialize_week(computed: ComputedWeek, workspace: str, agent: str | None, now_ms: int) -> JsonObject:
    """Return the load of the coming week: its busiest minutes, and every hour."""
    week = computed.week
    return to_json(
        reports.Peaks(
            workspace=workspace,
            agent=agent,
            computed_at=from_ms(computed.computed_ms),
            age=duration(max(0, now_ms - computed.computed_ms)),
            first=from_ms(week.start_ms),
            until=from_ms(week.start_ms + WEEK_MINUTES * MINUTE),
            jobs=week.jobs,
            timings=week.timings,
            starts=round(sum(week.starts)),
            peaks=tuple(_peak(week, each) for each in week.peaks),
            hours=tuple(
                reports.Hour(
                    at=from_ms(hour.at_ms),
                    starts=hour.starts,
                    peak_at=from_ms(hour.peak_at_ms),
                    peak_starts=hour.peak_starts,
                )
                for hour in week.hours()
            ),
        )
    )


def _peak(week: Week, peak: Peak) -> reports.Peak:
    quiet = week.quiet_minute(peak.at_ms)
    return reports.Peak(
        at=from_ms(peak.at_ms),
        starts=peak.starts,
        schedules=tuple(
            reports.BusySchedule(explain=each.explain, jobs=each.jobs) for each in peak.schedules
        ),
        quiet_at=None if quiet is None else from_ms(quiet[0]),
        quiet_starts=None if quiet is None else quiet[1],
    )


def serialize_preview(found: PreviewedSchedule) -> JsonObject:
    """Return the preview of a schedule. Instants are in its zone."""
    timing, zone, peak = found.definition.timing, ZoneInfo(found.tz), found.peak

    def local(ms: int) -> datetime:
        return from_ms(ms).astimezone(zone)

    return to_json(
        reports.SchedulePreview(
            schedule=None if timing is None else {**timing.schedule.to_json()},  # type: ignore[dict-item]
            text=found.text,
            tz=found.tz,
            explain=explain_job(found.definition),
            ticks=tuple(
                reports.PreviewTick(
                    at=local(tick.at_ms), offset=offset_text(tick.offset), dst=tick.effect, note=tick.note
                )
                for tick in found.ticks.ticks
            ),
            clock_changes=tuple(
                reports.ClockChange(
                    at=local(change.at_ms),
                    before=offset_text(change.before),
                    after=offset_text(change.after),
                    skipped=change.skipped,
                    note=change.note,
                )
                for change in found.ticks.changes
            ),
            peak=None
            if peak is None
            else reports.PeakAdvice(
                message=peak.message,
                at=local(peak.at_ms),
                starts=peak.starts,
                quiet_at=local(peak.quiet_ms),
                quiet_starts=peak.quiet_starts,
                schedule=peak.schedule,
                jitter=peak.jitter,
            ),
        )
    )


def serialize_search(found: SearchResult, rights: Rights) -> JsonObject:
    """Return what a search found, with what the caller may do with each job."""
    content = SEARCH_RESULTS.to_json(found)
    for shown, each in zip(cast(list[JsonObject], content["jobs"]), found.jobs, strict=True):
        shown["may"] = [*rights.job(each)]
    return content
