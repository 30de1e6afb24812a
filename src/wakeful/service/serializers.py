"""The JSON of jobs, runs and accounts, the same in every interface. Instants are ISO 8601, in UTC."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import Final

from wakeful import model
from wakeful.document import payload_from_text, write_definition
from wakeful.evolution.suggestion import Suggestion, describe
from wakeful.forecast.peaks import WEEK_MINUTES
from wakeful.job.job import Definition, JobRecord
from wakeful.model.codec import JsonObject
from wakeful.run.incidents import Incident
from wakeful.schedule.schedules import Schedule, explain_schedule
from wakeful.service.admin.peaks import ComputedWeek
from wakeful.service.agents.agents import SavedAgent, write_agent
from wakeful.service.agents.messages import Receipt
from wakeful.service.auth.access import Principal
from wakeful.service.auth.masking import masked, masked_alerts, masked_job, sees_credentials
from wakeful.service.jobs.bulk_actions import BulkResult, BulkRuns, JobError
from wakeful.service.jobs.hooks import Hook
from wakeful.service.jobs.job_factory import SaveResult
from wakeful.service.jobs.pauses import SkippedTick
from wakeful.service.jobs.revision_rules import FieldChange, Revision
from wakeful.service.row_codec import RowCodec, instant
from wakeful.store.accounts import AgentRow, KeyRow, WorkspaceRow
from wakeful.store.audit import AuditRow
from wakeful.store.instances import InstanceRow
from wakeful.store.quotas import QuotaRow
from wakeful.store.rows import AttemptView, JobRow, RunView, WorkflowRow
from wakeful.store.sessions import HistoryEntry, SessionView
from wakeful.values.bounded_cache import MB, bounded_cache
from wakeful.values.duration import MINUTE
from wakeful.values.json_value import Json


def _summary(suggestion: Suggestion) -> str:
    return describe(suggestion.rule, json.loads(suggestion.figures), json.loads(suggestion.change))


RUNS: Final = RowCodec(
    model.Run,
    RunView,
    job="job_name",
    worker="shown_worker",
    until_at=lambda run: run.claim_deadline_ms if run.until_ms is None else run.until_ms,
    requires=lambda run: run.requires or None,
)
ATTEMPTS: Final = RowCodec(model.Attempt, AttemptView)
INCIDENTS: Final = RowCodec(
    model.Incident,
    Incident,
    job="job_name",
    last_failed_at="failed_ms",
    recovered_at=lambda incident: incident.closed_ms if incident.state == "recovered" else None,
    recovered_by_run_id="closed_by_run",
    closed_at=lambda incident: None if incident.state == "recovered" else incident.closed_ms,
    closed_reason=lambda incident: None if incident.state == "recovered" else incident.closed_reason,
)
SUGGESTIONS: Final = RowCodec(model.Suggestion, Suggestion, job="job_name", summary=_summary)
INSTANCES: Final = RowCodec(model.InstanceInfo, InstanceRow, id="name", waiting=None, run_id=None)
REVISIONS: Final = RowCodec(
    model.Revision,
    Revision,
    revision="version",
    by=lambda revision: revision.by or None,
    changes=RowCodec(model.FieldChange, FieldChange),
)
RECEIPTS: Final = RowCodec(model.MessageReceipt, Receipt)
SESSIONS: Final = RowCodec(model.SessionInfo, SessionView)
HISTORY: Final = RowCodec(model.HistoryEntry, HistoryEntry, job="job_name")
KEYS: Final = RowCodec(model.ApiKey, KeyRow)
AUDIT: Final = RowCodec(model.AuditEntry, AuditRow)
QUOTAS: Final = RowCodec(model.Quota, QuotaRow, agent=lambda row: row.agent or None)
WORKFLOWS: Final = RowCodec(model.WorkflowVersion, WorkflowRow)


def serialize_job(
    principal: Principal, job: JobRecord, now_ms: int | None = None, ticks: int = 0
) -> JsonObject:
    """Return a job as the principal may see it; with `ticks`, its next ticks in its own zone."""
    definition = job.definition
    origin = definition.work.origin
    content: JsonObject = {
        "id": job.id,
        "workspace": job.workspace,
        "agentId": job.agent,
        **(write_definition(definition) if sees_credentials(principal) else masked_job(definition)),
        "enabled": job.enabled,
        "disabledReason": job.disabled_reason,
        "pauseNote": job.pause_note,
        "pausedUntil": instant(job.pause_until_ms),
        "nextAt": instant(job.next_ms),
        "nextAtMs": job.next_ms,
        "explain": explain_job(definition),
        "runCount": job.run_count,
        "failures": job.failures,
        "revision": job.version,
        "createdAt": instant(job.created_ms),
        "createdBy": job.created_by or None,
        "origin": None if origin is None else {**origin._asdict()},
        "depth": definition.work.depth,
        "updatedAt": instant(job.updated_ms),
    }
    if job.schedule_key is not None:
        content["scheduleOrigin"] = job.schedule_key.origin
        content["scheduleId"] = job.schedule_key.schedule_id
    if ticks and now_ms is not None:
        content["nextTicks"] = list(next_ticks(job, now_ms, ticks))
    return content


def next_ticks(job: JobRecord, now_ms: int, count: int) -> list[Json]:
    """Return the next ticks of a job; none if it is paused or over."""
    timing, ticks = job.definition.timing, job.open_ticks
    if timing is None or ticks is None or job.next_ms is None:
        return []
    tz = timing.schedule.tz or "UTC"
    # The next tick may be due and not planned yet.
    return [{"at": instant(ms, tz), "atMs": ms} for ms in ticks.upcoming(job.next_ms - 1, count)]


def explain_job(definition: Definition) -> str:
    """Return when a job fires, in words."""
    timing, after = definition.timing, definition.after
    if timing is not None:
        return _explain(timing.schedule)
    if after is not None:
        return f"After a run of {after.job} has {after.on}"
    by_url = "When its trigger URL is called, or it is run by hand"
    return by_url if definition.work.trigger_url else "When it is run by hand"


@bounded_cache(MB, lambda text, schedule: 512 + len(text))
def _explain(schedule: Schedule) -> str:
    return explain_schedule(schedule)


def serialize_saved_job(principal: Principal, saved: SaveResult, now_ms: int) -> JsonObject:
    """Return a saved job, with its secret if it is new, and with warnings if there are any."""
    content = serialize_job(principal, saved.job, now_ms, ticks=5)
    return _with_news(content, saved.secret, saved.warnings)


def serialize_hook(hook: Hook, base_url: str | None = None) -> JsonObject:
    """Return a trigger URL; if it is new, with its token and its address at `base_url`."""
    row, previous = hook.row, hook.previous
    content: JsonObject = {
        "id": row.id,
        "createdAt": instant(row.created_ms),
        "createdBy": row.created_by,
        "previousId": previous.id if previous else None,
        "previousUntil": instant(previous.expires_ms) if previous else None,
    }
    if hook.token is not None:
        content["token"] = hook.token
        content["url"] = None if base_url is None else f"{base_url}/hooks/{hook.token}"
    return content


def serialize_hook_run(run: RunView) -> JsonObject:
    """Return what the sender of a request to a trigger URL learns of the run."""
    return {"id": run.id, "job": run.job_name, "state": run.state, "trigger": run.trigger}


def serialize_week(computed: ComputedWeek, workspace: str, agent: str | None, now_ms: int) -> JsonObject:
    """Return the load of the coming week: its busiest minutes, and every hour."""
    week = computed.week
    hours: list[Json] = [
        {
            "at": instant(hour.at_ms),
            "starts": hour.starts,
            "peakAt": instant(hour.peak_at_ms),
            "peakStarts": hour.peak_starts,
        }
        for hour in week.hours()
    ]
    peaks: list[Json] = []
    for peak in week.peaks:
        quiet = week.quiet_minute(peak.at_ms)
        peaks.append(
            {
                "at": instant(peak.at_ms),
                "atMs": peak.at_ms,
                "starts": peak.starts,
                "schedules": [{"explain": each.explain, "jobs": each.jobs} for each in peak.schedules],
                "quietAt": None if quiet is None else instant(quiet[0]),
                "quietStarts": None if quiet is None else quiet[1],
            }
        )
    return {
        "workspace": workspace,
        "agentId": agent,
        "computedAt": instant(computed.computed_ms),
        "ageMs": max(0, now_ms - computed.computed_ms),
        "from": instant(week.start_ms),
        "until": instant(week.start_ms + WEEK_MINUTES * MINUTE),
        "jobs": week.jobs,
        "timings": week.timings,
        "starts": round(sum(week.starts)),
        "peaks": peaks,
        "hours": hours,
    }


def serialize_skipped_tick(principal: Principal, done: SkippedTick, now_ms: int) -> JsonObject:
    """Return a job whose next tick was skipped, with the run that records that tick."""
    return {**serialize_job(principal, done.job, now_ms, ticks=5), "skipped": serialize_run(done.run)}


def serialize_bulk_result(result: BulkResult) -> JsonObject:
    """Return the jobs that were changed together, and those that could not be."""
    jobs: list[Json] = [
        {**_job_reference(job), "nextAt": instant(job.next_ms), "pausedUntil": instant(job.pause_until_ms)}
        for job in result.jobs
    ]
    return {
        "dryRun": result.dry_run,
        "count": len(jobs),
        "jobs": jobs,
        "unchanged": result.unchanged,
        "errors": _job_errors(result.errors),
        **({"warnings": [*result.warnings]} if result.warnings else {}),
    }


def serialize_bulk_runs(result: BulkRuns) -> JsonObject:
    """Return the runs that were started together, and the jobs that could not be run."""
    return {
        "dryRun": result.dry_run,
        "count": len(result.jobs),
        "jobs": [_job_reference(job) for job in result.jobs],
        "runs": [serialize_run(run) for run in result.runs],
        "notDue": [_job_reference(job) for job in result.not_due],
        "errors": _job_errors(result.errors),
    }


def _job_reference(job: JobRow) -> JsonObject:
    return {"id": job.id, "agentId": job.agent, "name": job.name}


def _job_errors(errors: Sequence[JobError]) -> list[Json]:
    return [
        {**_job_reference(each.job), "code": each.error.code, "message": each.error.message}
        for each in errors
    ]


def serialize_run(
    run: RunView, attempts: Sequence[AttemptView] | None = None, waiting_for: str | None = None
) -> JsonObject:
    """Return a run; with its attempts and what it waits for, if the attempts are given."""
    if attempts is None:
        return RUNS.to_json(run)
    return RUNS.to_json(run, waiting_for=waiting_for, attempts=[ATTEMPTS.to_json(each) for each in attempts])


async def serialize_runs(runs: Iterable[RunView]) -> list[JsonObject]:
    """Return runs. After each the event loop has its turn: a payload may be large."""
    serialized: list[JsonObject] = []
    for run in runs:
        serialized.append(serialize_run(run))
        await asyncio.sleep(0)
    return serialized


def serialize_workspace(principal: Principal, row: WorkspaceRow) -> JsonObject:
    """Return a workspace."""
    alerts = payload_from_text(row.alerts)
    return {
        "name": row.name,
        "tz": row.tz,
        "description": row.description,
        "budget": payload_from_text(row.budget),
        "alerts": alerts if sees_credentials(principal) else masked_alerts(alerts),
        "laneWeight": int(row.lane_weight) if row.lane_weight == int(row.lane_weight) else row.lane_weight,
        "createdAt": instant(row.created_ms),
        "updatedAt": instant(row.updated_ms),
    }


def serialize_agent(principal: Principal, row: AgentRow) -> JsonObject:
    """Return an agent."""
    document = write_agent(row)
    if not sees_credentials(principal):
        document |= {"target": masked(document["target"]), "alerts": masked_alerts(document["alerts"])}
    return {
        "name": row.name,
        "workspace": row.workspace,
        **document,
        "version": row.version,
        "createdAt": instant(row.created_ms),
        "updatedAt": instant(row.updated_ms),
    }


def serialize_saved_agent(principal: Principal, saved: SavedAgent) -> JsonObject:
    """Return a saved agent, with its secret if it is new, and with warnings if there are any."""
    return _with_news(serialize_agent(principal, saved.row), saved.secret, saved.warnings)


def _with_news(content: JsonObject, secret: str | None, warnings: Sequence[str]) -> JsonObject:
    if secret is not None:
        content["secret"] = secret
    if warnings:
        content["warnings"] = [*warnings]
    return content
