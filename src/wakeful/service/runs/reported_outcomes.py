"""Write outcomes that are reported from outside: by executors, callbacks, and the workers of brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from wakeful.document import policy_from_text, work_from_text
from wakeful.engine.outcome_log import LoggedConsequences, log_outcome
from wakeful.job.job import NO_WORK, Work
from wakeful.job.policy import DEFAULT_POLICY, Policy
from wakeful.logs import get_logger
from wakeful.run.consequences import consequences
from wakeful.run.outcome import Failed, Finished, Succeeded, conclude, with_history
from wakeful.run.prechecks import checked_from_text
from wakeful.run.verification import judge_success
from wakeful.store.audit import AuditEntry
from wakeful.store.jobs import EntryForRun
from wakeful.store.port import Store
from wakeful.store.rows import JobRow, RunView

log = get_logger("wakeful.service")


class JobOfRun(NamedTuple):
    """The job of a run, also if it was deleted, and what decides how the run ends."""

    row: JobRow | None
    policy: Policy
    work: Work


async def job_of_run(store: Store, run: RunView) -> JobOfRun:
    """Return the job of a run; the defaults for a run without one."""
    return job_from_row(await store.job_by_id(run.job_id, deleted=True) if run.job_id else None)


def job_from_row(row: JobRow | None) -> JobOfRun:
    """Return a job with its policy and work; the defaults for None."""
    if row is None:
        return JobOfRun(None, DEFAULT_POLICY, NO_WORK)
    return JobOfRun(row, policy_from_text(row.policy), work_from_text(row.work))


def conclude_report(run: RunView, job: JobOfRun, outcome: Succeeded | Failed, now_ms: int) -> Finished:
    """Return the end of the attempt that `run` is at."""
    if outcome.evidence is None and run.evidence is not None:
        outcome = outcome._replace(evidence="")  # that of an earlier attempt does not count for this one
    answered = run.response_code if run.awaiting_callback else None
    finished = conclude(
        run.id, run.job_id, run.attempt, job.policy,
        judge_success(job.work, outcome) if isinstance(outcome, Succeeded) else outcome,
        run.started_ms or now_ms, now_ms, job.work,
        failed_attempts=run.failed_attempts,
        checked=None if run.precheck is None else checked_from_text(run.precheck),
    )._replace(usage=outcome.usage, response_code=answered)  # fmt: skip
    return with_history(finished, run, run.job_name, job.work, run.payload)


class Reported(NamedTuple):
    """A run, and the end of the attempt that it is at."""

    run: RunView
    finished: Finished


async def write_reports(
    store: Store,
    holder: str | None,
    reports: Sequence[Reported],
    actor: str,
    entry: EntryForRun | None = None,
) -> set[str]:
    """Write the outcomes of runs with one holder in one transaction, and log them. See `Store.complete_runs`.

    Returns the ids of the runs that were written. Raises Unstorable.
    """
    rule = LoggedConsequences(consequences)
    written = await store.complete_runs(holder, [finished for _, finished in reports], rule, entry)
    for run, finished in reports:
        if run.id in written:
            log_outcome(log, finished, run.log_fields, holder or actor)
    rule.log(log)
    return written


async def write_report(
    store: Store,
    run: RunView,
    job: JobOfRun,
    outcome: Succeeded | Failed,
    actor: str,
    entries: Sequence[AuditEntry] = (),
) -> Finished | None:
    """Write the outcome of the attempt that `run` is at, and log it. None: the attempt has ended meanwhile.

    A success without the evidence that the job requires is a failed attempt. With `verify`, the run stays
    running until it is verified.
    """
    finished = conclude_report(run, job, outcome, store.clock.now_ms())
    rule = LoggedConsequences(consequences)
    if not await store.complete_run(finished, rule, entries):
        return None
    log_outcome(log, finished, run.log_fields, run.worker or actor)
    rule.log(log)
    return finished
