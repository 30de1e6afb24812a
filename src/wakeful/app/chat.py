"""What chat runs need of this process: the tool `cron` of their agent, and what was said before."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from wakeful.launch.chat.request import PreviousAnswer, Said, ToolDefinition
from wakeful.launch.port import Launch
from wakeful.run.conversations import MAX_ENTRIES, suppression_reason
from wakeful.service.auth.access import LOCAL, Principal
from wakeful.service.cron_tool.local import LocalScheduler
from wakeful.service.cron_tool.port import JsonObject
from wakeful.service.cron_tool.texts import ABOUT, ARGUMENTS
from wakeful.service.cron_tool.tool import call
from wakeful.service.idempotency import KeyedOperation, Reply
from wakeful.service.serializers import serialize_run, serialize_saved_job
from wakeful.service.services import Services
from wakeful.store.rows import RunFilter
from wakeful.store.sessions import SessionKey
from wakeful.values.json_value import Json, compact

T = TypeVar("T")

TOOL: Final = "cron"
#: How many earlier successes of a job are searched for an answer that was not suppressed.
_SEARCHED: Final = 5


class CronTool:
    """The tool `cron`, with the rights of the agent of a run. Its calls are audited as `run:ID`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._definitions = (ToolDefinition(TOOL, ABOUT, ARGUMENTS),)

    def definitions(self) -> Sequence[ToolDefinition]:
        """Return the tool."""
        return self._definitions

    async def call(self, run: Launch, name: str, arguments: Mapping[str, object], key: str) -> str:
        """Perform a call and return its result, or its error, as text."""
        principal = Principal(
            f"run:{run.id}", "agent", run.workspace, run.agent, run_id=run.id, by_model=True
        )
        result = await call(_RunScheduler(self._services, principal, key), arguments)
        return result.text


class _RunScheduler(LocalScheduler):
    """Performs one tool call of a run. A retry of the run that repeats the call gets the first result."""

    def __init__(self, services: Services, principal: Principal, key: str) -> None:
        super().__init__(services, principal)
        self._key = key

    async def create(self, agent: str, document: Mapping[str, Json]) -> JsonObject:
        """Create a job."""
        create = partial(self._services.jobs.create, *self._caller, agent, document)
        return await self._once(
            create, lambda saved: serialize_saved_job(self._principal, saved, self._now_ms)
        )

    async def run(
        self, agent: str, name: str, mode: str, payload: Json, overlap: Json = None
    ) -> JsonObject | None:
        """Run a job now."""
        trigger = partial(
            self._services.jobs.trigger, *self._caller, agent, name,
            mode=mode, payload=payload, overlap=overlap,
        )  # fmt: skip
        found = await self._once(trigger, lambda run: {} if run is None else serialize_run(run))
        return found or None

    async def _once(self, operation: KeyedOperation[T], serialize: Callable[[T], JsonObject]) -> JsonObject:
        reply = await self._services.idempotency.perform(
            *self._caller,
            self._key,
            (self._key,),
            operation,
            lambda result: Reply(200, {}, compact(serialize(result))),
        )
        found: JsonObject = json.loads(reply.body)
        return found


class StoredConversations:
    """What was said before, from the store."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def zone(self, run: Launch) -> str:
        """Return the time zone of the agent."""
        return await self._services.admin.status.zone(LOCAL, run.workspace, run.agent)

    async def previous_answer(self, run: Launch) -> PreviousAnswer | None:
        """Return the last answer of earlier runs of the job that was not suppressed."""
        if run.job_id is None:
            return None
        only = RunFilter(run.workspace, job_id=run.job_id, states=("succeeded",), limit=_SEARCHED)
        for earlier in await self._services.store.runs(only):
            if earlier.output is not None and suppression_reason(earlier.output, run.job) is None:
                return PreviousAnswer(earlier.output, earlier.scheduled_ms)
        return None

    async def history(self, run: Launch, session: str) -> Sequence[Said]:
        """Return the history of a session of the agent, oldest first."""
        key = SessionKey(run.workspace, run.agent, session)
        entries = await self._services.store.history(key, None, MAX_ENTRIES)
        return [
            Said("user" if each.role == "user" else "assistant", each.content, each.job_name)
            for each in reversed(entries)
        ]
