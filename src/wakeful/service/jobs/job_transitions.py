"""State changes of a job: edit, pause, resume, skip a tick. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from wakeful.errors import FailedPrecondition
from wakeful.job import Definition, JobRecord, anchor_of
from wakeful.planning import Becomes, Verdict, begin, fire_ms, job_state, overdue
from wakeful.plural import plural
from wakeful.run import NewRun
from wakeful.run_factory import claim_timeout_ms, tick_run
from wakeful.store.row_mapping import job_of
from wakeful.store.rows import JobRow, Move

#: The reason of a tick that is skipped on request.
SKIP_REASON: Final = "asked"


def edited(old: JobRecord, definition: Definition, now_ms: int, enabled: bool | None = None) -> JobRecord:
    """Return the job with another definition, enabled or disabled if `enabled` is set.

    The next tick stays unless the timing changes; then it is the first tick from now. A job that was over,
    because it had no tick left or reached `maxRuns`, is enabled again if the edit gives it more.
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
        # A tick that is due keeps its scheduled time; when it fires depends on the policy.
        return replace(job, wake_ms=fire_ms(job.id, job.ticks, definition.policy, job.next_ms))
    return job


def missed_runs(
    row: JobRow, now_ms: int, reason: Literal["paused", "edited", "deleted"]
) -> tuple[NewRun, ...]:
    """Return the record of ticks that were due and not planned yet when a job is paused, edited or deleted.

    A job can be changed while no planner runs; the ticks that it missed until then must stay on record.
    """
    job = job_of(row)
    state = job_state(job)
    verdict = overdue(state, now_ms, reason) if state and job.enabled else None
    if verdict is None:
        return ()
    definition = job.definition
    return (tick_run(row, definition.policy, definition.work, verdict, now_ms, None),)


def moved(old: JobRecord, new: JobRecord) -> Move | None:
    """Return the lane to which waiting runs move after an edit; None if it is the same.

    A run is launched with the job as it is then, so waiting runs follow their job to another lane, to an
    executor, or back to a worker.
    """
    work, before = new.definition.work, old.definition.work
    if (work.lane, work.pulled) == (before.lane, before.pulled):
        return None
    return Move(work.lane, claim_timeout_ms(work, new.definition.policy))


def paused(job: JobRecord, now_ms: int, note: str | None = None, until_ms: int | None = None) -> JobRecord:
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
    )


def resumed(job: JobRecord, now_ms: int) -> JobRecord:
    """Return the job with ticks from now on; FailedPrecondition if it has no tick left."""
    name = job.definition.name
    if has_max_runs(job):
        raise FailedPrecondition(
            f"job '{name}' has reached its maxRuns of {plural(job.run_count, 'run')}; give it a higher "
            "maxRuns"
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
    """Return the job after its next tick is skipped on request, and the verdict of that tick."""
    ticks, tick, policy = job.ticks, job.next_ms, job.definition.policy
    if ticks is None or tick is None:
        why = "it has no schedule of its own" if ticks is None else "it is not enabled"
        raise FailedPrecondition(f"job '{job.name}' has no next tick to skip: {why}")
    fire = fire_ms(job.id, ticks, policy, tick)
    if fire <= now_ms:
        raise FailedPrecondition(
            f"a tick of job '{job.name}' is due and not planned yet; try again when a worker has planned it"
        )
    verdict = Verdict(tick, fire, Becomes.SKIPPED, SKIP_REASON)
    after = ticks.next(tick)
    if after is None:
        over = replace(job, enabled=False, disabled_reason="no_more_ticks", next_ms=None, wake_ms=None)
        return replace(over, updated_ms=now_ms), verdict
    wake_ms = fire_ms(job.id, ticks, policy, after)
    return replace(job, next_ms=after, wake_ms=wake_ms, updated_ms=now_ms), verdict


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
