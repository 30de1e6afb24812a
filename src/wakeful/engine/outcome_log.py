"""Logs what became of ticks and attempts, after the transaction that wrote it has committed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import structlog

from wakeful.run.consequences import Consequences, Effects, Facts
from wakeful.run.outcome import Finished
from wakeful.run.planning import Becomes, TickVerdict
from wakeful.run.prechecks import ONCE
from wakeful.run.run import NewRun
from wakeful.store.plans import DueJob
from wakeful.values.instants import iso_utc

Log = structlog.stdlib.BoundLogger


def log_decisions(
    log: Log,
    decided: Sequence[tuple[NewRun, TickVerdict]],
    ended: Sequence[tuple[DueJob, str]],
    written: Collection[str],
) -> None:
    """Log the ticks that do not start at once, each with the reason, and the jobs that have no more ticks."""
    for run, verdict in decided:
        if run.id not in written:
            continue
        about = {
            "run_id": run.id,
            "job_id": run.job_id,
            "job": run.job_name,
            "agent": run.agent,
            "workspace": run.workspace,
            "scheduled_at": iso_utc(run.scheduled_ms),
            "reason": verdict.reason,
        }
        if verdict.becomes is Becomes.SKIPPED:
            log.info("run.skipped", **about)
        elif verdict.becomes is Becomes.MISSED:
            until = None if verdict.until_ms is None else iso_utc(verdict.until_ms)
            log.warning("run.missed", **about, ticks=verdict.covers, until=until)
        else:
            log.info("run.queued", **about, fire_at=iso_utc(run.fire_ms))
    for job, reason in ended:
        log.info("job.disabled", **job.log_fields, reason=reason)


def log_outcome(log: Log, finished: Finished, about: Mapping[str, object], worker: str) -> None:
    """Log the outcome of an attempt. Successes are logged at the debug level: there may be thousands."""
    state, reason, error = finished.state, finished.reason, finished.error
    ms = finished.finished_ms - finished.started_ms
    if state == "succeeded":
        log.debug("run.succeeded", **about, worker=worker, ms=ms, status=finished.response_code)
    elif state == "running" and finished.verification is not None:
        log.debug("run.verifying", **about, worker=worker, status=finished.response_code)
    elif state == "running":
        log.debug("run.awaiting_callback", **about, worker=worker, status=finished.response_code)
    elif state == "retrying":
        next_at = None if finished.due_ms is None else iso_utc(finished.due_ms)
        log.info("run.retrying", **about, worker=worker, reason=reason, error=error, ms=ms, next_at=next_at)
    elif state == "failed":
        log.warning(
            "run.failed", **about, worker=worker, reason=reason, error=error, ms=ms, dead_letter=True
        )  # fmt: skip
    elif state == "skipped":
        log.info("run.skipped", **about, worker=worker, reason=reason)


class LoggedConsequences:
    """`consequences`, remembering the effects so that they can be logged after the commit."""

    def __init__(self, consequences: Consequences) -> None:
        self._consequences = consequences
        self._effects: Effects | None = None
        self._outcomes: Sequence[Finished] = ()

    def __call__(self, outcomes: Sequence[Finished], facts: Facts) -> Effects:
        """Return the effects. A transaction that is repeated replaces them."""
        self._outcomes = outcomes
        self._effects = self._consequences(outcomes, facts)
        return self._effects

    def as_written(self, batch: Sequence[Finished]) -> Sequence[Finished]:
        """Return the outcomes as they were written: those with refused directives are failed attempts."""
        outcomes, self._outcomes = self._outcomes, ()
        if all(each.handled is None for each in batch):
            return batch
        written = {each.run_id: each for each in outcomes}
        return [written.get(each.run_id, each) for each in batch]

    def log(self, log: Log) -> None:
        """Log the jobs that the outcomes disabled or deleted, and the runs that follow."""
        effects, self._effects = self._effects, None
        if effects is None:
            return
        for job_id, end in effects.disabled.items():
            level = log.info if end.reason == ONCE else log.warning  # it is done, nothing is wrong
            level("job.disabled", job_id=job_id, reason=end.reason)
        for job_id in effects.deleted:
            log.info("job.deleted", job_id=job_id, reason="its last run succeeded")
        for run in effects.runs:
            log.info(
                "run.follows", run_id=run.id, job_id=run.job_id, job=run.job_name, agent=run.agent,
                workspace=run.workspace, after_run_id=run.triggered_by, reason=run.trigger,
            )  # fmt: skip
