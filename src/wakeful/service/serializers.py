"""The JSON of jobs, runs and accounts, the same in every interface. Instants are ISO 8601, in UTC."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from wakeful.document import json_from_text, payload_from_text, write_definition
from wakeful.forecast.peaks import MINUTE_MS, WEEK_MINUTES
from wakeful.job.job import Definition, JobRecord, Json
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
from wakeful.service.jobs.revision_rules import Revision
from wakeful.store.accounts import AgentRow, KeyRow, WorkspaceRow
from wakeful.store.audit import AuditRow
from wakeful.store.jobs import WorkflowRow
from wakeful.store.quotas import QuotaRow
from wakeful.store.rows import AttemptView, JobRow, RunView
from wakeful.store.sessions import HistoryEntry, SessionView
from wakeful.values.bounded_cache import MB, bounded_cache

JsonObject = dict[str, Json]


def instant(ms: int | None, tz: str | None = None) -> str | None:
    """Return an instant as text, in UTC or with the offset of a zone.

    >>> instant(1_800_000_000_123)
    '2027-01-15T08:00:00.123Z'
    >>> instant(1_800_000_000_123, "Europe/Berlin")
    '2027-01-15T09:00:00.123+01:00'
    """
    if ms is None:
        return None
    if tz is None:
        return _in_utc(ms)
    at = datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)
    return at.astimezone(ZoneInfo(tz)).isoformat(timespec="milliseconds")


@lru_cache(maxsize=1_024)  # a run has up to seven instants, and most of them are equal
def _in_utc(ms: int) -> str:
    at = datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000, tzinfo=None)
    return at.isoformat(timespec="milliseconds") + "Z"


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


def serialize_revision(revision: Revision) -> JsonObject:
    """Return a revision of a job: what it changed, when, and who made it."""
    changes: list[Json] = [
        {"field": each.field, "before": each.before, "after": each.after, "hidden": each.hidden}
        for each in revision.changes
    ]
    return {
        "revision": revision.version,
        "at": instant(revision.at_ms),
        "by": revision.by or None,
        "changes": changes,
    }


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
        "until": instant(week.start_ms + WEEK_MINUTES * MINUTE_MS),
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
    content: JsonObject = {
        "id": run.id,
        "jobId": run.job_id,
        "workspace": run.workspace,
        "agentId": run.agent,
        "job": run.job_name,
        "scheduledAt": instant(run.scheduled_ms),
        "scheduledAtMs": run.scheduled_ms,
        "fireAt": instant(run.fire_ms),
        "trigger": run.trigger,
        "triggeredBy": run.triggered_by,
        "state": run.state,
        "reason": run.reason,
        "verifying": run.verifying,
        "covers": run.covers,
        "missed": run.missed,
        "untilAt": instant(run.claim_deadline_ms if run.until_ms is None else run.until_ms),
        "attempt": run.attempt,
        "failedAttempts": run.failed_attempts,
        "worker": run.shown_worker,
        "lane": run.lane,
        "dueAt": instant(run.due_ms),
        "startedAt": instant(run.started_ms),
        "finishedAt": instant(run.finished_ms),
        "idempotencyKey": run.idempotency_key,
        "replayOf": run.replay_of,
        "payload": json_from_text(run.payload),
        "session": run.session,
        "depth": run.depth,
        "context": json_from_text(run.context),
        "instance": run.instance,
        "signal": run.signal,
        "emitted": json_from_text(run.emitted),
        "requires": run.requires or None,
        "requiresVersion": run.requires_version,
        "responseCode": run.response_code,
        "output": run.output,
        "error": run.error,
        "usage": json_from_text(run.usage),
        "evidence": json_from_text(run.evidence),
        "dead": run.dead,
        "delivery": run.delivery,
        "deliveryError": run.delivery_error,
        "createdAt": instant(run.created_ms),
    }
    if attempts is not None:
        content["waitingFor"] = waiting_for
        content["attempts"] = [
            {
                "attempt": each.attempt,
                "worker": each.worker,
                "startedAt": instant(each.started_ms),
                "finishedAt": instant(each.finished_ms),
                "responseCode": each.response_code,
                "error": each.error,
                "output": each.output,
            }
            for each in attempts
        ]
    return content


async def serialize_runs(runs: Iterable[RunView]) -> list[JsonObject]:
    """Return runs. After each the event loop has its turn: a payload may be large."""
    serialized: list[JsonObject] = []
    for run in runs:
        serialized.append(serialize_run(run))
        await asyncio.sleep(0)
    return serialized


def serialize_incident(incident: Incident) -> JsonObject:
    """Return an incident."""
    recovered = incident.state == "recovered"
    return {
        "id": incident.id,
        "workspace": incident.workspace,
        "agentId": incident.agent,
        "jobId": incident.job_id,
        "job": incident.job_name,
        "cause": incident.cause,
        "state": incident.state,
        "error": incident.error,
        "openedAt": instant(incident.opened_ms),
        "lastFailedAt": instant(incident.failed_ms),
        "failedRuns": incident.failed_runs,
        "firstRunId": incident.first_run_id,
        "lastRunId": incident.last_run_id,
        "reopened": incident.reopened,
        "acknowledgedAt": instant(incident.acknowledged_ms),
        "acknowledgedBy": incident.acknowledged_by,
        "note": incident.note,
        "alertedAt": instant(incident.alerted_ms),
        "remindedAt": instant(incident.reminded_ms),
        "recoveredAt": instant(incident.closed_ms) if recovered else None,
        "recoveredByRunId": incident.closed_by_run,
        "closedAt": None if recovered else instant(incident.closed_ms),
        "closedReason": None if recovered else incident.closed_reason,
    }


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


def serialize_receipt(receipt: Receipt) -> JsonObject:
    """Return the result of a message to an agent."""
    return {
        "id": receipt.id,
        "session": receipt.session,
        "state": receipt.state,
        "runId": receipt.run_id,
        "dueAt": instant(receipt.due_ms),
        "waiting": receipt.waiting,
        "stopped": list(receipt.stopped),
        "dropped": receipt.dropped,
    }


def serialize_session(session: SessionView) -> JsonObject:
    """Return a session."""
    return {
        "name": session.name,
        "messages": session.messages,
        "turns": list(session.turns),
        "context": session.context,
        "dueAt": instant(session.due_ms),
        "channel": session.channel,
        "to": session.to,
        "createdAt": instant(session.created_ms),
        "updatedAt": instant(session.updated_ms),
    }


def serialize_history_entry(entry: HistoryEntry) -> JsonObject:
    """Return an entry of the history of a session."""
    return {
        "sequence": entry.sequence,
        "role": entry.role,
        "content": entry.content,
        "tokens": entry.tokens,
        "runId": entry.run_id,
        "job": entry.job_name,
        "at": instant(entry.at_ms),
    }


def serialize_key(row: KeyRow) -> JsonObject:
    """Return a key, without its text."""
    return {
        "id": row.id,
        "workspace": row.workspace,
        "name": row.name,
        "role": row.role,
        "agent": row.agent,
        "createdAt": instant(row.created_ms),
        "createdBy": row.created_by,
        "expiresAt": instant(row.expires_ms),
        "lastUsedAt": instant(row.last_used_ms),
        "revokedAt": instant(row.revoked_ms),
    }


def serialize_audit_entry(row: AuditRow) -> JsonObject:
    """Return an audit entry."""
    return {
        "seq": row.seq,
        "at": instant(row.at_ms),
        "atMs": row.at_ms,
        "actor": row.actor,
        "action": row.action,
        "subject": row.subject,
        "details": payload_from_text(row.details),
        "address": row.address,
        "before": row.before,
        "hash": row.hash,
    }


def serialize_quota(row: QuotaRow) -> JsonObject:
    """Return a quota."""
    return {"agent": row.agent or None, "bucket": row.bucket, "limit": row.limit, "used": row.used}


def serialize_workflow(row: WorkflowRow) -> JsonObject:
    """Return a version of a workflow."""
    return {
        "id": row.id,
        "version": row.version,
        "dag": payload_from_text(row.dag),
        "createdAt": instant(row.created_ms),
    }
