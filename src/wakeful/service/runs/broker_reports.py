"""Apply what the workers of brokers report about runs: progress and outcomes.

A report names run and attempt, which are the fence: one of an earlier attempt, or about a run that has ended,
is refused. Progress extends the deadline of the run by its timeout. The first outcome of an attempt counts.
A worker that cannot execute the run reports why; the run shows it until another worker reports progress.

Reports that arrive while others are applied form a batch. Its outcomes are written in one transaction, and so
are its later deadlines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from wakeful.errors import DatabaseFault, Unavailable, WakefulError
from wakeful.launch.broker import Report, ReportResult
from wakeful.launch.port import DEFAULT_TIMEOUT_MS, MAX_FAILED_OUTPUT, truncate
from wakeful.logs import get_logger
from wakeful.run.outcome import PRECHECK, TAKEN_OVER, Failed, Skipped, Succeeded
from wakeful.service.batcher import Batcher
from wakeful.service.runs.completions import (
    JobOfRun,
    Reported,
    conclude_report,
    job_of_run,
    read_job_of_run,
    write_report,
    write_reports,
)
from wakeful.service.runs.telemetry import RunTelemetry
from wakeful.store.port import Store
from wakeful.store.rows import Extension, RunView

_NO_RUN: Final = "there is no such run"
#: The most reports in one batch.
_MAX_BATCH: Final = 200

log = get_logger("wakeful.service")


class _Received(NamedTuple):
    """A report that is to be applied. `kind` is that of its target."""

    kind: str
    report: Report


#: By run: what became of a report, or its error.
_Results = dict[str, ReportResult | Exception]


class BrokerReports:
    """Applies reports to runs. `record` counts reports."""

    def __init__(self, store: Store, telemetry: RunTelemetry, record: Callable[[str, str], None]) -> None:
        self._store = store
        self._telemetry = telemetry
        self._record = record
        self._batcher: Batcher[_Received, ReportResult] = Batcher(
            "wakeful-broker-reports",
            self._apply_batch,
            most=_MAX_BATCH,
            distinct=lambda received: received.report.run_id,
            is_of_one=lambda error: False,  # errors of single reports are among the results
        )

    async def apply(self, kind: str, report: Report) -> ReportResult:
        """Apply a report about a run of a target of that kind. A refused one changes nothing and is logged.

        Raises Unavailable if it cannot be applied now.
        """
        try:
            result = await self._batcher.add(_Received(kind, report))
        except Exception as error:  # the launcher applies it later
            if not isinstance(error, WakefulError):
                log.exception("report.error", run_id=report.run_id)
            self._record(kind, "delayed")
            raise
        self._record(kind, "applied" if result.applied else "refused")
        return result

    async def _apply_batch(self, batch: Sequence[_Received]) -> Sequence[ReportResult | Exception]:
        """Apply reports about different runs. An error of one does not affect the others."""
        found = await self._store.runs_by_ids([received.report.run_id for received in batch])
        runs = {run.id: run for run in found}
        wanted = sorted({run.job_id for run in found if run.job_id is not None})
        jobs = {job.id: job for job in await self._store.jobs_by_ids(wanted)} if wanted else {}
        results: _Results = {}
        progress: list[tuple[_Received, RunView, Extension]] = []
        outcomes: list[tuple[_Received, Reported]] = []
        now_ms = self._store.clock.now_ms()
        for received in batch:
            kind, report = received
            run = runs.get(report.run_id)
            try:
                if run is None or run.job_id not in jobs:
                    results[report.run_id] = await self._apply(kind, report)
                    continue
                job = read_job_of_run(jobs[run.job_id])
                why = _refusal(kind, report, run, job)
                if why is not None:
                    results[report.run_id] = self._refuse(kind, report, why, run)
                elif report.status == "waiting":
                    results[report.run_id] = await self._note(run, report.error)
                elif report.status == "running":
                    progress.append((received, run, _extension(run, job, now_ms)))
                elif run.awaiting_callback and run.worker is None and run.instance is None:
                    finished = conclude_report(run, job, _outcome(report), now_ms)
                    outcomes.append((received, Reported(run, finished)))
                else:  # a worker still records the acceptance
                    results[report.run_id] = await self._apply(kind, report)
            except Exception as error:
                results[report.run_id] = error
        results |= await self._extend(progress)
        results |= await self._write(outcomes)
        return [results[received.report.run_id] for received in batch]

    async def _extend(self, progress: Sequence[tuple[_Received, RunView, Extension]]) -> _Results:
        """Extend the deadlines of runs, in one transaction."""
        # A worker that still records the acceptance of a run sets its deadline itself.
        extensions = [extension for _, run, extension in progress if run.worker is None]
        try:
            extended = await self._store.extend_callbacks(extensions) if extensions else set()
        except Exception as error:
            return {run.id: error for _, run, _ in progress}
        results: _Results = {}
        for received, run, _ in progress:
            try:
                if run.worker is not None or run.id in extended:
                    results[run.id] = await self._note(run, None)
                else:  # the run has changed meanwhile
                    results[run.id] = await self._apply(*received)
            except Exception as error:
                results[run.id] = error
        return results

    async def _note(self, run: RunView, problem: str | None) -> ReportResult:
        """Write why a run is not executed, unless it shows that; None: it is executed."""
        text = None if problem is None else truncate(problem, MAX_FAILED_OUTPUT)
        if text is not None and not run.awaiting_callback:
            raise Unavailable(f"the launch of run '{run.id}' is not recorded yet")
        if text != run.error:
            await self._store.note_callback(run.id, run.attempt, text)
        return ReportResult(True)

    async def _write(self, together: Sequence[tuple[_Received, Reported]]) -> _Results:
        """Write outcomes of runs that await them, in one transaction. After an error, each in its own."""
        if not together:
            return {}
        written: set[str] = set()
        try:
            reported = [each for _, each in together]
            written = await write_reports(self._store, None, reported, together[0][0].kind)
        except Exception as error:
            if isinstance(error, Unavailable) and not isinstance(error, DatabaseFault):
                return {run.id: error for _, (run, _) in together}
        results: _Results = {}
        for received, (run, finished) in together:
            try:
                if run.id in written:
                    self._telemetry.record_completion(finished, run)
                    results[run.id] = ReportResult(True)
                else:  # the run has changed meanwhile, or it cannot be written
                    results[run.id] = await self._apply(*received)
            except Exception as error:
                results[run.id] = error
        return results

    async def _apply(self, kind: str, report: Report) -> ReportResult:
        """Apply one report."""
        run = await self._store.run(report.run_id)
        if run is None:
            return self._refuse(kind, report, _NO_RUN)
        job = await job_of_run(self._store, run)
        why = _refusal(kind, report, run, job)
        if why is not None:
            return self._refuse(kind, report, why, run)
        if report.status == "waiting":
            return await self._note(run, report.error)
        if report.status == "running":
            return await self._progress(kind, report, run, job)
        finished = await write_report(self._store, run, job, _outcome(report), kind)
        if finished is None:
            run = await self._store.run(report.run_id) or run
            return self._refuse(kind, report, _over(run, report.attempt), run)
        self._telemetry.record_completion(finished, run)
        return ReportResult(True)

    async def _progress(self, kind: str, report: Report, run: RunView, job: JobOfRun) -> ReportResult:
        extension = _extension(run, job, self._store.clock.now_ms())
        if run.worker is None and not await self._store.extend_callbacks([extension]):
            run = await self._store.run(run.id) or run
            if run.state != "running" or run.attempt != report.attempt:
                return self._refuse(kind, report, _over(run, report.attempt), run)
        return await self._note(run, None)

    @staticmethod
    def _refuse(kind: str, report: Report, why: str, run: RunView | None = None) -> ReportResult:
        fields: dict[str, object] = {"run_id": report.run_id} if run is None else dict(run.log_fields)
        fields["attempt"] = report.attempt
        log.info("report.refused", **fields, kind=kind, status=report.status, reason=why)
        return ReportResult(False, why)


def _extension(run: RunView, job: JobOfRun, now_ms: int) -> Extension:
    return Extension(run.id, run.attempt, now_ms + (job.policy.timeout_ms or DEFAULT_TIMEOUT_MS))


def _refusal(kind: str, report: Report, run: RunView, job: JobOfRun) -> str | None:
    """Return why a report is refused; None if it is not. Raises Unavailable if that is not certain yet."""
    if report.workspace not in (None, run.workspace):
        return _NO_RUN
    if run.state == "retrying" and run.reason == TAKEN_OVER and run.attempt == report.attempt:
        raise Unavailable(f"run '{run.id}' is about to be launched again in this attempt")
    if run.state != "running" or run.attempt != report.attempt or run.verifying:
        return _over(run, report.attempt)
    if not _may_report(kind, run, job):
        return f"the target of its job is not of kind '{kind}'"
    return None


def _may_report(kind: str, run: RunView, job: JobOfRun) -> bool:
    """Return whether the running attempt may have been sent to a broker of that kind.

    Its job decides, unless it was edited since: then its target, and what the run requires, are those of the
    next attempt. But a webhook has responded, and an executor has claimed the run. Raises Unavailable until
    the launch is recorded.
    """
    if job.row is None or job.row.updated_ms <= (run.started_ms or 0):
        return job.work.broker == kind
    if not run.awaiting_callback and not run.is_pull:
        raise Unavailable(f"the job of run '{run.id}' was edited, and its launch is not recorded yet")
    return run.response_code is None and not run.is_pull


def _over(run: RunView, attempt: int) -> str:
    if run.state == "running" and run.attempt != attempt:
        return f"the run is at attempt {run.attempt}, not {attempt}"
    return "the run was reported as done" if run.verifying else f"the run is {run.state}"


def _outcome(report: Report) -> Succeeded | Failed | Skipped:
    if report.status == "skipped":
        return Skipped(None if report.output is None else truncate(report.output), report.reason or PRECHECK)
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
