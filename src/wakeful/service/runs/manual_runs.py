"""Runs on request: manual, backfill and replay. Pure: the services write them."""

from __future__ import annotations

import contextlib
from typing import Final, Literal, cast, get_args

from wakeful.document import payload_to_text, policy_from_text, work_from_text
from wakeful.errors import FailedPrecondition, InvalidArgument
from wakeful.job.job import JobRecord, Work
from wakeful.job.policy import DEFAULT_POLICY, Overlap, OverlapAction, overlap_action
from wakeful.job.start_rules import NOTHING, find_requirement
from wakeful.launch.precheck import DUE
from wakeful.run.factory import (
    as_instance_signal,
    as_skipped,
    claim_timeout_ms,
    job_signal,
    manual_run,
    run_details,
    signal_of_job,
)
from wakeful.run.instances import JOB_SIGNAL
from wakeful.run.prechecks import context_before
from wakeful.run.run import NewRun, RunDetails, TriggerName
from wakeful.schedule.schedules import At, parse_schedule
from wakeful.service.auth.access import Principal
from wakeful.store.plans import LiveRuns, ManualRunPlan
from wakeful.store.rows import DeadLetter, RunView
from wakeful.values.ids import new_id
from wakeful.values.instants import LATEST_MS
from wakeful.values.json_value import json_value, whole_number

MAX_BACKFILL: Final = 10_000


def read_payload(value: object, longest: int) -> str | None:
    """Return the payload of a run as stored text, checked like that of a job."""
    try:
        return payload_to_text(json_value(value, longest))
    except InvalidArgument as error:
        raise InvalidArgument(f"payload: {error.message}") from error


def triggered_run(
    principal: Principal, job: JobRecord, now_ms: int, *, due_only: bool, payload: str | None
) -> NewRun:
    """Return a run of the job, now, with this payload or that of the job."""
    trigger: TriggerName = "user" if principal.is_person else "agent"
    run = _run(principal, job, trigger, now_ms)._replace(payload=payload)
    # An agent's key cannot skip a precheck by force: the precheck may restrict that agent.
    runs_precheck = job.definition.work.precheck is not None and (due_only or principal.role == "agent")
    return run._replace(reason=DUE) if runs_precheck else run


def hook_run(principal: Principal, job: JobRecord, now_ms: int, payload: str | None) -> NewRun:
    """Return a run of the job that a request to its trigger URL starts. It is prechecked like a tick."""
    return _run(principal, job, "hook", now_ms)._replace(payload=payload)


def event_run(server: str, job: JobRecord, now_ms: int, payload: str | None, chain: int = 0) -> NewRun:
    """Return a run of the job for an event of an MCP server (`on`). It is prechecked like a tick.

    `chain` is how many runs in a row led to it, each by the one before.
    """
    principal = Principal(f"event:{server}", "member", job.workspace, job.agent)
    run = _run(principal, job, "event", now_ms)._replace(payload=payload)
    details = (run.details or RunDetails())._replace(chain_length=chain)
    return run._replace(details=details) if chain else run


def apply_overlap(
    run: NewRun, live: LiveRuns, overlap: Overlap, max_queued: int, now_ms: int
) -> ManualRunPlan:
    """Apply an overlap policy to a run: it starts, waits, is skipped or replaces others."""
    action = overlap_action(overlap, max_queued, running=bool(live.running), waiting=len(live.waiting))
    if action is OverlapAction.SKIP:
        return ManualRunPlan(as_skipped(run, "overlap", now_ms))
    if action is OverlapAction.QUEUE_FULL:
        return ManualRunPlan(as_skipped(run, "queue_full", now_ms))
    run = run._replace(serial=overlap != "allow" and run.instance_id is None)
    if action is OverlapAction.REPLACE:
        return ManualRunPlan(run, tuple((each, "replaced") for each in (*live.running, *live.waiting)))
    if action is OverlapAction.SUPERSEDE:
        return ManualRunPlan(run, tuple((each, "superseded") for each in live.waiting))
    return ManualRunPlan(run)


def read_mode(value: object) -> Literal["force", "due"]:
    """Return the mode of a manual run: `force`, or `due` to run it only if a tick is due."""
    if value == "force" or value == "due":
        return "force" if value == "force" else "due"
    raise InvalidArgument("mode: write 'force' to run it whatever its schedule says, or 'due'")


def read_instant(field: str, value: object, job: JobRecord) -> int:
    """Return an instant in milliseconds. Text without a zone is in the zone of the job."""
    number = whole_number(value)
    if number is not None and 0 <= number <= LATEST_MS:
        return number
    if not isinstance(value, str):
        raise InvalidArgument(
            f"{field}: write an instant such as '2026-01-01T00:00:00Z', or milliseconds since 1970"
        )
    tz = job.definition.timing.schedule.tz if job.definition.timing else None
    try:
        at = parse_schedule({"kind": "at", "at": value}, now_ms=-1, tz=tz or "UTC")
    except InvalidArgument as error:
        raise InvalidArgument(f"{field}: {error.message}") from error
    assert isinstance(at, At)
    return at.at_ms


