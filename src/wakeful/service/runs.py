"""What can be done with runs."""

from __future__ import annotations

from wakeful.clock import Clock
from wakeful.document import policy_from_text
from wakeful.engine.births import of_chain
from wakeful.engine.outcome import conclude
from wakeful.errors import FailedPrecondition, InvalidArgument, NotFound
from wakeful.ids import new_id
from wakeful.launch.port import Failed, Succeeded
from wakeful.policy import DEFAULT_POLICY
from wakeful.store.port import Store
from wakeful.store.rows import AttemptView, RunFilter, RunRow, RunView


class RunService:
    """Shows, cancels, replays and completes runs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def _clock(self) -> Clock:
        return self._store.clock

    async def get(self, workspace: str, run_id: str) -> RunView:
        """The run of that id, or NotFound."""
        run = await self._store.run(run_id)
        if run is None or run.workspace != workspace:
            raise NotFound(f"no run '{run_id}'; list the runs to see what there is")
        return run

    async def attempts(self, workspace: str, run_id: str) -> list[AttemptView]:
        """All attempts of a run so far, the last one too."""
        run = await self.get(workspace, run_id)
        earlier = await self._store.attempts(run_id)
        # Between two attempts, and where it was cancelled there, the last one is among them already.
        if run.started_ms is None or (earlier and earlier[-1].attempt == run.attempt):
            return earlier
        return [
            *earlier, AttemptView(run.attempt, run.worker, run.started_ms, run.finished_ms, run.error)
        ]  # fmt: skip

    async def list(self, only: RunFilter) -> list[RunView]:
        """Runs, newest first."""
        return await self._store.runs(only)

    async def cancel(self, workspace: str, run_id: str, reason: str = "cancelled") -> RunView:
        """Cancel a run that is waiting: pending, or between two attempts."""
        return await self._end(workspace, run_id, reason, running=False)

    async def stop(self, workspace: str, run_id: str, reason: str = "stopped") -> RunView:
        """Stop a run that is running."""
        return await self._end(workspace, run_id, reason, running=True)

    async def replay(self, workspace: str, run_id: str, triggered_by: str | None = None) -> RunView:
        """Run a dead letter again, as a new run with the same key, one attempt further on."""
        await self.get(workspace, run_id)
        now_ms = self._clock.now_ms()

        def again(old: RunView) -> RunRow:
            return RunRow(
                id=new_id(now_ms),
                job_id=old.job_id,
                workspace=old.workspace,
                agent=old.agent,
                job_name=old.job_name,
                scheduled_ms=old.scheduled_ms,
                fire_ms=now_ms,
                trigger="replay",
                triggered_by=triggered_by,
                state="pending",
                reason=None,
                covers=1,
                until_ms=None,
                attempt=old.attempt + 1,
                worker=None,
                lane=old.lane,
                serial=False,
                due_ms=now_ms,
                started_ms=None,
                finished_ms=None,
                idempotency_key=old.idempotency_key,
                replay_of=old.id,
                payload=old.payload,
            )

        run = await self._store.replay_run(run_id, again)
        if run is None:
            raise NotFound(f"no run '{run_id}'")
        return run

    async def discard(self, workspace: str, run_id: str) -> None:
        """Put a dead letter away for good."""
        await self.get(workspace, run_id)
        if not await self._store.discard_run(run_id):
            raise FailedPrecondition(f"run '{run_id}' is no dead letter; only failed runs can be discarded")

    async def complete(
        self,
        workspace: str,
        run_id: str,
        status: str,
        *,
        output: str | None = None,
        error: str | None = None,
        usage: str | None = None,
    ) -> RunView:
        """Say how a run ended that was waiting for it (`completion: callback`)."""
        if status not in ("succeeded", "failed"):
            raise InvalidArgument(f"status: '{status}' is not 'succeeded' or 'failed'")
        run, now_ms = await self.get(workspace, run_id), self._clock.now_ms()
        row = await self._store.job_by_id(run.job_id, deleted=True) if run.job_id else None
        policy = policy_from_text(row.policy) if row else DEFAULT_POLICY
        outcome = Succeeded(output, usage) if status == "succeeded" else Failed(error or "failed")
        finished = conclude(
            run_id, run.job_id, run.attempt, policy, outcome, run.started_ms or now_ms, now_ms
        )
        if not await self._store.complete_run(finished, of_chain):
            raise FailedPrecondition(f"run '{run_id}' is {run.state} and does not wait to be completed")
        return await self.get(workspace, run_id)

    async def _end(self, workspace: str, run_id: str, reason: str, *, running: bool) -> RunView:
        await self.get(workspace, run_id)
        run = await self._store.cancel_run(run_id, self._clock.now_ms(), reason, running=running)
        if run is None:
            raise NotFound(f"no run '{run_id}'")
        return run
