"""Outcomes that executors and callbacks report. Reports that arrive together are written in one transaction.

Each outcome has its own fence (run and attempt), so one that is refused does not affect the others. Reports
of the same run are applied one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from weakref import WeakValueDictionary

from wakeful.errors import DatabaseFault, InvalidArgument, Unavailable, WakefulError
from wakeful.run.outcome import Failed, Succeeded
from wakeful.service.auth.access import Principal, permit
from wakeful.service.auth.accounts import Accounts
from wakeful.service.auth.agent_policy import check_not_internal
from wakeful.service.batcher import Batcher, in_rounds, may_be_of_one
from wakeful.service.runs.completions import (
    MAX_COMPLETIONS,
    Completion,
    JobOfRun,
    Reported,
    check_completable,
    check_status,
    conclude_report,
    no_run,
    not_completable,
    read_outcome,
    read_reported,
    write_report,
    write_reports,
)
from wakeful.service.runs.telemetry import RunTelemetry
from wakeful.store.audit import AuditEntry
from wakeful.store.idempotency import InProgress, is_claiming
from wakeful.store.internal_jobs import ALERT_JOBS
from wakeful.store.port import Store
from wakeful.store.rows import ANY_EXECUTOR, RunView
from wakeful.values.json_value import compact

#: The new state of a run, or why its report was refused.
CompletionResult = str | WakefulError
#: A run and its outcome, which is written, or why not.
_Result = Reported | Exception


class _Report(NamedTuple):
    """A report, and who sends it."""

    principal: Principal
    workspace: str
    completion: Completion

    @property
    def run_id(self) -> str:
        return self.completion.run_id

    def entry(self) -> AuditEntry:
        """Return the audit entry of the report."""
        details = compact({"status": self.completion.status})
        return self.principal.entry(self.workspace, "run.complete", self.run_id, details)


class _Judged(NamedTuple):
    """A report, and what it means for its run."""

    report: _Report
    reported: Reported


class ReportBatches:
    """Writes reported outcomes."""

    def __init__(self, store: Store, accounts: Accounts, telemetry: RunTelemetry) -> None:
        self._store = store
        self._accounts = accounts
        self._telemetry = telemetry
        #: by workspace: one that waits for a lock holds up no other
        self._batchers: WeakValueDictionary[str, Batcher[Sequence[_Report], Sequence[_Result]]]
        self._batchers = WeakValueDictionary()

    async def complete(self, principal: Principal, workspace: str, report: Completion) -> RunView:
        """Complete a run. See `RunService.complete`."""
        check_status(report)
        await self._accounts.authorize(principal, "read", workspace)
        (result,) = await self._add(workspace, [_Report(principal, workspace, report)])
        if isinstance(result, Exception):
            raise result
        run = result.run_afterwards() or await self._store.run(report.run_id)
        if run is None:
            raise no_run(report.run_id)
        await self._accounts.names.load((run.triggered_by,))
        return run

    async def complete_many(
        self, principal: Principal, workspace: str, reports: Sequence[Completion | WakefulError]
    ) -> list[CompletionResult]:
        """Complete runs as `RunService.complete` does; return the result of each report, in their order.

        A report that could not be read is given as its error, which is its result.
        """
        await self._accounts.authorize(principal, "work", workspace)
        if len(reports) > MAX_COMPLETIONS:
            raise InvalidArgument(f"runs: at most {MAX_COMPLETIONS} at once, not {len(reports)}")
        read = [_Report(principal, workspace, report) for report in reports if isinstance(report, Completion)]
        if len({each.run_id for each in read}) < len(read):
            raise InvalidArgument("runs: name each run once, with the attempt that you hold")
        written = await self._add(workspace, read) if read else ()
        later = [result for result in written if isinstance(result, Unavailable | InProgress)]
        if later and (is_claiming() or len(later) == len(reports)):
            raise later[0]  # nothing was written: the request is repeated, and its key is free
        results = iter(written)
        return [_state(next(results)) if isinstance(each, Completion) else each for each in reports]

    async def _add(self, workspace: str, reports: Sequence[_Report]) -> Sequence[_Result]:
        if is_claiming():  # not shared: the transaction claims the key of this request
            return await self._write_in_order(reports)
        new: Batcher[Sequence[_Report], Sequence[_Result]] = Batcher(
            "wakeful-completions", self._write_batch, most=MAX_COMPLETIONS, weigh=len, is_of_one=_is_of_one
        )
        return await self._batchers.setdefault(workspace, new).add(reports)

    async def _write_batch(self, batch: Sequence[Sequence[_Report]]) -> Sequence[Sequence[_Result]]:
        results = iter(await self._write_in_order([report for reports in batch for report in reports]))
        return [[next(results) for _ in reports] for reports in batch]

    async def _write_in_order(self, reports: Sequence[_Report]) -> Sequence[_Result]:
        """Write reports, those of the same run one after the other; return their results in their order."""
        results: dict[int, _Result] = {}
        for several in in_rounds(list(enumerate(reports)), lambda numbered: numbered[1].run_id):
            written = await self._write([report for _, report in several])
            results |= {number: written[report.run_id] for number, report in several}
        return [results[number] for number in range(len(reports))]

    async def _write(self, reports: Sequence[_Report]) -> Mapping[str, _Result]:
        """Write reports of different runs. Returns their results by run."""
        found = {each.run.id: each for each in await self._store.reported_runs([r.run_id for r in reports])}
        results: dict[str, _Result] = {}
        claimed: list[_Judged] = []
        awaiting: list[_Judged] = []
        now_ms = self._store.clock.now_ms()
        for report in reports:
            try:
                if report.run_id not in found:
                    raise no_run(report.run_id)
                run = found[report.run_id].run
                if not _visible(report.principal, report.workspace, run):
                    raise no_run(report.run_id)
                permit(report.principal, "work", report.workspace, run.agent)
                check_not_internal(report.principal, run.job_name, ALERT_JOBS)
                check_status(report.completion)
                job = read_reported(found[report.run_id])
                check_completable(run, job.work, report.completion.attempt)
                outcome = read_outcome(report.completion)
                if run.instance is None and run.is_pull and run.worker is not None:
                    group = claimed
                elif run.instance is None and run.awaiting_callback and run.worker is None:
                    group = awaiting
                else:  # a worker still holds it
                    results[run.id] = await self._write_alone(report, run, job, outcome)
                    continue
                group.append(_Judged(report, Reported(run, conclude_report(run, job, outcome, now_ms))))
            except Exception as error:
                results[report.run_id] = error
        for holder, group in ((ANY_EXECUTOR, claimed), (None, awaiting)):
            results |= await self._write_together(holder, group)
        return results

    async def _write_together(self, holder: str | None, group: Sequence[_Judged]) -> Mapping[str, _Result]:
        """Write outcomes in one transaction; if one of them may be why that fails, each in its own."""
        if not group:
            return {}
        entries = {report.run_id: report.entry for report, _ in group}
        outcomes = [reported for _, reported in group]
        actor = group[0].report.principal.actor
        try:
            written = await write_reports(
                self._store, holder, outcomes, actor, lambda run_id: entries[run_id]()
            )
        except Exception as error:
            if len(group) == 1 or not _is_of_one(error):
                return dict.fromkeys(entries, error)
            results: dict[str, _Result] = {}
            for each in group:
                results |= await self._write_together(holder, [each])
            return results
        for run, finished in outcomes:
            if run.id in written:
                self._telemetry.record_completion(finished, run)
        refusals = await self._refusals([run for run, _ in outcomes if run.id not in written])
        return {each.run.id: refusals.get(each.run.id, each) for each in outcomes}

    async def _write_alone(
        self, report: _Report, run: RunView, job: JobOfRun, outcome: Succeeded | Failed
    ) -> _Result:
        """Write the outcome of a run that a worker still holds."""
        finished = await write_report(
            self._store, run, job, outcome, report.principal.actor, [report.entry()]
        )
        if finished is None:
            return (await self._refusals([run]))[run.id]
        self._telemetry.record_completion(finished, run)
        return Reported(run, finished)

    async def _refusals(self, unwritten: Sequence[RunView]) -> Mapping[str, WakefulError]:
        """Return why the outcomes of these runs were not written: they have changed meanwhile."""
        attempts = {run.id: run.attempt for run in unwritten}
        now = {run.id: run for run in await self._store.runs_by_ids(list(attempts))} if attempts else {}
        return {
            run_id: not_completable(now[run_id], attempt) if run_id in now else no_run(run_id)
            for run_id, attempt in attempts.items()
        }


def _state(result: _Result) -> CompletionResult:
    if isinstance(result, Reported):
        return result.finished.state
    if isinstance(result, WakefulError):
        return result
    raise result


def _visible(principal: Principal, workspace: str, run: RunView) -> bool:
    return run.workspace == workspace and principal.agent in (None, run.agent)


def _is_of_one(error: Exception) -> bool:
    """Return whether one outcome of a batch may be the cause of its error."""
    return not isinstance(error, InProgress) and (may_be_of_one(error) or isinstance(error, DatabaseFault))
