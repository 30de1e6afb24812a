"""Several outcomes in one report of an executor: one transaction for all, and a result for each.

Each outcome has its own fence (run, attempt and executor), so one that is refused does not affect the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from wakeful.errors import InvalidArgument, Unstorable, WakefulError
from wakeful.run.outcome import Finished
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import Accounts
from wakeful.service.auth.agent_policy import check_not_internal
from wakeful.service.runs.completions import (
    MAX_COMPLETIONS,
    Completion,
    Reported,
    check_completable,
    check_status,
    conclude_report,
    not_completable,
    read_job_of_run,
    read_outcome,
    write_reports,
)
from wakeful.service.runs.runs import RunService, no_run
from wakeful.service.runs.telemetry import RunTelemetry
from wakeful.store.audit import AuditEntry
from wakeful.store.internal_jobs import ALERT_JOBS
from wakeful.store.port import Store
from wakeful.store.rows import JobRow, RunView
from wakeful.values.json_value import compact

#: The new state of a run, or why its report was refused.
CompletionResult = str | WakefulError


class ReportBatches:
    """Writes the outcomes that executors report together."""

    def __init__(self, store: Store, accounts: Accounts, runs: RunService, telemetry: RunTelemetry) -> None:
        self._store = store
        self._accounts = accounts
        self._runs = runs
        self._telemetry = telemetry

    async def complete_many(
        self, principal: Principal, workspace: str, reports: Sequence[Completion | WakefulError]
    ) -> list[CompletionResult]:
        """Complete runs as `RunService.complete` does; return the result of each report, in their order.

        A report that could not be read is given as its error, which is its result.
        """
        await self._accounts.authorize(principal, "work", workspace)
        if len(reports) > MAX_COMPLETIONS:
            raise InvalidArgument(f"runs: at most {MAX_COMPLETIONS} at once, not {len(reports)}")
        ids = [report.run_id for report in reports if isinstance(report, Completion)]
        if len(set(ids)) < len(ids):
            raise InvalidArgument("runs: name each run once, with the attempt that you hold")
        runs = {run.id: run for run in await self._store.runs_by_ids(ids)} if ids else {}
        wanted = {run.job_id for run in runs.values() if run.job_id is not None}
        jobs = {job.id: job for job in await self._store.jobs_by_ids(sorted(wanted))} if wanted else {}
        results: dict[int, CompletionResult] = {}
        claimed: dict[str, list[tuple[int, Completion, Finished]]] = {}
        now_ms = self._store.clock.now_ms()
        for index, report in enumerate(reports):
            if not isinstance(report, Completion):
                results[index] = report
                continue
            run = runs.get(report.run_id)
            try:
                if run is None or not _visible(principal, workspace, run):
                    raise no_run(report.run_id)
                await self._accounts.authorize(principal, "work", workspace, run.agent)
                check_not_internal(principal, run.job_name, ALERT_JOBS)
                if not _together(run, jobs):
                    results[index] = await self._complete_one(principal, workspace, report)
                    continue
                check_status(report)
                job = read_job_of_run(jobs.get(run.job_id or ""))
                check_completable(run, job.work, report.attempt)
                finished = conclude_report(run, job, read_outcome(report), now_ms)
                claimed.setdefault(run.worker or "", []).append((index, report, finished))
            except WakefulError as error:
                results[index] = error
        for worker, group in claimed.items():
            results.update(await self._complete_claimed(principal, workspace, worker, group, runs))
        return [results[index] for index in range(len(reports))]

    async def _complete_claimed(
        self,
        principal: Principal,
        workspace: str,
        worker: str,
        group: Sequence[tuple[int, Completion, Finished]],
        runs: dict[str, RunView],
    ) -> dict[int, CompletionResult]:
        """Write the outcomes of runs that one executor holds, in one transaction."""
        statuses = {report.run_id: report.status for _, report, _ in group}

        def entry(run_id: str) -> AuditEntry:
            return principal.entry(workspace, "run.complete", run_id, compact({"status": statuses[run_id]}))

        reported = [Reported(runs[finished.run_id], finished) for _, _, finished in group]
        try:
            written = await write_reports(self._store, worker, reported, worker, entry)
        except Unstorable:  # find out which of them
            return {
                index: await self._complete_one(principal, workspace, report) for index, report, _ in group
            }
        results: dict[int, CompletionResult] = {}
        for index, report, outcome in group:
            if outcome.run_id not in written:
                now = await self._store.run(outcome.run_id)
                results[index] = (
                    no_run(outcome.run_id) if now is None else not_completable(now, report.attempt)
                )
                continue
            self._telemetry.record_completion(outcome, runs[outcome.run_id])
            results[index] = outcome.state
        return results

    async def _complete_one(
        self, principal: Principal, workspace: str, report: Completion
    ) -> CompletionResult:
        run_id, status, attempt, output, error, usage, evidence, permanent, counted = report
        try:
            run = await self._runs.complete(
                principal, workspace, run_id, status, attempt=attempt, output=output, error=error,
                usage=usage, evidence=evidence, permanent=permanent, counted=counted,
            )  # fmt: skip
        except WakefulError as refused:
            return refused
        return run.state


def _visible(principal: Principal, workspace: str, run: RunView) -> bool:
    return run.workspace == workspace and principal.agent in (None, run.agent)


def _together(run: RunView, jobs: dict[str, JobRow]) -> bool:
    """Return whether the outcome can be written with others: of a claimed run whose job exists, if any."""
    known = run.job_id is None or run.job_id in jobs
    return run.is_pull and run.worker is not None and run.instance is None and known
