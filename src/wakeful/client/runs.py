"""The runs of an agent on a server. `wakeful.client.scheduler` documents the methods."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Literal

from wakeful.client.fields import document
from wakeful.client.rest.runs import RestRuns
from wakeful.client.scheduler import RunsApi, id_and_attempt, poll_each
from wakeful.model import Attempt, HeartbeatResult, Page, ReleaseResult, Run, Trigger
from wakeful.model.codec import from_json, page_from_json
from wakeful.run.run import TriggerName

if TYPE_CHECKING:
    from wakeful.model.job_fields import JsonLike

#: The longest wait between two polls, in seconds.
LONGEST_POLL: Final = 2.0


class Runs(RunsApi):
    """The runs of one agent: `client.runs`."""

    def __init__(self, rest: RestRuns) -> None:
        self._rest = rest

    def of(self, agent: str, workspace: str | None = None) -> Runs:
        return Runs(self._rest.of(agent, workspace))

    async def get(self, run_id: str) -> Run:
        return from_json(Run, await self._rest.get(run_id))

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
        page = await self._rest.list(
            job_id=job_id,
            states=states,
            trigger=trigger,
            instance=instance,
            dead=dead,
            to_confirm=to_confirm,
            limit=limit,
            before=before,
            cursor=cursor,
            all_agents=all_agents,
        )
        return page_from_json(Run, page)

    async def dead_letters(
        self, *, limit: int = 50, cursor: str | None = None, all_agents: bool = False
    ) -> Page[Run]:
        page = await self._rest.dead_letters(limit=limit, cursor=cursor, all_agents=all_agents)
        return page_from_json(Run, page)

    async def wait(
        self, run_id: str, *, poll: float = 0.1, on_poll: Callable[[Run], None] | None = None
    ) -> Run:
        async for run in poll_run(self, run_id, poll):
            if on_poll is not None:
                on_poll(run)
        return run

    async def cancel(self, run_id: str) -> Run:
        return from_json(Run, await self._rest.cancel(run_id))

    async def stop(self, run_id: str) -> Run:
        return from_json(Run, await self._rest.stop(run_id))

    async def replay(self, run_id: str) -> Run:
        return from_json(Run, await self._rest.replay(run_id))

    async def discard(self, run_id: str) -> None:
        await self._rest.discard(run_id)

    async def replay_many(
        self, run_ids: Iterable[str] | None, *, all_agents: bool = False
    ) -> builtins.list[str]:
        return await self._rest.replay_many(run_ids, all_agents=all_agents)

    async def discard_many(
        self, run_ids: Iterable[str] | None, *, all_agents: bool = False
    ) -> builtins.list[str]:
        return await self._rest.discard_many(run_ids, all_agents=all_agents)

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
        return from_json(Run, await self._rest.complete(run_id, document(report)))

    async def verify(
        self, run: str | Run, verified: bool = True, *, reason: str | None = None, attempt: int | None = None
    ) -> Run:
        run_id, attempt = id_and_attempt(run, attempt)
        return from_json(Run, await self._rest.verify(run_id, verified, reason=reason, attempt=attempt))

    async def heartbeat(self, run: str | Run, *, attempt: int | None = None) -> Run:
        return from_json(Run, await self._rest.heartbeat(*id_and_attempt(run, attempt)))

    async def heartbeat_many(self, runs: Iterable[Run], *, worker: str | None = None) -> HeartbeatResult:
        held = [(run.id, run.attempt) for run in runs]
        return from_json(HeartbeatResult, await self._rest.heartbeat_many(held, worker=worker))

    async def release(
        self, worker: str, runs: Iterable[Run] = (), *, claim_id: str | None = None
    ) -> ReleaseResult:
        held = [(run.id, run.attempt) for run in runs]
        return from_json(ReleaseResult, await self._rest.release(worker, held, claim_id=claim_id))

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
        request = document(
            {"worker": worker, "agents": [*agents], "lanes": [*lanes], "limit": limit, "claimId": claim_id}
        )
        return [from_json(Run, run) for run in await self._rest.claim(request, wait_ms=wait_ms)]

    async def wake(self, payload: JsonLike = None) -> Run:
        return from_json(Run, await self._rest.wake(document({"payload": payload})["payload"]))


def poll_run(runs: Runs, run_id: str, poll: float) -> AsyncGenerator[Run, None]:
    """Yield the run after each read, until it has ended."""
    return poll_each(
        lambda: runs.get(run_id), lambda run: run.state.terminal, poll=poll, longest=LONGEST_POLL
    )
