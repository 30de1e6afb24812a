"""The agents of a workspace in this process. `wakeful.scheduler` documents the methods."""

from __future__ import annotations

import builtins
from collections.abc import Mapping

from wakeful.app.jobs import plain_fields
from wakeful.model import AgentInfo, MessageReceipt, Page, SessionInfo
from wakeful.model.from_json import agent_from_json, receipt_from_json, session_from_json
from wakeful.scheduler import AgentsApi
from wakeful.service.auth.access import LOCAL
from wakeful.service.serializers import (
    JsonObject,
    serialize_agent,
    serialize_receipt,
    serialize_saved_agent,
    serialize_session,
)
from wakeful.service.services import Services


class Agents(AgentsApi):
    """The agents of a workspace: `app.agents`."""

    def __init__(self, services: Services, workspace: str) -> None:
        self._services = services
        self._workspace = workspace

    async def list(self) -> builtins.list[AgentInfo]:
        rows = await self._services.agents.list(LOCAL, self._workspace)
        return [agent_from_json(serialize_agent(LOCAL, row)) for row in rows]

    async def get(self, name: str) -> AgentInfo:
        row = await self._services.agents.get(LOCAL, self._workspace, name)
        return await self._with_usage(name, serialize_agent(LOCAL, row))

    async def put(self, name: str, fields: Mapping[str, object]) -> AgentInfo:
        saved = await self._services.agents.put(LOCAL, self._workspace, name, plain_fields(fields))
        return await self._with_usage(name, serialize_saved_agent(LOCAL, saved))

    async def rotate_secret(self, name: str) -> AgentInfo:
        saved = await self._services.agents.rotate_secret(LOCAL, self._workspace, name)
        return await self._with_usage(name, serialize_saved_agent(LOCAL, saved))

    async def delete(self, name: str) -> None:
        await self._services.agents.delete(LOCAL, self._workspace, name)

    async def say(self, name: str, message: str, *, session: str | None = None) -> MessageReceipt:
        document = {"message": message, **({} if session is None else {"session": session})}
        receipt = await self._services.messages.send(LOCAL, self._workspace, name, document)
        return receipt_from_json(serialize_receipt(receipt))

    async def sessions(self, name: str, *, limit: int = 50, cursor: str | None = None) -> Page[SessionInfo]:
        found = await self._services.messages.sessions(LOCAL, self._workspace, name, cursor, limit + 1)
        shown = [session_from_json(serialize_session(session)) for session in found[:limit]]
        return Page(shown, shown[-1].name if len(found) > limit else None)

    async def _with_usage(self, name: str, content: JsonObject) -> AgentInfo:
        spent = await self._services.budgets.spent(self._workspace, name)
        return agent_from_json(content, spent=spent)
