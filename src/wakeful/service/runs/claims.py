"""Prepare claimed runs for their executor.

The runs are already marked as running. One that cannot be executed is ended; the others are returned. A claim
costs a fixed number of statements, whatever its number of runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from wakeful.consequences import consequences
from wakeful.document import payload_from_text, policy_from_text, work_from_text
from wakeful.engine.launcher_registry import build_launch
from wakeful.engine.outcome_log import LoggedConsequences, log_outcome
from wakeful.engine.tracing import Tracing
from wakeful.errors import InvalidArgument, NotFound, WakefulError
from wakeful.launch.port import truncate
from wakeful.launch.trace_context import launch_ids
from wakeful.launch.workflow import dag_and_meta, workflow_version
from wakeful.logs import get_logger
from wakeful.outcome import Failed, Finished, Outcome, Skipped, conclude
from wakeful.policy import DEFAULT_POLICY
from wakeful.service.admin.budgets import Budgets
from wakeful.service.serializers import JsonObject, serialize_run
from wakeful.start_rules import BudgetBlock, BudgetOwner, find_block, may_start
from wakeful.store.port import Store
from wakeful.store.rows import RunView, TakenRun
from wakeful.store.workflows import WorkflowRow

log = get_logger("wakeful.service")


class Claims:
    """Prepares claimed runs for their executor."""

    def __init__(self, store: Store, budgets: Budgets) -> None:
        self._store = store
        self._budgets = budgets
        #: records a span for each claimed run
        self.tracing: Tracing | None = None

    async def prepare(
        self, workspace: str, worker: str, claimed: Sequence[tuple[TakenRun, RunView]]
    ) -> list[JsonObject]:
        """Return each run with the `target` of its job, its `payload`, `timeoutMs` and `traceparent`.

        Runs that cannot be executed, or may not start now, are ended and left out.
        """
        workflows = await self._workflows(workspace, [run for run, _ in claimed])
        blocks = await self._budgets.blocks() if claimed else {}
        prepared: list[JsonObject] = []
        ended: list[Finished] = []
        for run, view in claimed:
            try:
                result = await self._prepare(run, view, workflows, blocks)
            except Exception as error:
                log.exception("run.set_aside", **run.log_fields)
                result = Failed(
                    truncate(f"its job cannot be read: {error}"), permanent=True, reason="unreadable"
                )
            if isinstance(result, dict):
                if self.tracing is not None:
                    result["traceparent"] = self.tracing.claimed(run, worker)
                prepared.append(result)
            else:
                ended.append(self._finished(run, result))
        if ended:
            try:
                rule = LoggedConsequences(consequences)
                written = await self._store.finish(worker, ended, rule)
                for each in ended:
                    if each.run_id in written:
                        log_outcome(log, each, {"run_id": each.run_id, "job_id": each.job_id}, worker)
                rule.log(log)
            except WakefulError as error:  # their leases end, and they are claimed again
                log.warning(
                    "claim.unfinished",
                    run_ids=[each.run_id for each in ended],
                    worker=worker,
                    error=error.message,
                )
        return prepared

    async def _prepare(
        self, run: TakenRun, view: RunView, workflows: _Workflows, blocks: Mapping[BudgetOwner, BudgetBlock]
    ) -> JsonObject | Outcome:
        work = work_from_text(run.work)
        policy = policy_from_text(run.policy)
        launch = build_launch(run, policy, work, run.payload, None)
        block = find_block(blocks, run.workspace, run.agent, run.job_id)
        now_ms = self._store.clock.now_ms()
        decision = may_start(run.trigger, run.attempt, work, now_ms, block, run.job_name)
        if decision.reason is not None:
            return Skipped(decision.message, decision.reason)
        payload = payload_from_text(launch.payload_text)
        if launch.target.get("kind") == "workflow":
            try:
                payload = payload_from_text(await dag_and_meta(workflows, launch))
            except (NotFound, InvalidArgument) as error:
                return Failed(error.message, reason="workflow_missing")
        return {
            **serialize_run(view),
            "target": dict(work.target) if work.target else {"kind": "pull"},
            "payload": payload,
            "timeoutMs": policy.timeout_ms,
            "traceparent": launch_ids(run.idempotency_key, run.attempt).traceparent(),
        }

    async def _workflows(self, workspace: str, runs: Sequence[TakenRun]) -> _Workflows:
        """Load all workflow versions that these runs need, with one statement if there are any."""
        wanted: set[tuple[str, int]] = set()
        for run in runs:
            with contextlib.suppress(InvalidArgument):  # `_prepare` reports it
                target = work_from_text(run.work).target
                if target is not None and target.get("kind") == "workflow":
                    wanted.add(workflow_version(target))
        return _Workflows(await self._store.workflows(workspace, sorted(wanted)) if wanted else ())

    def _finished(self, run: TakenRun, outcome: Outcome) -> Finished:
        policy = DEFAULT_POLICY
        with contextlib.suppress(InvalidArgument):
            policy = policy_from_text(run.policy)
        now_ms = self._store.clock.now_ms()
        return conclude(
            run.id, run.job_id, run.attempt, policy, outcome, now_ms, now_ms,
            failed_attempts=run.failed_attempts,
        )  # fmt: skip


class _Workflows:
    """A `WorkflowReader` over workflow versions that are already loaded."""

    def __init__(self, rows: Sequence[WorkflowRow]) -> None:
        self._rows = {(row.workspace, row.id, row.version): row for row in rows}

    async def workflow(self, workspace: str, workflow_id: str, version: int) -> WorkflowRow | None:
        """Return that version of the workflow, or None."""
        return self._rows.get((workspace, workflow_id, version))
