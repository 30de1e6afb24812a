"""The runs of an agent, for a Python program."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Literal

from wakeful.run import RunState, TriggerName
from wakeful.service.auth.access import LOCAL
from wakeful.service.runs.runs import RunService
from wakeful.store.rows import AttemptView, RunView


class Runs:
    """The runs of one agent: `app.runs`."""

    def __init__(self, service: RunService, workspace: str, agent: str) -> None:
        self._service = service
        self._workspace, self._agent = workspace, agent

    def of(self, agent: str, workspace: str | None = None) -> Runs:
        """The runs of another agent."""
        return Runs(self._service, workspace or self._workspace, agent)

    async def get(self, run_id: str) -> RunView:
        """The run of that id, or NotFound."""
        return await self._service.get(LOCAL, self._workspace, run_id)

    async def attempts(self, run_id: str) -> Sequence[AttemptView]:
        """Its attempts so far, in order."""
        return await self._service.attempts(LOCAL, self._workspace, run_id)

    async def list(
        self,
        *,
        job_id: str | None = None,
        states: Iterable[str] = (),
        trigger: TriggerName | None = None,
        dead: bool = False,
        limit: int = 50,
        before: str | None = None,
    ) -> Sequence[RunView]:
        """Runs, newest first; `before` is the id of the last one seen, for the next page."""
        return await self._service.list(
            LOCAL,
            self._workspace,
            self._agent,
            job_id=job_id,
            states=tuple(states),
            trigger=trigger,
            dead=dead,
            before=before,
            limit=limit,
        )

    async def dead_letters(self, *, limit: int = 50) -> Sequence[RunView]:
        """Failed runs that nobody has replayed or discarded, newest first."""
        return await self.list(limit=limit, dead=True)

    async def wait(self, run_id: str, *, poll: float = 0.05) -> RunView:
        """The run, once it is over. `async with asyncio.timeout(60):` round it waits for so long at most."""
        while True:
            run = await self.get(run_id)
            if RunState(run.state).terminal:
                return run
            await asyncio.sleep(poll)

    async def cancel(self, run_id: str) -> RunView:
        """Cancel a run that has not started, or waits for its next attempt."""
        return await self._service.cancel(LOCAL, self._workspace, run_id)

    async def stop(self, run_id: str) -> RunView:
        """Stop a run that is running, wherever that is."""
        return await self._service.stop(LOCAL, self._workspace, run_id)

    async def replay(self, run_id: str) -> RunView:
        """Run a dead letter again: a new run with the same idempotency key, one attempt further on."""
        return await self._service.replay(LOCAL, self._workspace, run_id)

    async def discard(self, run_id: str) -> None:
        """Put a dead letter away."""
        await self._service.discard(LOCAL, self._workspace, run_id)

    async def complete(
        self,
        run_id: str,
        status: Literal["succeeded", "failed"],
        *,
        attempt: int | None = None,
        output: str | None = None,
        error: str | None = None,
    ) -> RunView:
        """Report how a run ended whose webhook has `completion="callback"`, or that was claimed.

        `attempt` is required for a claimed run. FailedPrecondition: the run is over, or at another attempt.
        """
        return await self._service.complete(
            LOCAL, self._workspace, run_id, status, attempt=attempt, output=output, error=error
        )
