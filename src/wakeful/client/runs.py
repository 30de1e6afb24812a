"""The runs of an agent on a server. `wakeful.client.scheduler` documents the methods."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Literal, cast

from wakeful.client.scheduler import RunsApi, id_and_attempt, poll_each
from wakeful.model import Attempt, HeartbeatResult, Page, ReleaseResult, Run, Trigger
from wakeful.model.codec import from_json, page_from_json
from wakeful.run.run import TriggerName

if TYPE_CHECKING:
    from wakeful.client.rest import RestClient
    from wakeful.model.job_fields import JsonLike

#: The longest wait between two polls, in seconds.
LONGEST_POLL: Final = 2.0


class Runs(RunsApi):
    """The runs of one agent: `client.runs`."""

    def __init__(self, rest: RestClient, agent: str) -> None:
        self._rest = rest
        self._agent = agent

    def of(self, agent: str, workspace: str | None = None) -> Runs:
        return Runs(self._rest.in_workspace(workspace), agent)

    async def get(self, run_id: str) -> Run:
        return from_json(Run, await self._rest.get_run(run_id))

    async def attempts(self, run_id: str) -> builtins.list[Attempt]:
        return [*(await self.get(run_id)).attempts]

    async def list(
        self,
        *,
        job_id: str | None = None,
        states: Iterable[str] = (),
        trigger: Trigger | TriggerName | None = None,
        instance: str | None = None,
        dead: bool = False,
        to_confirm: bool = False,
        limit: int = 50,
        before: str | None = None,
        cursor: str | None = None,
        all_agents: bool = False,
    ) -> Page[Run]:
        page = await self._rest.list_all_runs(
            agent=None if all_agents else self._agent,
            job_id=job_id,
            state=",".join(states) or None,
            trigger=trigger,
            instance=instance,
            dead=dead or None,
            to_confirm=to_confirm or None,
            limit=limit,
            before=before,
            cursor=cursor,
        )
        return page_from_json(Run, page)

    async def dead_letters(
        self, *, limit: int = 50, cursor: str | None = None, all_agents: bool = False
    ) -> Page[Run]:
        agent = None if all_agents else self._agent
        page = await self._rest.list_dead_letters(agent=agent, limit=limit, cursor=cursor)
        return page_from_json(Run, page)

    async def wait(
        self, run_id: str, *, poll: float = 0.1, on_poll: Callable[[Run], None] | None = None
    ) -> Run:
        async for run in poll_run(self, run_id, poll):
            if on_poll is not None:
                on_poll(run)
        return run

    async def cancel(self, run_id: str) -> Run:
        return from_json(Run, await self._rest.cancel_run(run_id))

    async def stop(self, run_id: str) -> Run:
        return from_json(Run, await self._rest.stop_run(run_id))

    async def replay(self, run_id: str) -> Run:
        return from_json(Run, await self._rest.replay_run(run_id))

    async def discard(self, run_id: str) -> None:
        await self._rest.discard_run(run_id)

    async def replay_many(
        self, run_ids: Iterable[str] | None, *, all_agents: bool = False
    ) -> builtins.list[str]:
        return [*await self._rest.replay_dead_letters(self._select(run_ids, all_agents))]

    async def discard_many(
        self, run_ids: Iterable[str] | None, *, all_agents: bool = False
    ) -> builtins.list[str]:
        return [*await self._rest.discard_dead_letters(self._select(run_ids, all_agents))]

    def _select(self, run_ids: Iterable[str] | None, all_agents: bool) -> dict[str, object]:
        if run_ids is not None:
            return {"ids": [*run_ids]}
        return {"all": True} if all_agents else {"agent": self._agent}

    async def complete(
        self,
        run: str | Run,
        status: Literal["succeeded", "failed"],
        *,
        attempt: int | None = None,
        output: JsonLike = None,
        error: str | None = None,
        usage: Mapping[str, object] | None = None,
        evidence: Mapping[str, object] | None = None,
        permanent: bool = False,
    ) -> Run:
        run_id, attempt = id_and_attempt(run, attempt)
        report = {
            "status": status, "attempt": attempt, "output": output, "error": error, "usage": usage,
            "evidence": evidence, "permanent": permanent or None,
        }  # fmt: skip
        return from_json(Run, await self._rest.complete_run(run_id, report))

    async def verify(
        self, run: str | Run, verified: bool = True, *, reason: str | None = None, attempt: int | None = None
    ) -> Run:
        run_id, attempt = id_and_attempt(run, attempt)
        return from_json(
            Run, await self._rest.verify_run(run_id, verified=verified, reason=reason, attempt=attempt)
        )

    async def heartbeat(self, run: str | Run, *, attempt: int | None = None) -> Run:
        run_id, attempt = id_and_attempt(run, attempt)
        return from_json(Run, await self._rest.heartbeat_run(run_id, attempt=cast(int, attempt)))

    async def heartbeat_many(self, runs: Iterable[Run], *, worker: str | None = None) -> HeartbeatResult:
        beat = await self._rest.heartbeat_runs(runs=held_runs(runs), worker=worker)
        return from_json(HeartbeatResult, beat)

    async def release(
        self, worker: str, runs: Iterable[Run] = (), *, claim_id: str | None = None
    ) -> ReleaseResult:
        released = await self._rest.release_runs(worker=worker, runs=held_runs(runs), claim_id=claim_id)
        return from_json(ReleaseResult, released)

    async def claim(
        self,
        worker: str,
        *,
        agents: Iterable[str] = (),
        lanes: Iterable[str] = (),
        limit: int = 1,
        wait_ms: int = 0,
        claim_id: str | None = None,
    ) -> builtins.list[Run]:
        claimed = await self._rest.claim_runs(
            worker=worker,
            agents=[*agents],
            lanes=[*lanes],
            limit=limit,
            wait_ms=wait_ms,
            claim_id=claim_id,
        )
        return [from_json(Run, run) for run in claimed]

    async def wake(self, payload: JsonLike = None) -> Run:
        return from_json(Run, await self._rest.wake_agent(self._agent, payload=payload))


def held_runs(runs: Iterable[Run]) -> builtins.list[dict[str, object]]:
    """Return claimed runs as a request names them."""
    return [{"id": run.id, "attempt": run.attempt} for run in runs]


def poll_run(runs: Runs, run_id: str, poll: float) -> AsyncGenerator[Run, None]:
    """Yield the run after each read, until it has ended."""
    return poll_each(
        lambda: runs.get(run_id), lambda run: run.state.terminal, poll=poll, longest=LONGEST_POLL
    )
