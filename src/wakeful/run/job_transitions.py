"""State changes of a job: edit, pause, disable, resume, skip a tick. Pure.

The job of an instance's schedule is created here, and changed when the schedule is set again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from wakeful.errors import FailedPrecondition
from wakeful.job.job import AGENT_INACTIVE, Definition, JobRecord, ScheduleKey, choose_anchor
from wakeful.run.planning import Becomes, TickVerdict, begin, fire_ms, job_state, overdue
from wakeful.schedule.schedules import At
from wakeful.values.ids import new_id
from wakeful.values.plural import plural

#: The reason of a tick that is skipped on request.
SKIP_REASON: Final = "asked"
#: How many ticks ahead may be skipped on request.
MAX_SKIPPED: Final = 1_000
#: The reason why a declared schedule is disabled that its agent cancelled.
CANCELLED_BY_AGENT: Final = "cancelled_by_agent"
#: Who creates the jobs of declared schedules. Keys of the role `agent` may not change them.
WAKEFUL: Final = "admin:wakeful"


def edit_job(
    old: JobRecord, definition: Definition, now_ms: int, enabled: bool | None = None, *, active: bool = True
) -> JobRecord:
    """Return the job with another definition, enabled or disabled if `enabled` is set.

    The next tick stays unless the timing changes; then it is the first tick from now without a record. A job
    that was over, because it had no tick left or reached `maxRuns`, is enabled again if the edit gives it
    more. A job that has as many runs as its new `maxRuns` is over. Without `active` its agent is not active:
    what enables the job gives it no ticks until the agent is.
    """
    job = replace(old, definition=definition, updated_ms=now_ms)
    moved = definition.timing != old.definition.timing
    if moved:
        job = replace(
            job, anchor_ms=choose_anchor(definition, now_ms, old), decided=_decided_ticks(old, now_ms)
        )
    if enabled is None:
        enabled = old.enabled or _is_reactivated(old, job, moved, now_ms)
    if not enabled:
        return replace(pause_job(job, now_ms), decided=_decided_ticks(old, now_ms)) if old.enabled else job
    if not old.enabled:
        ready = resume_job(job, now_ms)
        return ready if active else disable_job(job, now_ms, AGENT_INACTIVE)
    if has_max_runs(job):  # the edit lowers `maxRuns`
        return replace(disable_job(job, now_ms, "max_runs"), decided=_decided_ticks(old, now_ms))
    if moved:
        next_ms, wake_ms = begin(job.id, definition, job.anchor_ms, now_ms, job.decided)
        return replace(job, next_ms=next_ms, wake_ms=wake_ms)
    if job.ticks is not None and job.next_ms is not None:
        # A tick that is due keeps its scheduled time; when it fires depends on the policy.
        policy, work = definition.policy, definition.work
        return replace(job, wake_ms=fire_ms(job.id, job.ticks, policy, job.next_ms, work))
    return job


def is_pausable(job: JobRecord) -> bool:
    """Return whether the job has ticks, now or as soon as its agent is active."""
    return job.enabled or job.disabled_reason == AGENT_INACTIVE


def pause_job(job: JobRecord, now_ms: int, note: str | None = None, until_ms: int | None = None) -> JobRecord:
    """Return the job without ticks until it is resumed, or until the planner resumes it at `until_ms`."""
    return replace(
        job,
        enabled=False,
        disabled_reason="paused",
        next_ms=None,
        wake_ms=until_ms,
        updated_ms=now_ms,
        pause_note=note,
        pause_until_ms=until_ms,
        decided=_decided_ticks(job, now_ms),
    )


def disable_job(job: JobRecord, now_ms: int, reason: str) -> JobRecord:
    """Return the job without ticks, disabled for this reason."""
    return replace(
        job,
        enabled=False,
        disabled_reason=reason,
        next_ms=None,
        wake_ms=None,
        updated_ms=now_ms,
        pause_note=None,
        pause_until_ms=None,
        decided=_decided_ticks(job, now_ms),
    )


def resume_job(job: JobRecord, now_ms: int) -> JobRecord:
    """Return the job with ticks from now on; FailedPrecondition if it has no tick left."""
    name = job.definition.name
    if has_max_runs(job):
        raise FailedPrecondition(
            f"job '{name}' has reached its maxRuns of {plural(job.run_count, 'run')}; give it a higher "
            "maxRuns"
        )
    next_ms, wake_ms = begin(job.id, job.definition, job.anchor_ms, now_ms, job.decided)
    if next_ms is None and job.definition.timing is not None:
        raise FailedPrecondition(f"job '{name}' has no tick left; give it another schedule")
    return replace(
        job,
        enabled=True,
        disabled_reason=None,
        next_ms=next_ms,
        wake_ms=wake_ms,
        failures=0,
        updated_ms=now_ms,
        pause_note=None,
        pause_until_ms=None,
    )


def skip_tick(job: JobRecord, now_ms: int) -> tuple[JobRecord, TickVerdict]:
    """Return the job after its next tick is skipped on request, and the verdict of that tick."""
    ticks, tick, policy, work = job.open_ticks, job.next_ms, job.definition.policy, job.definition.work
    if ticks is None or tick is None:
        why = "it has no schedule of its own" if ticks is None else "it is not enabled"
        raise FailedPrecondition(f"job '{job.name}' has no next tick to skip: {why}")
    fire = fire_ms(job.id, ticks, policy, tick, work)
    if fire <= now_ms:
        raise FailedPrecondition(
            f"a tick of job '{job.name}' is due and not planned yet; try again when a worker has planned it"
        )
    decided = tuple(sorted({*_decided_ticks(job, now_ms), tick}))
    if len(decided) > MAX_SKIPPED:
        raise FailedPrecondition(
            f"{MAX_SKIPPED} ticks of job '{job.name}' are skipped already; pause it instead, until the time "
            "from which it is to run"
        )
    verdict = TickVerdict(tick, fire, Becomes.SKIPPED, SKIP_REASON)
    job = replace(job, updated_ms=now_ms, decided=decided)
    after = ticks.next(tick)
    if after is None:
        over = replace(job, enabled=False, disabled_reason="no_more_ticks", next_ms=None, wake_ms=None)
        return over, verdict
    return replace(job, next_ms=after, wake_ms=fire_ms(job.id, ticks, policy, after, work)), verdict


def _decided_ticks(job: JobRecord, now_ms: int) -> tuple[int, ...]:
    """Return the ticks after now that have a record or get one with this change, and the last of all."""
    kept = {tick for tick in job.decided if tick > now_ms}
    ticks, state = job.ticks, job_state(job)
    if job.enabled and ticks is not None and state is not None and job.next_ms is not None:
        missed = overdue(state, now_ms, "edited")
        last = ticks.prev(job.next_ms) if missed is None else missed.until_ms
        kept |= set() if last is None else {last}
    return tuple(sorted(kept))


def _is_reactivated(old: JobRecord, job: JobRecord, moved: bool, now_ms: int) -> bool:
    """Return whether the job was over, not paused, and the edit gives it more ticks or runs."""
    if old.disabled_reason == "max_runs":
        return not has_max_runs(job)
    # A one-time job that failed is over too; a recurring job was disabled because it failed.
    over = old.disabled_reason == "no_more_ticks" or (
        old.disabled_reason == "failed" and old.ticks is not None and old.ticks.next(now_ms) is None
    )
    return over and moved and not has_max_runs(job)


def has_max_runs(job: JobRecord) -> bool:
    """Return whether the job has reached `maxRuns`."""
    max_runs = job.definition.policy.max_runs
    return max_runs is not None and job.run_count >= max_runs


def schedule_job(
    key: ScheduleKey,
    workspace: str,
    agent: str,
    definition: Definition,
    old: JobRecord | None,
    now_ms: int,
    created_by: str,
    *,
    active: bool = True,
) -> JobRecord | None:
    """Return the job of a schedule that is set: a new one, or the old one with this definition.

    None if nothing changes. A schedule that a person paused stays paused; one that is disabled for another
    reason is enabled again. Without `active` its agent is not active, and it has no ticks until the agent is.
    FailedPrecondition: the old one has no run or tick left.
    """
    if old is None:
        job_id = new_id(now_ms)
        anchor_ms = choose_anchor(definition, now_ms)
        at_ms = one_time_ms(definition)
        # An instant that has passed since the handler returned is caught up, as for every one-time job.
        from_ms = now_ms if at_ms is None else min(now_ms, at_ms - 1)
        next_ms, wake_ms = begin(job_id, definition, anchor_ms, from_ms)
        job = JobRecord(
            id=job_id,
            workspace=workspace,
            agent=agent,
            definition=definition,
            enabled=True,
            anchor_ms=anchor_ms,
            next_ms=next_ms,
            wake_ms=wake_ms,
            created_ms=now_ms,
            updated_ms=now_ms,
            created_by=created_by,
            schedule_key=key,
        )
        return job if active else replace(pause_job(job, now_ms), disabled_reason=AGENT_INACTIVE)
    enables = not old.enabled and old.disabled_reason not in ("paused", AGENT_INACTIVE)
    enable = True if enables else None
    if old.definition == definition and enable is None:
        return None
    return edit_job(old, definition, now_ms, enable, active=active)


def one_time_ms(definition: Definition) -> int | None:
    """Return the only instant of a one-time schedule."""
    schedule = definition.timing.schedule if definition.timing else None
    return schedule.at_ms if isinstance(schedule, At) else None
