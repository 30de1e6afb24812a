"""What an edit, a pause or a resumption makes of a job: pure, and judged whole before anything is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from wakeful.errors import FailedPrecondition
from wakeful.job import Definition, JobRecord, anchor_of
from wakeful.planning import Becomes, Verdict, begin, fire_ms, job_state, overdue
from wakeful.run import NewRun
from wakeful.run_factory import claim_timeout_ms, tick_run
from wakeful.store.row_mapping import job_of
from wakeful.store.rows import JobRow, Move


def edited(old: JobRecord, definition: Definition, now_ms: int, enabled: bool | None = None) -> JobRecord:
    """The job with another definition, and switched on or off where `enabled` says so.

    Its next tick stays what it was unless the timing is another; then it is the first from now on. A job
    that was over, with no tick left or as many runs as it may have, lives again when the edit gives it more.
    """
    job = replace(old, definition=definition, updated_ms=now_ms)
    moved = definition.timing != old.definition.timing
    if moved:
        job = replace(job, anchor_ms=anchor_of(definition, now_ms, old))
    if enabled is None:
        enabled = old.enabled or _is_reactivated(old, job, moved, now_ms)
    if not enabled:
        return paused(job, now_ms) if old.enabled else job
    if not old.enabled:
        return resumed(job, now_ms)
    if moved:
        next_ms, wake_ms = begin(job.id, definition, job.anchor_ms, now_ms)
        return replace(job, next_ms=next_ms, wake_ms=wake_ms)
    if job.ticks is not None and job.next_ms is not None:
        # A tick that is due already keeps its place: only when it fires depends on the policy.
        return replace(job, wake_ms=fire_ms(job.id, job.ticks, definition.policy, job.next_ms))
    return job


def missed_runs(
    row: JobRow, now_ms: int, reason: Literal["paused", "edited", "deleted"]
) -> tuple[NewRun, ...]:
    """The record of the ticks that were due, and that no planner had come to, when a job stops having them.

    While nobody is awake to plan, somebody may still pause or edit a job: what it missed until then is not
    to vanish with its cursor.
    """
    job = job_of(row)
    state = job_state(job)
    verdict = overdue(state, now_ms, reason) if state and job.enabled else None
    if verdict is None:
        return ()
    definition = job.definition
    return (tick_run(row, definition.policy, definition.work, verdict, now_ms, None),)


def moved(old: JobRecord, new: JobRecord) -> Move | None:
    """Where its runs wait from now on that wait already; None: where they do.

    What a run is launched with is read when it is: so one goes with its job to another lane, to be claimed by
    an executor, or back to a worker.
    """
    work, before = new.definition.work, old.definition.work
    if (work.lane, work.pulled) == (before.lane, before.pulled):
        return None
    return Move(work.lane, claim_timeout_ms(work, new.definition.policy))


def paused(job: JobRecord, now_ms: int, note: str | None = None, until_ms: int | None = None) -> JobRecord:
    """The job without ticks until it is resumed, or until `until_ms`, when the planner resumes it."""
    return replace(
        job,
        enabled=False,
        disabled_reason="paused",
        next_ms=None,
        wake_ms=until_ms,
        updated_ms=now_ms,
        pause_note=note,
        pause_until_ms=until_ms,
    )


def resumed(job: JobRecord, now_ms: int) -> JobRecord:
    """The job with its ticks from now on; FailedPrecondition where there are none to be had."""
    name = job.definition.name
    if has_max_runs(job):
        raise FailedPrecondition(
            f"job '{name}' has had the {job.run_count} runs that it may have; give it a higher maxRuns"
        )
    next_ms, wake_ms = begin(job.id, job.definition, job.anchor_ms, now_ms)
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


def skipped(job: JobRecord, now_ms: int) -> tuple[JobRecord, Verdict]:
    """The job after its next tick is skipped on request, and what that tick becomes."""
    ticks, tick, policy = job.ticks, job.next_ms, job.definition.policy
    if ticks is None or tick is None:
        why = "it has no schedule of its own" if ticks is None else "it is not enabled"
        raise FailedPrecondition(f"job '{job.name}' has no next tick to skip: {why}")
    fire = fire_ms(job.id, ticks, policy, tick)
    if fire <= now_ms:
        raise FailedPrecondition(
            f"a tick of job '{job.name}' is due and not planned yet; try again when a worker has planned it"
        )
    verdict = Verdict(tick, fire, Becomes.SKIPPED, "asked")
    after = ticks.next(tick)
    if after is None:
        over = replace(job, enabled=False, disabled_reason="no_more_ticks", next_ms=None, wake_ms=None)
        return replace(over, updated_ms=now_ms), verdict
    wake_ms = fire_ms(job.id, ticks, policy, after)
    return replace(job, next_ms=after, wake_ms=wake_ms, updated_ms=now_ms), verdict


def _is_reactivated(old: JobRecord, job: JobRecord, moved: bool, now_ms: int) -> bool:
    """Whether it was over, rather than paused, and is not any more."""
    if old.disabled_reason == "max_runs":
        return not has_max_runs(job)
    # A one-time job that failed is over too; a recurring one was stopped because it failed.
    over = old.disabled_reason == "no_more_ticks" or (
        old.disabled_reason == "failed" and old.ticks is not None and old.ticks.next(now_ms) is None
    )
    return over and moved and not has_max_runs(job)


def has_max_runs(job: JobRecord) -> bool:
    """Whether it has had as many runs as it may have."""
    max_runs = job.definition.policy.max_runs
    return max_runs is not None and job.run_count >= max_runs
