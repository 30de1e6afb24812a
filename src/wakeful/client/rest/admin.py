"""The endpoints of agents, keys, the audit log, quotas and workflows."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from typing import Final, cast

from wakeful.client.connection import Query, path, read_page
from wakeful.client.rest.part import RestPart
from wakeful.client.types import (
    AgentShape,
    EntryShape,
    IncidentShape,
    KeyShape,
    ReceiptShape,
    SessionHistoryShape,
    SessionShape,
    SuggestionShape,
)
from wakeful.model import Page
from wakeful.values.json_value import Json

#: Seconds that the check of a long audit chain may take beyond the usual timeout.
_CHAIN_TIMEOUT: Final = 600.0


class RestAgents(RestPart):
    """The agents of a workspace."""

    async def list(self) -> builtins.list[AgentShape]:
        """Return all agents, by name."""
        return cast(builtins.list[AgentShape], await self._list("agents"))

    async def get(self, name: str) -> AgentShape:
        """Return an agent."""
        return cast(AgentShape, await self._request("GET", "agents", name))

    async def put(self, name: str, document: Mapping[str, Json]) -> AgentShape:
        """Create an agent, or change it to match the document."""
        return cast(AgentShape, await self._request("PUT", "agents", name, body=dict(document)))

    async def update(
        self, name: str, patch: Mapping[str, Json], *, if_version: int | None = None
    ) -> AgentShape:
        """Change the fields of a patch; with `if_version`, only at that version."""
        where = path(self._workspace, "agents", name)
        headers = {} if if_version is None else {"If-Match": f'"{if_version}"'}
        reply = await self._connection.request("PATCH", where, body=dict(patch), headers=headers)
        return cast(AgentShape, reply)

    async def rotate_secret(self, name: str) -> AgentShape:
        """Create a new webhook secret."""
        return cast(AgentShape, await self._request("POST", "agents", name, "rotate-secret"))

    async def delete(self, name: str) -> None:
        """Delete an agent that has no jobs."""
        await self._request("DELETE", "agents", name)

    async def say(
        self,
        name: str,
        message: str,
        *,
        session: str | None = None,
        channel: str | None = None,
        to: str | None = None,
    ) -> ReceiptShape:
        """Send a message to an agent."""
        given = {"session": session, "channel": channel, "to": to}
        body: dict[str, Json] = {"message": message}
        body.update({field: value for field, value in given.items() if value is not None})
        return cast(ReceiptShape, await self._request("POST", "agents", name, "messages", body=body))

    async def sessions(self, name: str, *, limit: int = 50, cursor: str | None = None) -> Page[SessionShape]:
        """Return a page of the sessions of an agent, by name."""
        query: Query = {"cursor": cursor, "limit": limit}
        return read_page(await self._request("GET", "agents", name, "sessions", query=query), "sessions")

    async def session(
        self, name: str, session: str, *, limit: int = 50, cursor: str | None = None
    ) -> SessionHistoryShape:
        """Return a session with a page of its history, newest first."""
        query: Query = {"cursor": cursor, "limit": limit}
        found = await self._request("GET", "agents", name, "sessions", session, query=query)
        return cast(SessionHistoryShape, found)

    async def delete_session(self, name: str, session: str) -> None:
        """Delete a session with its history."""
        await self._request("DELETE", "agents", name, "sessions", session)


class RestKeys(RestPart):
    """The API keys of a workspace."""

    async def list(self) -> builtins.list[KeyShape]:
        """Return all keys, oldest first."""
        return cast(builtins.list[KeyShape], await self._list("keys"))

    async def create(self, document: Mapping[str, Json]) -> KeyShape:
        """Create a key."""
        return cast(KeyShape, await self._request("POST", "keys", body=dict(document)))

    async def revoke(self, key_id: str) -> None:
        """Revoke a key."""
        await self._request("DELETE", "keys", key_id)


class RestAudit(RestPart):
    """The audit log of a workspace."""

    async def list(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        subject: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[EntryShape]:
        """Return a page of entries, newest first."""
        query: Query = {
            "actor": actor,
            "action": action,
            "subject": subject,
            "cursor": cursor,
            "limit": limit,
        }
        return read_page(await self._request("GET", "audit", query=query), "entries")

    async def verify(self) -> dict[str, Json]:
        """Check the whole chain of hashes."""
        where = path(self._workspace, "audit", "verify")
        reply = await self._connection.request("GET", where, extra_timeout=_CHAIN_TIMEOUT)
        return cast(dict[str, Json], reply)


class RestIncidents(RestPart):
    """The incidents of a workspace."""

    async def list(
        self,
        *,
        states: Iterable[str] = (),
        agent: str | None = None,
        job: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[IncidentShape]:
        """Return a page of incidents, newest first."""
        state = ",".join(states) or None
        query: Query = {"state": state, "agent": agent, "job": job, "limit": limit, "cursor": cursor}
        return read_page(await self._request("GET", "incidents", query=query), "incidents")

    async def get(self, incident_id: str) -> IncidentShape:
        """Return an incident."""
        return cast(IncidentShape, await self._request("GET", "incidents", incident_id))

    async def ack(self, incident_id: str, *, note: str | None = None) -> IncidentShape:
        """Acknowledge an incident."""
        body: dict[str, Json] = {} if note is None else {"note": note}
        return cast(IncidentShape, await self._request("POST", "incidents", incident_id, "ack", body=body))


class RestSuggestions(RestPart):
    """The suggestions of a workspace."""

    async def list(
        self,
        *,
        statuses: Iterable[str] = (),
        agent: str | None = None,
        job: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[SuggestionShape]:
        """Return a page of suggestions, newest first."""
        status = ",".join(statuses) or None
        query: Query = {"status": status, "agent": agent, "job": job, "limit": limit, "cursor": cursor}
        return read_page(await self._request("GET", "suggestions", query=query), "suggestions")

    async def get(self, suggestion_id: str) -> SuggestionShape:
        """Return a suggestion."""
        return cast(SuggestionShape, await self._request("GET", "suggestions", suggestion_id))

    async def decide(self, suggestion_id: str, verb: str) -> SuggestionShape:
        """Apply, dismiss or roll back a suggestion: `apply`, `dismiss`, `rollback`."""
        return cast(SuggestionShape, await self._request("POST", "suggestions", suggestion_id, verb))


class RestQuotas(RestPart):
    """The quotas of a workspace."""

    async def list(self) -> builtins.list[dict[str, Json]]:
        """Return all quotas that are set or used."""
        return cast(builtins.list[dict[str, Json]], await self._list("quotas"))


class RestWorkflows(RestPart):
    """The workflows of a workspace."""

    async def put(self, workflow_id: str, version: int, dag: Mapping[str, Json]) -> dict[str, Json]:
        """Store a version."""
        return await self._request("PUT", "workflows", workflow_id, str(version), body=dict(dag))

    async def get(self, workflow_id: str, version: int) -> dict[str, Json]:
        """Return a version."""
        return await self._request("GET", "workflows", workflow_id, str(version))
