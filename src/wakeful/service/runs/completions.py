"""Outcomes that executors and callbacks report: what a report means for its run. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from wakeful.errors import FailedPrecondition, InvalidArgument
from wakeful.job.job import Work
from wakeful.launch.port import MAX_FAILED_OUTPUT, truncate
from wakeful.run.outcome import Failed, Succeeded
from wakeful.store.rows import RunView

#: The error for an executor that does not name its attempt.
ATTEMPT_MISSING: Final = "attempt: it is missing; write the attempt of the claimed run"
#: The most runs of one report.
MAX_COMPLETIONS: Final = 1_000


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


def not_completable(run: RunView, attempt: int | None) -> FailedPrecondition:
    """Return the error for a run that is over, being verified, or at another attempt."""
    if run.verifying and attempt in (None, run.attempt):
        return FailedPrecondition(
            f"run '{run.id}' was reported as done and is being verified; nothing is left to report"
        )
    if run.state == "running":
        return FailedPrecondition(f"run '{run.id}' is at attempt {run.attempt}, not {attempt}")
    return FailedPrecondition(f"run '{run.id}' is {run.state} and does not wait to be completed")


def reported_outcome(report: Completion) -> Succeeded | Failed:
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
