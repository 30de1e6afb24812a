"""What there is besides jobs and runs, on a server: agents, keys, the audit, limits, workflows."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from datetime import datetime
from typing import Final, cast

from wakeful.client.connection import Connection, Page, path
from wakeful.client.fields import document
from wakeful.client.types import AgentShape, AuditShape, KeyShape, ReceiptShape, SessionShape
from wakeful.job import Json

#: Seconds that following a chain may take beyond what an answer takes.
_LONG_CHAIN: Final = 600.0


class _Part:
    def __init__(self, connection: Connection, workspace: str) -> None:
        self._connection = connection
        self._workspace = workspace

    async def _ask(
        self,
        method: str,
        *parts: str,
        body: Json = None,
        query: Mapping[str, str | int | None] | None = None,
    ) -> dict[str, Json]:
        answer = await self._connection.ask(method, path(self._workspace, *parts), body=body, query=query)
        return cast(dict[str, Json], answer)


class Agents(_Part):
    """The agents of a workspace: `client.agents`."""

    async def list(self) -> builtins.list[AgentShape]:
        """All of them, by name."""
        return cast(builtins.list[AgentShape], (await self._ask("GET", "agents"))["agents"])

    async def get(self, name: str) -> AgentShape:
        """The agent of that name, or NotFound."""
        return cast(AgentShape, await self._ask("GET", "agents", name))

    async def put(self, name: str, fields: Mapping[str, object]) -> AgentShape:
        """Add it, or make it what these fields say; a `secret` in what is returned is not shown again."""
        return cast(AgentShape, await self._ask("PUT", "agents", name, body=document(fields)))

    async def rotate_secret(self, name: str) -> AgentShape:
        """Give it a new webhook secret, which is not shown again."""
        return cast(AgentShape, await self._ask("POST", "agents", name, "rotate-secret"))

    async def delete(self, name: str) -> None:
        """Delete an agent that has no jobs."""
        await self._ask("DELETE", "agents", name)

    async def say(self, name: str, message: str, *, session: str | None = None) -> ReceiptShape:
        """Say something to an agent, in the session `main` unless another is named."""
        said: dict[str, Json] = {"message": message, **({} if session is None else {"session": session})}
        return cast(ReceiptShape, await self._ask("POST", "agents", name, "messages", body=said))

    async def sessions(self, name: str, *, limit: int = 50, cursor: str | None = None) -> Page[SessionShape]:
        """The conversations of an agent, by name; `cursor` is that of the page before."""
        query = {"cursor": cursor, "limit": limit}
        return Page(await self._ask("GET", "agents", name, "sessions", query=query), "sessions")


class Keys(_Part):
    """The keys of a workspace: `client.keys`."""

    async def list(self) -> builtins.list[KeyShape]:
        """All of them, oldest first; never the keys themselves."""
        return cast(builtins.list[KeyShape], (await self._ask("GET", "keys"))["keys"])

    async def create(
        self,
        name: str,
        *,
        role: str = "member",
        agent: str | None = None,
        expires_at: str | datetime | None = None,
    ) -> KeyShape:
        """Make a key; the `key` in what is returned is not shown again."""
        given = {"name": name, "role": role, "agent": agent, "expiresAt": expires_at}
        body = document({field: value for field, value in given.items() if value is not None})
        return cast(KeyShape, await self._ask("POST", "keys", body=body))

    async def revoke(self, key_id: str) -> None:
        """End a key, at once."""
        await self._ask("DELETE", "keys", key_id)


class Audit(_Part):
    """Who did what: `client.audit`."""

    async def list(self, *, limit: int = 100, cursor: str | None = None) -> Page[AuditShape]:
        """Entries, newest first; `cursor` is that of the page before."""
        answer = await self._ask("GET", "audit", query={"cursor": cursor, "limit": limit})
        return Page(answer, "entries")

    async def verify(self) -> dict[str, Json]:
        """Read the whole chain: how many entries there are, and the first flaw in it, if there is one."""
        where = path(self._workspace, "audit", "verify")
        return cast(dict[str, Json], await self._connection.ask("GET", where, patience=_LONG_CHAIN))


class Quotas(_Part):
    """Limits, and what is used of them: `client.quotas`."""

    async def list(self) -> builtins.list[dict[str, Json]]:
        """All that are set or used."""
        return cast(builtins.list[dict[str, Json]], (await self._ask("GET", "quotas"))["quotas"])


class Workflows(_Part):
    """Documents by id and version, which never change: `client.workflows`."""

    async def put(self, workflow_id: str, version: int, dag: Mapping[str, object]) -> dict[str, Json]:
        """Keep a version; AlreadyExists where it is there and another."""
        return await self._ask("PUT", "workflows", workflow_id, str(version), body=document(dag))

    async def get(self, workflow_id: str, version: int) -> dict[str, Json]:
        """That version, or NotFound."""
        return await self._ask("GET", "workflows", workflow_id, str(version))
