"""What a change of a job does to its runs: ticks that were missed before, and runs that wait. Pure.

Also what it does to the state of its precheck.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from wakeful.document import work_from_text
from wakeful.errors import FailedPrecondition, InvalidArgument
from wakeful.job.job import JobRecord, ScheduleKey, Work
from wakeful.job.start_rules import find_requirement
from wakeful.run.consequences import Effects
from wakeful.run.factory import claim_timeout_ms, job_signal, target_signal, tick_run
from wakeful.run.instances import instance_id
from wakeful.run.job_transitions import resume_job
from wakeful.run.planning import job_state, overdue
from wakeful.run.run import NewRun
from wakeful.store.row_mapping import changed_row, job_from_row, schedule_key
from wakeful.store.rows import JobChange, JobRow, Move, SignalRecipient

#: The columns of the definition of a job.
_DEFINITION: Final = slice(JobRow._fields.index("name"), JobRow._fields.index("labels") + 1)


#: Why ticks that were due get no run any more.
MissedReason: TypeAlias = Literal["paused", "edited", "deleted", "job_disabled"]


def missed_runs(row: JobRow, now_ms: int, reason: MissedReason) -> tuple[NewRun, ...]:
    """Return the record of ticks that were due and not planned yet when a job is paused, edited or ends.

    A job can be changed while no planner runs; the ticks that it missed until then must stay on record.
    """
    job = job_from_row(row)
    state = job_state(job)
    verdict = overdue(state, now_ms, reason) if state and job.enabled else None
    if verdict is None:
        return ()
    definition = job.definition
    return (tick_run(row, definition.policy, definition.work, verdict, now_ms, None),)


def end_pause(row: JobRow, now_ms: int) -> JobRow:
    """Return the job after a pause whose end has passed, if the planner has not resumed it yet.

    Its ticks count from the end of the pause. A job without a tick or run left stays as it is.
    """
    if row.enabled or row.pause_until_ms is None or row.pause_until_ms > now_ms:
        return row
    try:
        job = resume_job(job_from_row(row), row.pause_until_ms - 1)
    except FailedPrecondition:
        return row
    return changed_row(row, replace(job, updated_ms=now_ms))


def move_after_edit(old: JobRecord, new: JobRecord) -> Move | None:
    """Return where unfinished runs go after an edit, and what they require; None if that is the same.

    A run is launched with the job as it is then, so waiting runs follow their job to another lane, to an
    executor, to a mailbox, or back to a worker, and require what its target requires.
    """
    move, before = _move(new), _move(old)
    same = new.definition.work.pulled == old.definition.work.pulled and (
        (move.lane, move.requires, move.recipient) == (before.lane, before.requires, before.recipient)
    )
    return None if same else move


def _move(job: JobRecord) -> Move:
    """Return where the runs of a job wait, and what they require."""
    work, policy = job.definition.work, job.definition.policy
    return Move(
        work.lane,
        claim_timeout_ms(work, policy),
        find_requirement(work, job.workspace, job.agent).name,
        _recipient(job, work),
        serial=policy.overlap != "allow",
    )


def _recipient(job: JobRecord, work: Work) -> SignalRecipient | None:
    if work.instance is None:
        return None
    return SignalRecipient(
        instance_id(job.workspace, job.agent, work.instance),
        job.workspace,
        job.agent,
        work.instance,
        target_signal(work) or job_signal(job.name),
    )


def precheck_edit(old: JobRow, new: JobRow) -> Literal["revise", "reset"] | None:
    """Return what a change of a job does to the state of its precheck.

    `revise`: the state stays, and runs that were checked before the edit write none. `reset`: another
    precheck starts without a state.
    """
    if old[_DEFINITION] == new[_DEFINITION] or '"precheck"' not in old.work:
        return None
    return "revise" if _precheck(old) == _precheck(new) else "reset"


def _precheck(row: JobRow) -> object:
    """Return the precheck of a job without its timeout; None if there is none, or the job cannot be read."""
    try:
        precheck = work_from_text(row.work).precheck or {}
    except InvalidArgument:
        return None
    return {name: value for name, value in precheck.items() if name != "timeoutMs"}


def schedule_change(old: JobRow, new: JobRow, now_ms: int) -> JobChange:
    """Return the change of the job of a schedule, with what follows for its runs.

    Ticks of another schedule are withdrawn, and all that have not started if the job is disabled.
    """
    job = job_from_row(new)
    try:
        change = JobChange(new, move=move_after_edit(job_from_row(old), job))
        missed = missed_runs(old, now_ms, "edited" if new.enabled else "paused")
    except InvalidArgument:  # the old one cannot be read
        return JobChange(new, withdraw="edited", keeps=job.has_tick)
    if old.enabled and new.disabled_reason == "max_runs":
        return change._replace(runs=missed)
    if old.enabled and not new.enabled:
        return change._replace(withdraw=new.disabled_reason or "paused", runs=missed)
    if old.timing != new.timing:
        return change._replace(withdraw="edited", runs=missed, keeps=job.has_tick)
    return change


def overdue_runs(row: JobRow, now_ms: int, reason: MissedReason = "deleted") -> tuple[NewRun, ...]:
    """Return the record of missed ticks of a job that ends; none if the job cannot be read."""
    try:
        return missed_runs(row, now_ms, reason)
    except InvalidArgument:
        return ()


def ended_jobs(effects: Effects, has_next: Collection[str]) -> dict[str, tuple[int, MissedReason]]:
    """Return when and why outcomes end jobs that may have due ticks: those in `has_next`."""
    ends: dict[str, tuple[int, MissedReason]] = {
        job_id: (end.at_ms, "job_disabled") for job_id, end in effects.disabled.items()
    }
    ends |= {job_id: (at_ms, "deleted") for job_id, at_ms in effects.deleted.items()}
    return {job_id: end for job_id, end in ends.items() if job_id in has_next}


def stored_schedules(
    rows: Iterable[JobRow], wanted: Collection[ScheduleKey]
) -> dict[ScheduleKey, JobRecord | None]:
    """Return those of the wanted schedules that exist; None for a job that cannot be read."""
    found: dict[ScheduleKey, JobRecord | None] = {}
    for row in rows:
        key = schedule_key(row)
        if key in wanted and key is not None:
            try:
                found[key] = job_from_row(row)
            except InvalidArgument:
                found[key] = None
    return found