def read_overlap(value: object) -> Overlap | None:
    """Return the overlap policy of a request, or None.

    >>> read_overlap("queue")
    'queue'
    """
    if value is None:
        return None
    for known in get_args(Overlap):
        if value == known:
            return cast(Overlap, known)
    raise InvalidArgument(f"overlapPolicy: write one of {', '.join(get_args(Overlap))}")


def read_backfill_overlap(value: object) -> Overlap | None:
    """Return the overlap policy of a backfill, or None. Others than these two would drop ticks.

    >>> read_backfill_overlap("allow")
    'allow'
    """
    overlap = read_overlap(value)
    if overlap in (None, "allow", "queue"):
        return overlap
    raise InvalidArgument(
        "overlapPolicy: a backfill takes 'queue', one run after another, or 'allow', all at once"
    )


def backfill_runs(
    principal: Principal,
    job: JobRecord,
    start_ms: int,
    end_ms: int,
    now_ms: int,
    overlap: Overlap | None = None,
) -> list[NewRun]:
    """Return a run for each tick of a past range, both ends included, oldest first.

    They run one after another unless the overlap policy, else that of the job, is `allow`.
    """
    ticks = job.ticks
    if ticks is None:
        raise FailedPrecondition(f"job '{job.name}' has no schedule to backfill")
    if not start_ms <= end_ms <= now_ms:
        raise InvalidArgument("a backfill needs a past range: start <= end <= now")
    wanted = ticks.count(start_ms - 1, end_ms)
    if wanted > MAX_BACKFILL:
        raise InvalidArgument(f"the range has {wanted} ticks; at most {MAX_BACKFILL} in one backfill")
    serial = (overlap or job.definition.policy.overlap) != "allow"
    return [
        _run(principal, job, "backfill", now_ms, tick, serial=serial)
        for tick in ticks.upcoming(start_ms - 1, wanted)
    ]


def replay_run(principal: Principal, letter: DeadLetter, now_ms: int) -> NewRun:
    """Return a new run of a dead letter: same key, next attempt, and the present lane of its job.

    A signal goes to the same instance again, behind those that wait. The precheck of the job runs again, so
    what it found for the old run is left out.
    """
    old = letter.run
    lane, claim_ms = old.lane, DEFAULT_POLICY.claim_timeout_ms if old.is_pull else None
    requirement = NOTHING
    work: Work | None = None
    if old.job_id is not None:
        with contextlib.suppress(InvalidArgument):  # the worker reports a job that cannot be read
            work, policy = work_from_text(letter.work), policy_from_text(letter.policy)
            lane, claim_ms = work.lane, claim_timeout_ms(work, policy)
            requirement = find_requirement(work, old.workspace, old.agent)
    run = NewRun(
        id=new_id(now_ms),
        job_id=old.job_id,
        workspace=old.workspace,
        agent=old.agent,
        job_name=old.job_name,
        scheduled_ms=old.scheduled_ms,
        fire_ms=now_ms,
        trigger="replay",
        triggered_by=principal.actor,
        state="pending",
        reason=None,
        covers=1,
        until_ms=None,
        attempt=old.attempt + 1,
        worker=None,
        lane=lane,
        serial=False,
        due_ms=now_ms,
        started_ms=None,
        finished_ms=None,
        idempotency_key=old.idempotency_key,
        replay_of=old.id,
        payload=old.payload,
        claim_timeout_ms=claim_ms,
        requires=requirement.name,
        requires_version=requirement.version,
        details=_details(old, checked_again=work is not None and work.precheck is not None),
    )
    if work is not None and (old.instance is None or work.instance is None):  # by the present target
        return signal_of_job(run, work, job_signal(old.job_name))
    return run if old.instance is None else as_instance_signal(run, old.instance, old.signal or JOB_SIGNAL)


def _details(old: RunView, *, checked_again: bool) -> RunDetails | None:
    """Return the details of a replay."""
    stale = checked_again and old.precheck is not None
    context = context_before(old.context) if stale else old.context
    details = RunDetails(old.session, old.depth, context)
    return None if details == RunDetails() else details


def _run(
    principal: Principal,
    job: JobRecord,
    trigger: TriggerName,
    now_ms: int,
    scheduled_ms: int | None = None,
    *,
    serial: bool = False,
) -> NewRun:
    work = job.definition.work
    run = manual_run(
        job_id=job.id,
        workspace=job.workspace,
        agent=job.agent,
        job_name=job.name,
        lane=work.lane,
        trigger=trigger,
        now_ms=now_ms,
        scheduled_ms=scheduled_ms,
        triggered_by=principal.actor,
        serial=serial,
        claim_ms=claim_timeout_ms(work, job.definition.policy),
        requirement=find_requirement(work, job.workspace, job.agent),
        details=run_details(work),
    )
    return signal_of_job(run, work, job_signal(job.name))
