"""Agents, keys, the audit log, quotas and workflows of a server."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from datetime import datetime
from typing import overload

from wakeful.client.fields import document
from wakeful.client.instances import Instances
from wakeful.client.rest.admin import RestAgents, RestAudit, RestKeys, RestQuotas, RestWorkflows
from wakeful.client.rest.instances import RestInstances
from wakeful.client.scheduler import AgentsApi
from wakeful.model import (
    AgentInfo,
    ApiKey,
    AuditEntry,
    InstanceInfo,
    MessageReceipt,
    Page,
    Quota,
    SessionInfo,
    WorkflowVersion,
)
from wakeful.model.codec import from_json, page_from_json
from wakeful.values.json_value import Json


class Agents(Instances, AgentsApi):
    """The agents of a workspace: `client.agents`. `wakeful.client.scheduler` documents the methods."""

    def __init__(self, rest: RestAgents, instances: RestInstances) -> None:
        super().__init__(instances)
        self._rest = rest

    @overload
    async def list(self) -> builtins.list[AgentInfo]: ...
    @overload
    async def list(self, name: str) -> builtins.list[InstanceInfo]: ...
    async def list(self, name: str | None = None) -> builtins.list[AgentInfo] | builtins.list[InstanceInfo]:
        if name is not None:
            return await self._all_instances(name)
        return [from_json(AgentInfo, agent) for agent in await self._rest.list()]

    async def get(self, name: str) -> AgentInfo:
        return from_json(AgentInfo, await self._rest.get(name))

    async def put(self, name: str, fields: Mapping[str, object]) -> AgentInfo:
        return from_json(AgentInfo, await self._rest.put(name, document(fields)))

    async def update(
        self, name: str, fields: Mapping[str, object], *, if_version: int | None = None
    ) -> AgentInfo:
        return from_json(AgentInfo, await self._rest.update(name, document(fields), if_version=if_version))

    async def rotate_secret(self, name: str) -> AgentInfo:
        return from_json(AgentInfo, await self._rest.rotate_secret(name))

    async def delete(self, name: str) -> None:
        await self._rest.delete(name)

    async def say(
        self,
        name: str,
        message: str,
        *,
        session: str | None = None,
        channel: str | None = None,
        to: str | None = None,
    ) -> MessageReceipt:
        return from_json(
            MessageReceipt, await self._rest.say(name, message, session=session, channel=channel, to=to)
        )

    async def sessions(self, name: str, *, limit: int = 50, cursor: str | None = None) -> Page[SessionInfo]:
        page = await self._rest.sessions(name, limit=limit, cursor=cursor)
        return page_from_json(SessionInfo, page)

    async def session(
        self, name: str, session: str = "main", *, limit: int = 50, cursor: str | None = None
    ) -> SessionInfo:
        return from_json(SessionInfo, await self._rest.session(name, session, limit=limit, cursor=cursor))

    async def delete_session(self, name: str, session: str = "main") -> None:
        await self._rest.delete_session(name, session)


class Keys:
    """The API keys of a workspace: `client.keys`."""

    def __init__(self, rest: RestKeys) -> None:
        self._rest = rest

    async def list(self) -> builtins.list[ApiKey]:
        """Return all keys, oldest first; never the keys themselves."""
        return [from_json(ApiKey, key) for key in await self._rest.list()]

    async def create(
        self,
        name: str,
        *,
        role: str = "member",
        agent: str | None = None,
        expires_at: str | datetime | None = None,
    ) -> ApiKey:
        """Create a key. The `key` in the result is shown once."""
        given = {"name": name, "role": role, "agent": agent, "expiresAt": expires_at}
        body = document({field: value for field, value in given.items() if value is not None})
        return from_json(ApiKey, await self._rest.create(body))

    async def revoke(self, key_id: str) -> None:
        """Revoke a key, at once."""
        await self._rest.revoke(key_id)


class Audit:
    """The audit log of a workspace: `client.audit`."""

    def __init__(self, rest: RestAudit) -> None:
        self._rest = rest

    async def list(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        subject: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[AuditEntry]:
        """Return entries, newest first; `cursor` is that of the previous page.

        `action` may be a kind, such as `job`. With a filter, a page may be short and have a next one.
        """
        page = await self._rest.list(actor=actor, action=action, subject=subject, limit=limit, cursor=cursor)
        return page_from_json(AuditEntry, page)

    async def verify(self) -> dict[str, Json]:
        """Check the whole chain of hashes: return the number of entries, and the first flaw or None."""
        return await self._rest.verify()


class Quotas:
    """The quotas of a workspace: `client.quotas`."""

    def __init__(self, rest: RestQuotas) -> None:
        self._rest = rest

    async def list(self) -> builtins.list[Quota]:
        """Return all quotas that are set or used."""
        return [from_json(Quota, quota) for quota in await self._rest.list()]


class Workflows:
    """The workflows of a workspace, by id and version: `client.workflows`."""

    def __init__(self, rest: RestWorkflows) -> None:
        self._rest = rest

    async def put(self, workflow_id: str, version: int, dag: Mapping[str, object]) -> WorkflowVersion:
        """Store a version; AlreadyExists if it exists with another content."""
        return from_json(WorkflowVersion, await self._rest.put(workflow_id, version, document(dag)))

    async def get(self, workflow_id: str, version: int) -> WorkflowVersion:
        """Return a version, or raise NotFound."""
        return from_json(WorkflowVersion, await self._rest.get(workflow_id, version))
