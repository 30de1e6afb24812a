"""The runs of an agent in this process. `wakeful.client.runs` documents the methods."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from wakeful.app.home import Home, LocalPart
from wakeful.app.pages import check_cursor, make_page, one_more
from wakeful.client.runs import Runs as ClientRuns
from wakeful.client.runs import id_and_attempt, poll_until
from wakeful.model import HeartbeatResult, Page, ReleaseResult, Run, Trigger
from wakeful.model.codec import from_json
from wakeful.model.job_fields import JsonLike
from wakeful.run.dead_letter_groups import DeadLetterSelection
from wakeful.run.run import TriggerName
from wakeful.run.verification import write_evidence
from wakeful.service.auth.access import LOCAL
from wakeful.service.model_mapping import run_as_listed, run_from_view
from wakeful.service.services import Services
from wakeful.values.json_value import compact, json_value


class Runs(LocalPart, ClientRuns):
    """The runs of one agent: `app.runs`."""

    def __init__(self, services: Services, workspace: str, agent: str, home: Home | None = None) -> None:
        super().__init__(services, workspace, home)
        self._service = services.runs
        self._agent = agent

    def of(self, agent: str, workspace: str | None = None) -> Runs:
        return Runs(self._services, workspace or self._workspace, agent, self._home)

    async def get(self, run_id: str) -> Run:
        run, attempts = await self._service.read(LOCAL, self._workspace, run_id)
        return run_from_view(run, attempts, await self._services.runs.waiting.of(run))

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
        found = await self._service.list(
            LOCAL,
            self._workspace,
            None if all_agents else self._agent,
            job_id=job_id,
            states=tuple(states),
            trigger=trigger,
            instance=instance,
            dead=dead,
            to_confirm=to_confirm,
            before=check_cursor(cursor) or before,
            limit=one_more(limit),
        )
        return make_page(found, limit, run_as_listed, lambda run: run.id)

    async def dead_letters(
        self, *, limit: int = 50, cursor: str | None = None, all_agents: bool = False
    ) -> Page[Run]:
        return await self.list(dead=True, limit=limit, cursor=cursor, all_agents=all_agents)

    async def wait(
        self, run_id: str, *, poll: float = 0.1, on_poll: Callable[[Run], None] | None = None
    ) -> Run:
        async def read() -> Run:
            return run_from_view(await self._service.get(LOCAL, self._workspace, run_id))

        await poll_until(
            read, lambda run: run.state.terminal, poll=min(poll, 0.05), longest=poll, on_poll=on_poll
        )
        return await self.get(run_id)

    async def cancel(self, run_id: str) -> Run:
        return run_from_view(await self._service.cancel(LOCAL, self._workspace, run_id))

    async def stop(self, run_id: str) -> Run:
        return run_from_view(await self._service.stop(LOCAL, self._workspace, run_id))

    async def replay(self, run_id: str) -> Run:
        return run_from_view(await self._service.replay(LOCAL, self._workspace, run_id))

    async def discard(self, run_id: str) -> None:
        await self._service.discard(LOCAL, self._workspace, run_id)

    async def replay_many(
        self, run_ids: Iterable[str] | None, *, all_agents: bool = False
    ) -> builtins.list[str]:
        ids = await self._dead_letter_ids(run_ids, all_agents)
        return [*await self._service.replay_many(LOCAL, self._workspace, ids)]

    async def discard_many(
        self, run_ids: Iterable[str] | None, *, all_agents: bool = False
    ) -> builtins.list[str]:
        ids = await self._dead_letter_ids(run_ids, all_agents)
        return [*await self._service.discard_many(LOCAL, self._workspace, ids)]

    async def _dead_letter_ids(
        self, run_ids: Iterable[str] | None, all_agents: bool
    ) -> builtins.list[str] | None:
        if run_ids is not None:
            return [*run_ids]
        if all_agents:
            return None
        own = DeadLetterSelection(self._agent)
        return (await self._services.runs.dead_letters.select(LOCAL, self._workspace, own)).ids

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
        done = await self._service.complete(
            LOCAL,
            self._workspace,
            run_id,
            status,
            attempt=attempt,
            output=output if output is None or isinstance(output, str) else _text(output),
            error=error,
            usage=None if usage is None else _text(usage),
            evidence=None if evidence is None else write_evidence(evidence),
            permanent=permanent,
        )
        return run_from_view(done)

    async def verify(
        self, run: str | Run, verified: bool = True, *, reason: str | None = None, attempt: int | None = None
    ) -> Run:
        run_id, attempt = id_and_attempt(run, attempt)
        service = self._service
        return run_from_view(
            await service.verify(LOCAL, self._workspace, run_id, verified, reason=reason, attempt=attempt)
        )

    async def heartbeat(self, run: str | Run, *, attempt: int | None = None) -> Run:
        run_id, attempt = id_and_attempt(run, attempt)
        return run_from_view(
            await self._services.runs.pull.heartbeat(LOCAL, self._workspace, run_id, attempt)
        )

    async def heartbeat_many(self, runs: Iterable[Run], *, worker: str | None = None) -> HeartbeatResult:
        held = [(run.id, run.attempt) for run in runs]
        renewed, lost = await self._services.runs.pull.heartbeats(LOCAL, self._workspace, held, worker)
        return HeartbeatResult(tuple(renewed), tuple(lost))

    async def release(
        self, worker: str, runs: Iterable[Run] = (), *, claim_id: str | None = None
    ) -> ReleaseResult:
        held = [(run.id, run.attempt) for run in runs]
        released, lost = await self._services.runs.pull.release(
            LOCAL, self._workspace, worker, held, claim_id
        )
        return ReleaseResult(tuple(released), tuple(lost))

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
        claimed = await self._services.runs.pull.claim(
            LOCAL,
            self._workspace,
            worker,
            agents=[*agents] or None,
            lanes=[*lanes] or None,
            limit=limit,
            wait_ms=wait_ms,
            claim_id=claim_id,
        )
        return [from_json(Run, run) for run in claimed]

    async def wake(self, payload: JsonLike = None) -> Run:
        return run_from_view(
            await self._services.agents.wakes.wake(LOCAL, self._workspace, self._agent, payload)
        )


def _text(value: object) -> str:
    return compact(json_value(value, None))
