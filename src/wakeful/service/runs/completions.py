"""Outcomes that executors, callbacks and the workers of brokers report: what they mean, and their writing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from wakeful.document import policy_from_text, work_from_text
from wakeful.engine.completer import LoggedConsequences, log_outcome
from wakeful.errors import FailedPrecondition, InvalidArgument, NotFound
from wakeful.job.job import NO_WORK, Work
from wakeful.job.policy import DEFAULT_POLICY, Policy
from wakeful.launch.port import MAX_FAILED_OUTPUT, truncate
from wakeful.logs import get_logger
from wakeful.run.consequences import consequences
from wakeful.run.outcome import Failed, Finished, Skipped, Succeeded, conclude, storable, with_history
from wakeful.run.prechecks import check_from_text
from wakeful.run.verification import judge_success
from wakeful.store.audit import AuditEntry
from wakeful.store.port import Store
from wakeful.store.rows import JobRow, ReportedRun, RunView
from wakeful.store.sql.jobs_and_runs import EntryForRun

#: The error for an executor that does not name its attempt.
ATTEMPT_MISSING: Final = "attempt: it is missing; write the attempt of the claimed run"
#: The most runs of one report.
MAX_COMPLETIONS: Final = 1_000

log = get_logger("wakeful.service")


class Completion(NamedTuple):
    """The reported outcome of a run."""

    run_id: str
    #: `succeeded` or `failed`
    status: str
    #: the attempt that is reported; a claimed run requires it
    attempt: int | None = None
    output: str | None = None
    error: str | None = None
    #: compact JSON
    usage: str | None = None
    evidence: str | None = None
    #: of a failure: a retry cannot succeed
    permanent: bool = False
    #: of a failure: whether it counts towards `max_attempts`; False: the work was not started
    counted: bool = True


def check_status(report: Completion) -> None:
    """Raise InvalidArgument for a status that cannot be reported."""
    if report.status not in ("succeeded", "failed"):
        raise InvalidArgument(f"status: '{report.status[:64]}' is not 'succeeded' or 'failed'")
    if report.permanent and report.status != "failed":
        raise InvalidArgument("permanent: only a failure is permanent")
    if not report.counted and (report.permanent or report.status != "failed"):
        raise InvalidArgument("counted: write false only for a failure that is not permanent")


def no_run(run_id: str) -> NotFound:
    """Return the error for a run that does not exist, or that the caller may not see."""
    return NotFound(f"no run '{run_id[:64]}'; list the runs to see their ids")


def not_completable(run: RunView, attempt: int | None) -> FailedPrecondition:
    """Return the error for a run that is over, being verified, or at another attempt."""
    if run.verifying and attempt in (None, run.attempt):
        return FailedPrecondition(
            f"run '{run.id}' was reported as done and is being verified; nothing is left to report"
        )
    if run.state == "running":
        return FailedPrecondition(f"run '{run.id}' is at attempt {run.attempt}, not {attempt}")
    return FailedPrecondition(f"run '{run.id}' is {run.state} and does not wait to be completed")


def read_outcome(report: Completion) -> Succeeded | Failed:
    """Return the outcome that a report states."""
    output = report.output
    if report.status == "succeeded":
        kept = None if output is None else truncate(output)
        return Succeeded(kept, report.usage, evidence=report.evidence)
    return Failed(
        truncate(report.error or "failed"),
        permanent=report.permanent,
        reason="permanent" if report.permanent else None if report.counted else "not_started",
        counted=report.counted,
        usage=report.usage,
        evidence=report.evidence,
        output=None if output is None else truncate(output, MAX_FAILED_OUTPUT),
    )


def check_completable(run: RunView, work: Work, attempt: int | None) -> None:
    """Raise if an outside report cannot complete the run: over, owned by a worker, or without its attempt."""
    if run.state != "running" or run.verifying:
        raise not_completable(run, attempt)
    awaits_report = run.awaiting_callback or work.awaits_callback or work.broker is not None
    if not run.is_pull and not awaits_report:
        raise FailedPrecondition(
            f"run '{run.id}' is ended by the worker that runs it; only a claimed run, one whose target has "
            "completion 'callback', and one that a broker has, is completed from outside"
        )
    if run.is_pull and attempt is None:
        raise InvalidArgument(ATTEMPT_MISSING)
    if attempt not in (None, run.attempt):
        raise not_completable(run, attempt)


class JobOfRun(NamedTuple):
    """The job of a run, also if it was deleted, and what decides how the run ends."""

    row: JobRow | None
    policy: Policy
    work: Work


async def job_of_run(store: Store, run: RunView) -> JobOfRun:
    """Return the job of a run; the defaults for a run without one."""
    return read_job_of_run(await store.job_by_id(run.job_id, deleted=True) if run.job_id else None)


def read_job_of_run(row: JobRow | None) -> JobOfRun:
    """Return a job with its policy and work; the defaults for None."""
    if row is None:
        return JobOfRun(None, DEFAULT_POLICY, NO_WORK)
    return JobOfRun(row, policy_from_text(row.policy), work_from_text(row.work))


def read_reported(found: ReportedRun) -> JobOfRun:
    """Return what decides how a run ends."""
    if found.policy is None or found.work is None:
        return read_job_of_run(None)
    return JobOfRun(None, policy_from_text(found.policy), work_from_text(found.work))


def conclude_report(
    run: RunView, job: JobOfRun, outcome: Succeeded | Failed | Skipped, now_ms: int
) -> Finished:
    """Return the end of the attempt that `run` is at."""
    if not isinstance(outcome, Skipped) and outcome.evidence is None and run.evidence is not None:
        outcome = outcome._replace(evidence="")  # that of an earlier attempt does not count for this one
    usage = None if isinstance(outcome, Skipped) else outcome.usage
    answered = run.response_code if run.awaiting_callback else None
    finished = conclude(
        run.id, run.job_id, run.attempt, job.policy,
        judge_success(job.work, outcome) if isinstance(outcome, Succeeded) else outcome,
        run.started_ms or now_ms, now_ms, job.work,
        failed_attempts=run.failed_attempts,
        checked=None if run.precheck is None else check_from_text(run.precheck),
    )._replace(
        usage=usage, response_code=answered, executor=run.worker if run.is_pull else None
    )  # fmt: skip
    return with_history(finished, run, run.job_name, job.work, run.payload)


class Reported(NamedTuple):
    """A run, and the end of the attempt that it is at."""

    run: RunView
    finished: Finished

    def run_afterwards(self) -> RunView | None:
        """Return the run as the outcome leaves it; None: more than the outcome decides that."""
        ended, others = self.finished, (self.finished.deliver, self.finished.evidence, self.finished.checked)
        if ended.state not in ("succeeded", "failed") or any(each is not None for each in others):
            return None
        (ended,) = storable([ended])
        return self.run._replace(
            state=ended.state, reason=ended.reason, started_ms=ended.started_ms, due_ms=None,
            finished_ms=ended.finished_ms, output=ended.output, error=ended.error, usage=ended.usage,
            dead=ended.state == "failed", awaiting_callback=False, failed_attempts=ended.failed_attempts,
            response_code=ended.response_code,
        )  # fmt: skip


async def write_reports(
    store: Store,
    holder: str | None,
    reports: Sequence[Reported],
    actor: str,
    entry: EntryForRun | None = None,
) -> set[str]:
    """Write the outcomes of runs in one transaction, and log them. See `Store.complete_runs`.

    Returns the ids of the runs that were written. Raises Unstorable.
    """
    rule = LoggedConsequences(consequences)
    written = await store.complete_runs(holder, [finished for _, finished in reports], rule, entry)
    for run, finished in reports:
        if run.id in written:
            log_outcome(log, finished, run.log_fields, run.worker or actor)
    rule.log(log)
    return written


async def write_report(
    store: Store,
    run: RunView,
    job: JobOfRun,
    outcome: Succeeded | Failed | Skipped,
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
