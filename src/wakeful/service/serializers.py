"""The JSON of jobs, runs and accounts, the same in every interface. Instants are ISO 8601, in UTC."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from wakeful import model
from wakeful.document import payload_from_text, write_definition
from wakeful.document.agents import OFF
from wakeful.document.fields import DECLARED
from wakeful.evolution.suggestion import Suggestion, describe
from wakeful.job.job import Definition, JobRecord
from wakeful.model import job as model_job
from wakeful.model.codec import JsonObject
from wakeful.run.inbox import InboxRow
from wakeful.run.incidents import Incident
from wakeful.schedule.schedules import Schedule, explain_schedule
from wakeful.service.admin.inbox import Decided, allowed_actions, deciders, describe_item
from wakeful.service.agents.agents import SavedAgent
from wakeful.service.agents.instances import InstanceDetails, StartedInstances
from wakeful.service.agents.messages import Receipt
from wakeful.service.auth.access import Principal
from wakeful.service.auth.actor_names import subject_name
from wakeful.service.auth.masking import mask_alerts, mask_job, mask_value, sees_credentials
from wakeful.service.jobs.bulk_actions import BulkResult, BulkRuns, JobError
from wakeful.service.jobs.hooks import Hook
from wakeful.service.jobs.job_factory import SaveResult
from wakeful.service.jobs.pauses import SkippedTick
from wakeful.service.jobs.revision_rules import FieldChange, Revision
from wakeful.service.rights import Rights
from wakeful.service.row_codec import RowCodec, instant
from wakeful.store.accounts import AgentRow, KeyRow, WorkspaceRow
from wakeful.store.audit import AuditRow
from wakeful.store.instances import DelayRow, InstanceRow, InstanceView, Received
from wakeful.store.quotas import QuotaRow
from wakeful.store.row_mapping import job_from_row
from wakeful.store.rows import AttemptView, JobRow, RunView, WorkflowRow
from wakeful.store.sessions import HistoryRow, SessionView
from wakeful.store.sql.hooks import HookRow
from wakeful.store.sql.subscriptions import SubscriptionRow
from wakeful.values.bounded_cache import MB, bounded_cache
from wakeful.values.json_value import Json

#: What a job has of its definition, besides the declared fields.
_OF_DEFINITION: Final = (
    "tz", "payload", "explain", "origin", "depth", "workflow_id", "version", "user_id", "schedule_origin",
    "schedule_id",
)  # fmt: skip


def masked_url(row: SubscriptionRow) -> Json:
    """Return the callback of a subscription without what may be secret in it."""
    masked = mask_value({"url": row.url})
    return masked["url"] if isinstance(masked, dict) else None


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
INBOX_ITEMS: Final = RowCodec(
    model.InboxItem,
    InboxRow,
    job="job_name",
    since="since_ms",
    until="until_ms",
    detail=describe_item,
    deciders=lambda row: deciders(row.kind),
    may=None,
)
INBOX_DECISIONS: Final = RowCodec(model.InboxDecision, Decided)
INSTANCES: Final = RowCodec(model.InstanceInfo, InstanceRow, id="name", waiting=None, run_id=None)
DELAYS: Final = RowCodec(model.InstanceDelay, DelayRow, at="fire_ms")
REVISIONS: Final = RowCodec(
    model.Revision,
    Revision,
    revision="version",
    by=lambda revision: revision.by or None,
    changes=RowCodec(model.FieldChange, FieldChange),
)
RECEIPTS: Final = RowCodec(model.MessageReceipt, Receipt)
SESSIONS: Final = RowCodec(model.SessionInfo, SessionView)
HISTORY: Final = RowCodec(model.HistoryEntry, HistoryRow, job="job_name")
KEYS: Final = RowCodec(model.ApiKey, KeyRow)
SUBSCRIPTIONS: Final = RowCodec(
    model.EventSubscription,
    SubscriptionRow,
    arguments=lambda row: json.loads(row.arguments),
    url=lambda row: masked_url(row),
)
AUDIT: Final = RowCodec(
    model.AuditEntry, AuditRow, subject_name=lambda row: subject_name(row.action, row.subject)
)
QUOTAS: Final = RowCodec(model.Quota, QuotaRow, agent=lambda row: row.agent or None)
WORKFLOWS: Final = RowCodec(model.WorkflowVersion, WorkflowRow)
WORKSPACES: Final = RowCodec(
    model.Workspace,
    WorkspaceRow,
    lane_weight=lambda row: (
        int(row.lane_weight) if row.lane_weight == int(row.lane_weight) else row.lane_weight
    ),
)
AGENTS: Final = RowCodec(
    model.AgentInfo,
    AgentRow,
    evolution=lambda row: row.evolution or OFF,
)
#: What a job has besides its definition.
#: How many kinds of jobs are remembered while many jobs are serialized.
_MOST_ALIKE: Final = 1_000
JOB_STATE: Final[RowCodec[JobRecord | JobRow, model.Job]] = RowCodec(
    model.Job,
    JobRow,
    paused_until="pause_until_ms",
    next_at="next_ms",
    revision="version",
    created_by=lambda job: job.created_by or None,
    **dict.fromkeys((*(field.option for field in DECLARED), *_OF_DEFINITION), None),
)
_HOOKS: Final = RowCodec(model.Hook, HookRow, previous_id=None, previous_until=None)
_HOOK_RUNS: Final = RowCodec(model_job.HookRun, RunView, job="job_name")
_JOB_IDS: Final = RowCodec(model_job.JobId, JobRow)
_JOB_FAILURES: Final = RowCodec(
    model.JobFailure,
    JobError,
    id=lambda failed: failed.job.id,
    agent=lambda failed: failed.job.agent,
    name=lambda failed: failed.job.name,
    code=lambda failed: failed.error.code,
    message=lambda failed: failed.error.message,
)
_BULK_RESULTS: Final = RowCodec(
    model.BulkResult,
    BulkResult,
    count=lambda result: len(result.jobs),
    jobs=RowCodec(model.JobRef, JobRow, next_at="next_ms", paused_until="pause_until_ms"),
    errors=_JOB_FAILURES,
)
_BULK_RUNS: Final = RowCodec(
    model_job.BulkRuns,
    BulkRuns,
    count=lambda result: len(result.jobs),
    jobs=_JOB_IDS,
    runs=RUNS,
    not_due=_JOB_IDS,
    errors=_JOB_FAILURES,
)


def serialize_job(
    principal: Principal,
    job: JobRecord,
    now_ms: int | None = None,
    ticks: int = 0,
    rights: Rights | None = None,
) -> JsonObject:
    """Return a job as the principal may see it; with `ticks`, its next ticks in its own zone.

    With the rights of the principal, it also says what that may do with it (`may`).
    """
    definition = job.definition
    origin, key = definition.work.origin, job.schedule_key
    content: JsonObject = {
        **JOB_STATE.to_json(job),
        **(write_definition(definition) if sees_credentials(principal) else mask_job(definition)),
        "explain": explain_job(definition),
        "origin": None if origin is None else {**origin._asdict()},
        "depth": definition.work.depth,
    }
    if key is not None:
        content |= {"scheduleOrigin": key.origin, "scheduleId": key.schedule_id}
    if rights is not None:
        content["may"] = [*rights.job(job)]
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
    if definition.work.on is not None:
        return f"On the event {definition.work.on['event']} of {definition.work.on['server']}"
    by_url = "When its trigger URL is called, or it is run by hand"
    return by_url if definition.work.trigger_url else "When it is run by hand"


@bounded_cache(MB, lambda text, schedule: 512 + len(text))
def _explain(schedule: Schedule) -> str:
    return explain_schedule(schedule)


def serialize_saved_job(principal: Principal, saved: SaveResult, now_ms: int) -> JsonObject:
    """Return a saved job, with its secret if it is new, and with warnings if there are any."""
    content = serialize_job(principal, saved.job, now_ms, ticks=5)
    return _with_news(content, saved.secret, saved.warnings)


def serialize_saved_jobs(
    principal: Principal, saved: Iterable[SaveResult], now_ms: int
) -> Iterator[JsonObject]:
    """Return saved jobs. What jobs have in common that differ only in name and payload is serialized once."""
    if not sees_credentials(principal):  # payloads are masked
        yield from (serialize_saved_job(principal, each, now_ms) for each in saved)
        return
    known: dict[JobRow, JsonObject] = {}
    for each in saved:
        row = each.row
        alike = row._replace(id="", name="", payload=None, secret=None)
        content = known.get(alike)
        if content is None:
            if len(known) >= _MOST_ALIKE:
                known.clear()
            content = known[alike] = serialize_job(principal, job_from_row(alike), now_ms, ticks=5)
        own = {"id": row.id, "name": row.name, "payload": payload_from_text(row.payload)}
        yield _with_news({**content, **own}, each.secret, each.warnings)


def serialize_created_job(saved: SaveResult) -> JsonObject:
    """Return what a caller does not know of a job that was created with others."""
    return _with_news(_JOB_IDS.to_json(saved.row), saved.secret, saved.warnings)


def serialize_hook(hook: Hook, base_url: str | None = None) -> JsonObject:
    """Return a trigger URL; if it is new, with its token and its address at `base_url`."""
    previous = hook.previous
    content = _HOOKS.to_json(
        hook.row,
        previous_id=previous.id if previous else None,
        previous_until=instant(previous.expires_ms) if previous else None,
    )
    if hook.token is not None:
        content["token"] = hook.token
        content["url"] = None if base_url is None else f"{base_url}/hooks/{hook.token}"
    return content


def serialize_hook_run(run: RunView) -> JsonObject:
    """Return what the sender of a request to a trigger URL learns of the run."""
    return _HOOK_RUNS.to_json(run)


def serialize_inbox_item(principal: Principal, row: InboxRow) -> JsonObject:
    """Return an item of the inbox, with what the caller may do about it."""
    return INBOX_ITEMS.to_json(row, may=list(allowed_actions(principal, row.kind)))


def inbox_counts(counts: Mapping[str, int]) -> model.InboxCounts:
    """Return how much waits of each kind, and in all."""
    return model.InboxCounts(total=sum(counts.values()), **counts)


def serialize_skipped_tick(principal: Principal, done: SkippedTick, now_ms: int) -> JsonObject:
    """Return a job whose next tick was skipped, with the run that records that tick."""
    return {**serialize_job(principal, done.job, now_ms, ticks=5), "skipped": serialize_run(done.run)}


def serialize_bulk_result(result: BulkResult) -> JsonObject:
    """Return the jobs that were changed together, and those that could not be."""
    return _BULK_RESULTS.to_json(result, **({"warnings": [*result.warnings]} if result.warnings else {}))


def serialize_bulk_runs(result: BulkRuns) -> JsonObject:
    """Return the runs that were started together, and the jobs that could not be run."""
    return _BULK_RUNS.to_json(result)


def serialize_run(
    run: RunView,
    attempts: Sequence[AttemptView] | None = None,
    waiting_for: str | None = None,
    rights: Rights | None = None,
) -> JsonObject:
    """Return a run; with its attempts and what it waits for, if the attempts are given.

    With the rights of the caller, it also says what that may do with it (`may`).
    """
    more: dict[str, Json] = {} if rights is None else {"may": [*rights.run(run)]}
    if attempts is not None:
        more |= {"waiting_for": waiting_for, "attempts": [ATTEMPTS.to_json(each) for each in attempts]}
    return RUNS.to_json(run, **more)


async def serialize_runs(runs: Iterable[RunView], rights: Rights | None = None) -> list[JsonObject]:
    """Return runs. After each the event loop has its turn: a payload may be large."""
    serialized: list[JsonObject] = []
    for run in runs:
        serialized.append(serialize_run(run, rights=rights))
        await asyncio.sleep(0)
    return serialized


def serialize_workspace(principal: Principal, row: WorkspaceRow) -> JsonObject:
    """Return a workspace as the principal may see it, with what it may do with it."""
    content = WORKSPACES.to_json(row, may=Rights(principal, row.name).workspace(row))
    return content if sees_credentials(principal) else content | {"alerts": mask_alerts(content["alerts"])}


def serialize_agent(principal: Principal, row: AgentRow, rights: Rights | None = None) -> JsonObject:
    """Return an agent as the principal may see it; with its rights, what it may do with it (`may`)."""
    content = AGENTS.to_json(row) if rights is None else AGENTS.to_json(row, may=rights.agent(row))
    if not sees_credentials(principal):
        content |= {"target": mask_value(content["target"]), "alerts": mask_alerts(content["alerts"])}
    return content


def serialize_saved_agent(principal: Principal, saved: SavedAgent) -> JsonObject:
    """Return a saved agent, with its secret if it is new, and with warnings if there are any."""
    rights = Rights(principal, saved.row.workspace)
    return _with_news(serialize_agent(principal, saved.row, rights), saved.secret, saved.warnings)


def _with_news(content: JsonObject, secret: str | None, warnings: Sequence[str]) -> JsonObject:
    if secret is not None:
        content["secret"] = secret
    if warnings:
        content["warnings"] = [*warnings]
    return content


def serialize_instance(view: InstanceView, rights: Rights | None = None) -> JsonObject:
    """Return an instance as it is listed; with the rights of the caller, what that may do with it (`may`)."""
    more: dict[str, Json] = {} if rights is None else {"may": [*rights.instance(view.row)]}
    return INSTANCES.to_json(view.row, waiting=view.waiting, run_id=view.active_run, **more)


def serialize_started(started: StartedInstances) -> JsonObject:
    """Return the instances that were started together, and those that could not be."""
    errors: list[Json] = [
        {"id": name, "code": error.code, "message": error.message} for name, error in started.errors.items()
    ]
    return {"instances": [serialize_instance(view) for view in started.views], "errors": errors}


def serialize_instance_details(principal: Principal, details: InstanceDetails, rights: Rights) -> JsonObject:
    """Return an instance with its schedules, and its state if the principal may see it."""
    content = serialize_instance(details.view, rights)
    content["schedules"] = [serialize_job(principal, job, rights=rights) for job in details.schedules]
    content["delays"] = [DELAYS.to_json(delay) for delay in details.delays]
    if details.has_state:
        content["state"] = details.state
        content["stateError"] = details.state_error
    return content


def serialize_received(received: Received) -> JsonObject:
    """Return the run of a signal that was sent; of a duplicate, the run of the first one."""
    return RUNS.to_json(received.run, duplicate=received.duplicate)


def serialize_sent(received: Sequence[Received], *, batch: bool) -> JsonObject:
    """Return the run of one signal, or the `runs` of a batch."""
    runs = [serialize_received(each) for each in received]
    return {"runs": [*runs]} if batch else runs[0]
