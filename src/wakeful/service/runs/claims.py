"""Prepare claimed runs for their executor.

The runs are already marked as running. One that cannot be executed is ended; the others are returned. A claim
costs a fixed number of statements, whatever its number of runs; runs under a budget have a reservation each.

Runs of jobs with a precheck are checked here, all of a claim at once. Meanwhile their leases are renewed.
`PullService` returns the runs if this is cancelled or fails.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from wakeful.document import payload_from_text, policy_from_text, policy_or_default, work_from_text
from wakeful.engine.completer import LoggedConsequences, log_outcome
from wakeful.engine.launcher_registry import LauncherRegistry, build_launch
from wakeful.errors import (
    DatabaseFault,
    InvalidArgument,
    NotFound,
    TooManyFollowUps,
    Unavailable,
    WakefulError,
)
from wakeful.job.start_rules import may_start
from wakeful.launch.budgets import BudgetGate
from wakeful.launch.function import error_text
from wakeful.launch.port import Launch, launch_ids, truncate
from wakeful.launch.precheck import RecordCheck, check_run, recorder
from wakeful.launch.workflow import dag_and_meta, workflow_version
from wakeful.logs import get_logger
from wakeful.model.codec import JsonObject
from wakeful.run.consequences import consequences
from wakeful.run.outcome import Failed, Finished, Outcome, Skipped, conclude
from wakeful.service.runs.telemetry import RunTelemetry
from wakeful.service.serializers import serialize_run
from wakeful.store.claim_requests import ClaimedRun
from wakeful.store.port import Store
from wakeful.store.rows import Renewal, TakenRun, WorkflowRow

#: Before a payload of so many characters is read, the event loop has its turn.
_LARGE: Final = 16_384

log = get_logger("wakeful.service")


class Claims:
    """Prepares claimed runs for their executor."""

    def __init__(self, store: Store, launchers: LauncherRegistry, telemetry: RunTelemetry) -> None:
        self._store = store
        self._gate = BudgetGate(store, store.clock)
        self._launchers = launchers
        self._telemetry = telemetry
        #: seconds between two renewals of the leases while prechecks run
        self.renew_s = 5.0

    async def prepare(self, workspace: str, worker: str, claimed: Sequence[ClaimedRun]) -> list[JsonObject]:
        """Return each run with the `target` of its job, its `payload`, `timeoutMs` and `traceparent`.

        Runs that cannot be executed, or may not start now, are ended and left out.
        """
        workflows = await self._workflows(workspace, [each.run for each in claimed])
        claim = _Claim(workflows, recorder(self._store, worker))
        if any('"precheck"' in each.run.work for each in claimed):
            results = await self._prepare_checked(workspace, worker, claimed, claim)
        else:
            results = [await self._prepare_or_fail(each, claim) for each in claimed]
        prepared: list[JsonObject] = []
        ended: list[Finished] = []
        for (run, *_), (launch, result) in zip(claimed, results, strict=True):
            if isinstance(result, dict):
                traceparent = self._telemetry.record_claim(run, worker)
                if traceparent is not None:
                    result["traceparent"] = traceparent
                prepared.append(result)
            else:
                ended.append(self._finished(run, result, launch))
        await self._end(worker, ended)
        return prepared

    async def _prepare_checked(
        self, workspace: str, worker: str, claimed: Sequence[ClaimedRun], claim: _Claim
    ) -> list[_Prepared]:
        """Prepare runs with prechecks, all at once, and renew their leases meanwhile."""
        runs = [each.run for each in claimed]
        renewing = asyncio.create_task(self._renew(workspace, worker, runs), name="wakeful-claim")
        try:
            return await asyncio.gather(*(self._prepare_or_fail(each, claim) for each in claimed))
        finally:
            renewing.cancel()

    async def _renew(self, workspace: str, worker: str, runs: Sequence[TakenRun]) -> None:
        held = [Renewal(run.id, run.attempt, worker=worker) for run in runs]
        while True:
            await asyncio.sleep(self.renew_s)
            try:
                await self._store.renew(self._store.clock.now_ms(), workspace, held)
            except Exception as error:  # the next renewal may succeed
                log.warning("claim.not_renewed", worker=worker, error=str(error))

    async def _end(self, worker: str, ended: Sequence[Finished]) -> None:
        """Write the outcomes of runs that do not go to the executor."""
        if not ended:
            return
        try:
            rule = LoggedConsequences(consequences)
            written = await self._store.finish(worker, ended, rule)
            for each in ended:
                if each.run_id in written:
                    log_outcome(log, each, {"run_id": each.run_id, "job_id": each.job_id}, worker)
            rule.log(log)
        except TooManyFollowUps:  # not of one run
            for each in ended:
                await self._end(worker, [each])
        except WakefulError as error:  # their leases end, and they are claimed again
            if isinstance(error, Unavailable) and not isinstance(error, DatabaseFault):
                raise  # so that all are returned
            log.warning(
                "claim.unfinished",
                run_ids=[each.run_id for each in ended],
                worker=worker,
                error=error.message,
            )

    async def _prepare_or_fail(self, claimed: ClaimedRun, claim: _Claim) -> _Prepared:
        run = claimed.run
        try:
            return await self._prepare(claimed, claim)
        except Unavailable:
            raise  # so that all are returned
        except InvalidArgument as error:
            log.exception("run.set_aside", **run.log_fields)
            message = truncate(f"its job cannot be read: {error}")
            return _Prepared(None, Failed(message, permanent=True, reason="unreadable"))
        except Exception as error:  # the next attempt may succeed, and the other runs of the claim do
            log.exception("run.set_aside", **run.log_fields)
            return _Prepared(None, Failed(error_text(error)))

    async def _prepare(self, claimed: ClaimedRun, claim: _Claim) -> _Prepared:
        run, view, has_budget = claimed
        work = work_from_text(run.work)
        policy = policy_from_text(run.policy)
        launch = build_launch(run, policy, work, run.payload, run)
        decision = may_start(run.trigger, run.attempt, work, self._store.clock.now_ms(), None)
        if decision.reason is not None:
            return _Prepared(launch, Skipped(decision.message, decision.reason))
        if has_budget or work.budget is not None:
            unpaid = await self._gate.start(launch)
            if unpaid is not None:
                return _Prepared(launch, unpaid)
        precheck = work.precheck
        if precheck is not None and launch.unchecked:
            checker = self._launchers.launcher(precheck.get("kind"))
            refused = await check_run(launch, checker, precheck, claim.record)
            if refused is not None:
                return _Prepared(launch, refused)
        if len(launch.payload_text or "") > _LARGE:
            await asyncio.sleep(0)  # a claim may have a hundred of them
        payload = payload_from_text(launch.payload_text)
        if launch.target.get("kind") == "workflow":
            try:
                payload = payload_from_text(await dag_and_meta(claim.workflows, launch))
            except (NotFound, InvalidArgument) as error:
                return _Prepared(launch, Failed(error.message, reason="workflow_missing"))
        result: JsonObject = {
            **serialize_run(view),
            "target": dict(work.target) if work.target else {"kind": "pull"},
            "payload": payload,
            "context": launch.context,
            "timeoutMs": policy.timeout_ms,
            "traceparent": launch_ids(run.idempotency_key, run.attempt).traceparent(),
        }
        return _Prepared(launch, result)

    async def _workflows(self, workspace: str, runs: Sequence[TakenRun]) -> _Workflows:
        """Load all workflow versions that these runs need, with one statement if there are any."""
        wanted: set[tuple[str, int]] = set()
        for run in runs:
            with contextlib.suppress(InvalidArgument):  # `_prepare` reports it
                target = work_from_text(run.work).target
                if target is not None and target.get("kind") == "workflow":
                    wanted.add(workflow_version(target))
        return _Workflows(await self._store.workflows(workspace, sorted(wanted)) if wanted else ())

    def _finished(self, run: TakenRun, outcome: Outcome, launch: Launch | None = None) -> Finished:
        now_ms = self._store.clock.now_ms()
        return conclude(
            run.id, run.job_id, run.attempt, policy_or_default(run.policy), outcome, now_ms, now_ms,
            failed_attempts=run.failed_attempts,
            checked=None if launch is None or launch.watch is None else launch.watch.checked,
        )  # fmt: skip


class _Claim(NamedTuple):
    """What the runs of a claim share."""

    workflows: _Workflows
    record: RecordCheck


class _Prepared(NamedTuple):
    """What the executor gets of a run, or the outcome of one that it does not get."""

    launch: Launch | None
    result: JsonObject | Outcome


class _Workflows:
    """A `WorkflowReader` over workflow versions that are already loaded."""

    def __init__(self, rows: Sequence[WorkflowRow]) -> None:
        self._rows = {(row.workspace, row.id, row.version): row for row in rows}

    async def workflow(self, workspace: str, workflow_id: str, version: int) -> WorkflowRow | None:
        """Return that version of the workflow, or None."""
        return self._rows.get((workspace, workflow_id, version))
