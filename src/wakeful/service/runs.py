"""What can be done with runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from wakeful.clock import Clock
from wakeful.document import Defaults, policy_from_text
from wakeful.document.values import compact
from wakeful.engine.births import claim_deadline, of_chain
from wakeful.engine.outcome import conclude
from wakeful.errors import FailedPrecondition, InvalidArgument, NotFound
from wakeful.ids import new_id
from wakeful.launch.port import Failed, Succeeded, kept
from wakeful.policy import DEFAULT_POLICY
from wakeful.service.access import LOCAL, Action, Principal, narrowed
from wakeful.service.budgets import Budgets
from wakeful.service.directory import Directory
from wakeful.store.guarding import Owner
from wakeful.store.port import PARKED, PULL, Store
from wakeful.store.rows import AttemptView, RunFilter, RunRow, RunView

#: Dead letters that are replayed or discarded in one go.
MANY: Final = 1_000


class RunService:
    """Shows, cancels, replays and completes runs."""

    def __init__(self, store: Store, directory: Directory | None = None) -> None:
        self._store = store
        self._directory = directory or Directory(store, Defaults())
        self._budgets = Budgets(store)

    @property
    def _clock(self) -> Clock:
        return self._store.clock

    async def get(self, who: Principal, workspace: str, run_id: str) -> RunView:
        """The run of that id, or NotFound."""
        return await self._one(who, "read", workspace, run_id)

    async def attempts(self, who: Principal, workspace: str, run_id: str) -> list[AttemptView]:
        """All attempts of a run so far, the last one too."""
        run = await self.get(who, workspace, run_id)
        earlier = await self._store.attempts(run_id)
        # Between two attempts, and where it was cancelled there, the last one is among them already.
        if run.started_ms is None or (earlier and earlier[-1].attempt == run.attempt):
            return earlier
        return [
            *earlier, AttemptView(run.attempt, run.worker, run.started_ms, run.finished_ms, run.error)
        ]  # fmt: skip

    async def list(self, who: Principal, only: RunFilter) -> list[RunView]:
        """Runs, newest first."""
        await self._directory.enter(who, "read", only.workspace, only.agent)
        runs = await self._store.runs(only._replace(agent=narrowed(who, only.agent)))
        if not runs and only.agent not in (None, who.agent) and who is not LOCAL:
            await self._directory.agent(only.workspace, only.agent)
        return runs

    async def cancel(self, who: Principal, workspace: str, run_id: str, reason: str = "cancelled") -> RunView:
        """Cancel a run that is waiting: pending, or between two attempts."""
        return await self._end(who, workspace, run_id, reason, running=False)

    async def stop(self, who: Principal, workspace: str, run_id: str, reason: str = "stopped") -> RunView:
        """Stop a run that is running."""
        return await self._end(who, workspace, run_id, reason, running=True)

    async def replay(self, who: Principal, workspace: str, run_id: str) -> RunView:
        """Run a dead letter again, as a new run with the same key, one attempt further on."""
        dead = await self._one(who, "dead-letter", workspace, run_id)
        await self._budgets.check(Owner(workspace, dead.agent, dead.job_id or ""), dead.job_name)
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
                triggered_by=who.actor,
                state="pending",
                reason=None,
                covers=1,
                until_ms=claim_deadline(old.lane, now_ms),
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

        run = await self._store.replay_run(run_id, again, [who.entry(workspace, "run.replay", run_id)])
        if run is None:
            raise _no_run(run_id)
        return run

    async def discard(self, who: Principal, workspace: str, run_id: str) -> None:
        """Put a dead letter away for good."""
        await self._one(who, "dead-letter", workspace, run_id)
        if not await self._store.discard_run(run_id, [who.entry(workspace, "run.discard", run_id)]):
            raise FailedPrecondition(f"run '{run_id}' is no dead letter; only failed runs can be discarded")

    async def replay_many(
        self, who: Principal, workspace: str, run_ids: Sequence[str] | None = None
    ) -> Sequence[str]:
        """Replay these dead letters, or without ids the oldest thousand; those that are none are passed over.

        Returns the ids of the dead letters that were replayed.
        """

        async def one(run_id: str) -> object:
            return await self.replay(who, workspace, run_id)

        return await self._each(who, workspace, run_ids, one)

    async def discard_many(
        self, who: Principal, workspace: str, run_ids: Sequence[str] | None = None
    ) -> Sequence[str]:
        """Discard these dead letters, likewise."""

        async def one(run_id: str) -> object:
            await self.discard(who, workspace, run_id)
            return None

        return await self._each(who, workspace, run_ids, one)

    async def complete(
        self,
        who: Principal,
        workspace: str,
        run_id: str,
        status: str,
        *,
        attempt: int | None = None,
        output: str | None = None,
        error: str | None = None,
        usage: str | None = None,
    ) -> RunView:
        """Say how a run ended that somebody outside executes: a claimed one, or one with a callback.

        With `attempt`, only if that is still the one: who was given up on meanwhile says nothing any more.
        """
        if status not in ("succeeded", "failed"):
            raise InvalidArgument(f"status: '{status[:64]}' is not 'succeeded' or 'failed'")
        run, now_ms = await self._one(who, "work", workspace, run_id), self._clock.now_ms()
        row = await self._store.job_by_id(run.job_id, deleted=True) if run.job_id else None
        policy = policy_from_text(row.policy) if row else DEFAULT_POLICY
        outcome = (
            Succeeded(kept(output) if output is not None else None, usage)
            if status == "succeeded"
            else Failed(kept(error or "failed"))
        )
        finished = conclude(
            run_id, run.job_id, run.attempt, policy, outcome, run.started_ms or now_ms, now_ms
        )._replace(usage=usage)
        if attempt not in (None, run.attempt):
            raise FailedPrecondition(
                f"run '{run_id}' is at attempt {run.attempt}, not {attempt}: it was given on"
            )
        entry = who.entry(workspace, "run.complete", run_id, compact({"status": status}))
        worker = run.worker or ""
        if worker == PARKED:
            done = await self._store.complete_run(finished, of_chain, [entry])
        elif worker.startswith(PULL) and run.state == "running":
            done = run_id in await self._store.finish(worker, [finished], of_chain)
            if done:
                await self._store.append([entry])
        else:
            done = False
        if not done:
            raise FailedPrecondition(f"run '{run_id}' is {run.state} and does not wait to be completed")
        return await self.get(who, workspace, run_id)

    # --- inside ----------------------------------------------------------------------------------

    async def _one(self, who: Principal, action: Action, workspace: str, run_id: str) -> RunView:
        await self._directory.enter(who, "read", workspace)
        run = await self._store.run(run_id)
        if run is None or run.workspace != workspace or who.agent not in (None, run.agent):
            raise _no_run(run_id)
        await self._directory.enter(who, action, workspace, run.agent)
        return run

    async def _end(
        self, who: Principal, workspace: str, run_id: str, reason: str, *, running: bool
    ) -> RunView:
        await self._one(who, "run", workspace, run_id)
        entry = who.entry(workspace, "run.stop" if running else "run.cancel", run_id)
        run = await self._store.cancel_run(
            run_id, self._clock.now_ms(), reason, running=running, entries=[entry]
        )
        if run is None:
            raise _no_run(run_id)
        return run

    async def _each(
        self,
        who: Principal,
        workspace: str,
        run_ids: Sequence[str] | None,
        one: Callable[[str], Awaitable[object]],
    ) -> Sequence[str]:
        await self._directory.enter(who, "dead-letter", workspace)
        if run_ids is None:
            dead = await self._store.runs(RunFilter(workspace, dead=True, limit=MANY))
            run_ids = [run.id for run in reversed(dead)]
        elif len(run_ids) > MANY:
            raise InvalidArgument(f"ids: at most {MANY} at once, not {len(run_ids)}")
        done = []
        for run_id in run_ids:
            try:
                await one(run_id)
            except (FailedPrecondition, NotFound):
                continue
            done.append(run_id)
        return done


def _no_run(run_id: str) -> NotFound:
    return NotFound(f"no run '{run_id[:64]}'; list the runs to see what there is")
