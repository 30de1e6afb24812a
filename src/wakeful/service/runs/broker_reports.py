"""Apply what the workers of brokers report about runs: progress and outcomes.

A report names run and attempt, which are the fence: one of an earlier attempt, or about a run that has ended,
is refused. Progress extends the deadline of the run by its timeout. The first outcome of an attempt counts.
"""

from __future__ import annotations

from collections.abc import Callable

from wakeful.errors import Unavailable
from wakeful.launch.broker import Report, ReportResult
from wakeful.launch.port import DEFAULT_TIMEOUT_MS, MAX_FAILED_OUTPUT, truncate
from wakeful.logs import get_logger
from wakeful.outcome import TAKEN_OVER, Failed, Succeeded
from wakeful.service.runs.reported_outcomes import JobOfRun, job_of_run, write_report
from wakeful.service.runs.runs import RunService
from wakeful.store.port import Store
from wakeful.store.rows import RunView

log = get_logger("wakeful.service")


class BrokerReports:
    """Applies reports to runs. `runs` is called for outcomes that are written, `record` counts reports."""

    def __init__(self, store: Store, runs: RunService, record: Callable[[str, str], None]) -> None:
        self._store = store
        self._runs = runs
        self._record = record

    async def apply(self, kind: str, report: Report) -> ReportResult:
        """Apply a report about a run of a target of that kind. A refused one changes nothing and is logged.

        Raises Unavailable if it cannot be applied now.
        """
        try:
            result = await self._apply(kind, report)
        except Exception:  # the launcher applies it later
            self._record(kind, "delayed")
            raise
        self._record(kind, "applied" if result.applied else "refused")
        return result

    async def _apply(self, kind: str, report: Report) -> ReportResult:
        run = await self._store.run(report.run_id)
        if run is None or report.workspace not in (None, run.workspace):
            return self._refuse(kind, report, "there is no such run")
        job = await job_of_run(self._store, run)
        if job.work.broker != kind and not _target_changed(run, job):
            return self._refuse(kind, report, f"the target of its job is not of kind '{kind}'", run)
        if run.state == "retrying" and run.reason == TAKEN_OVER and run.attempt == report.attempt:
            raise Unavailable(f"run '{run.id}' is about to be launched again in this attempt")
        if run.state != "running" or run.attempt != report.attempt or run.verifying:
            return self._refuse(kind, report, _over(run, report.attempt), run)
        if report.status == "running":
            return await self._progress(kind, report, run, job)
        finished = await write_report(self._store, run, job, _outcome(report), kind)
        if finished is None:
            run = await self._store.run(report.run_id) or run
            return self._refuse(kind, report, _over(run, report.attempt), run)
        self._runs.on_completed(finished, run)
        return ReportResult(True)

    async def _progress(self, kind: str, report: Report, run: RunView, job: JobOfRun) -> ReportResult:
        timeout_ms = job.policy.timeout_ms or DEFAULT_TIMEOUT_MS
        due_ms = self._store.clock.now_ms() + timeout_ms
        if run.worker is None and not await self._store.extend_callback(run.id, run.attempt, due_ms):
            run = await self._store.run(run.id) or run
            if run.state != "running" or run.attempt != report.attempt:
                return self._refuse(kind, report, _over(run, report.attempt), run)
        return ReportResult(True)  # a worker that still records the acceptance sets the deadline itself

    @staticmethod
    def _refuse(kind: str, report: Report, why: str, run: RunView | None = None) -> ReportResult:
        fields: dict[str, object] = {"run_id": report.run_id} if run is None else dict(run.log_fields)
        fields["attempt"] = report.attempt
        log.info("report.refused", **fields, kind=kind, status=report.status, reason=why)
        return ReportResult(False, why)


def _target_changed(run: RunView, job: JobOfRun) -> bool:
    """Whether the run may have been sent to another target than its job has now."""
    changed = job.row is not None and job.row.updated_ms > (run.started_ms or 0)
    return run.awaiting_callback and changed


def _over(run: RunView, attempt: int) -> str:
    if run.state == "running" and run.attempt != attempt:
        return f"the run is at attempt {run.attempt}, not {attempt}"
    return "the run was reported as done" if run.verifying else f"the run is {run.state}"


def _outcome(report: Report) -> Succeeded | Failed:
    if report.status == "succeeded":
        return Succeeded(
            None if report.output is None else truncate(report.output),
            report.usage,
            evidence=report.evidence,
            evidence_error=report.evidence_error,
        )
    return Failed(
        truncate(report.error or "failed"),
        permanent=report.permanent,
        retry_after_ms=report.retry_after_ms,
        reason=report.reason,
        usage=report.usage,
        evidence=report.evidence,
        output=None if report.output is None else truncate(report.output, MAX_FAILED_OUTPUT),
    )
