"""The runs of an agent, on a server."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, cast

from wakeful.client.connection import Connection, Page, path, pause
from wakeful.client.fields import document
from wakeful.client.types import HeartbeatsShape, RunShape
from wakeful.errors import FailedPrecondition
from wakeful.job import Json
from wakeful.run import RunState, TriggerName

if TYPE_CHECKING:
    from wakeful.app.fields import JsonLike


class Runs:
    """The runs of one agent: `client.runs`."""

    def __init__(self, connection: Connection, workspace: str, agent: str) -> None:
        self._connection = connection
        self._workspace, self._agent = workspace, agent

    def of(self, agent: str, workspace: str | None = None) -> Runs:
        """The runs of another agent."""
        return Runs(self._connection, workspace or self._workspace, agent)

    async def _run(self, method: str, run_id: str, *verb: str, body: Json = None) -> RunShape:
        answer = await self._connection.ask(method, path(self._workspace, "runs", run_id, *verb), body=body)
        return cast(RunShape, answer)

    async def get(self, run_id: str) -> RunShape:
        """The run of that id with its attempts, or NotFound."""
        return await self._run("GET", run_id)

    async def list(
        self,
        *,
        job_id: str | None = None,
        states: Iterable[str] = (),
        trigger: TriggerName | None = None,
        dead: bool = False,
        limit: int = 50,
        before: str | None = None,
        cursor: str | None = None,
        all_agents: bool = False,
    ) -> Page[RunShape]:
        """Runs, newest first; `before` is the id of the last one seen, or `cursor` that of the page before.

        With `all_agents`, those of the whole workspace.
        """
        query = {
            "agent": None if all_agents else self._agent,
            "job_id": job_id,
            "state": ",".join(states) or None,
            "trigger": trigger,
            "dead": dead or None,
            "before": before,
            "limit": limit,
            "cursor": cursor,
        }
        return Page(await self._connection.ask("GET", path(self._workspace, "runs"), query=query), "runs")

    async def dead_letters(
        self, *, limit: int = 50, cursor: str | None = None, all_agents: bool = False
    ) -> Page[RunShape]:
        """Failed runs that nobody has replayed or discarded, newest first."""
        query = {"agent": None if all_agents else self._agent, "limit": limit, "cursor": cursor}
        answer = await self._connection.ask("GET", path(self._workspace, "dead-letters"), query=query)
        return Page(answer, "deadLetters")

    async def wait(
        self,
        run_id: str,
        *,
        poll: float = 0.1,
        seen: Callable[[RunShape], None] = lambda run: None,
    ) -> RunShape:
        """The run, once it is over. `async with asyncio.timeout(60):` round it waits for so long at most.

        `seen` is told what it looks like every time that somebody looked.
        """
        while True:
            run = await self.get(run_id)
            seen(run)
            if RunState(run["state"]).terminal:
                return run
            await pause(poll)
            poll = min(poll * 1.2, 2.0)  # one that takes long need not be asked so often

    async def cancel(self, run_id: str) -> RunShape:
        """Cancel a run that has not started, or waits for its next attempt."""
        return await self._run("POST", run_id, "cancel")

    async def stop(self, run_id: str) -> RunShape:
        """Stop a run that is running, wherever that is."""
        return await self._run("POST", run_id, "stop")

    async def replay(self, run_id: str) -> RunShape:
        """Run a dead letter again: a new run with the same idempotency key, one attempt further on."""
        return await self._run("POST", run_id, "replay")

    async def discard(self, run_id: str) -> None:
        """Put a dead letter away."""
        if not await self.discard_many([run_id]):
            run = await self.get(run_id)
            raise FailedPrecondition(f"run '{run_id}' is {run['state']}, and no dead letter")

    async def replay_many(self, run_ids: Iterable[str] | None) -> builtins.list[str]:
        """Run these dead letters again, or with None all there are; the ids of the new runs."""
        return await self._many("replay", run_ids, "replayed")

    async def discard_many(self, run_ids: Iterable[str] | None) -> builtins.list[str]:
        """Put these dead letters away, or with None all there are; the ids of those that were."""
        return await self._many("discard", run_ids, "discarded")

    async def _many(self, verb: str, run_ids: Iterable[str] | None, done: str) -> builtins.list[str]:
        body: Json = {"all": True} if run_ids is None else {"ids": builtins.list[Json](run_ids)}
        answer = await self._connection.ask("POST", path(self._workspace, "dead-letters", verb), body=body)
        return cast(builtins.list[str], cast(dict[str, Json], answer)[done])

    async def complete(
        self,
        run: str | RunShape,
        status: Literal["succeeded", "failed"],
        *,
        attempt: int | None = None,
        output: JsonLike = None,
        error: str | None = None,
        usage: JsonLike = None,
    ) -> RunShape:
        """Report how a run ended that was claimed, or whose webhook has `completion="callback"`.

        A claimed run is given as `claim` returned it, or by its id and `attempt`. FailedPrecondition: the run
        is over, or at another attempt.
        """
        run_id, attempt = _attempt_of(run, attempt)
        body = document(
            {"status": status, "attempt": attempt, "output": output, "error": error, "usage": usage}
        )
        return await self._run("POST", run_id, "complete", body=body)

    async def heartbeat(self, run: str | RunShape, *, attempt: int | None = None) -> RunShape:
        """Renew the lease of a run, given as `claim` returned it or by its id and `attempt`.

        FailedPrecondition: the run is over, or another executor's. Stop working on it.
        """
        run_id, attempt = _attempt_of(run, attempt)
        return await self._run("POST", run_id, "heartbeat", body=document({"attempt": attempt}))

    async def heartbeat_many(self, runs: Iterable[RunShape], *, worker: str | None = None) -> HeartbeatsShape:
        """Renew the leases of runs as `claim` returned them; stop working on those that are `lost`."""
        held: Json = [{"id": run["id"], "attempt": run["attempt"]} for run in runs]
        body: Json = {"runs": held} if worker is None else {"runs": held, "worker": worker}
        answer = await self._connection.ask("POST", path(self._workspace, "runs", "heartbeat"), body=body)
        return cast(HeartbeatsShape, answer)

    async def claim(
        self,
        worker: str,
        *,
        agents: Iterable[str] = (),
        lanes: Iterable[str] = (),
        limit: int = 1,
        wait_ms: int = 0,
    ) -> builtins.list[RunShape]:
        """Take runs that wait for an executor; with `wait_ms`, wait so long for the first one.

        Each has a lease of 30 seconds, which a heartbeat renews.
        """
        body = document({"worker": worker, "limit": limit, "waitMs": wait_ms})
        body |= document({"agents": builtins.list(agents), "lanes": builtins.list(lanes)})
        answer = await self._connection.ask(
            "POST", path(self._workspace, "runs", "claim"), body=body, patience=wait_ms / 1000
        )
        return cast(builtins.list[RunShape], cast(dict[str, Json], answer)["runs"])

    async def wake(self, payload: JsonLike = None) -> RunShape:
        """Wake the agent now, without a job. Only an admin may."""
        where = path(self._workspace, "agents", self._agent, "runs")
        body = document({} if payload is None else {"payload": payload})
        return cast(RunShape, await self._connection.ask("POST", where, body=body))


def _attempt_of(run: str | RunShape, attempt: int | None) -> tuple[str, int | None]:
    """The id of a run, and the attempt that is meant: where the run itself is given, its own."""
    if isinstance(run, str):
        return run, attempt
    return run["id"], run["attempt"] if attempt is None else attempt
