"""Agents, incidents, the inbox, suggestions, keys, the audit log, quotas and workflows of a server."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import cast, overload

from wakeful.client.instances import Instances, RestPart
from wakeful.model import (
    AgentInfo,
    ApiKey,
    AuditEntry,
    InboxCounts,
    InboxDecision,
    InboxItem,
    Incident,
    InstanceInfo,
    MessageReceipt,
    Page,
    Quota,
    SessionInfo,
    Suggestion,
    WorkflowVersion,
)
from wakeful.model.codec import from_json, page_from_json
from wakeful.values.json_value import Json


class Agents(Instances):
    """The agents of a workspace, and their instances: `client.agents`."""

    @overload
    async def list(self) -> builtins.list[AgentInfo]: ...
    @overload
    async def list(self, name: str) -> builtins.list[InstanceInfo]: ...
    async def list(self, name: str | None = None) -> builtins.list[AgentInfo] | builtins.list[InstanceInfo]:
        """Return all agents, by name; with the `name` of an agent, all its instances."""
        if name is not None:
            return await self._all_instances(name)
        return [from_json(AgentInfo, agent) for agent in await self._rest.list_agents()]

    async def get(self, name: str) -> AgentInfo:
        """Return an agent, or raise NotFound."""
        return from_json(AgentInfo, await self._rest.get_agent(name))

    async def put(self, name: str, fields: Mapping[str, object]) -> AgentInfo:
        """Create an agent, or change it to match these fields. A `secret` in the result is shown once."""
        return from_json(AgentInfo, await self._rest.put_agent(name, fields))

    async def update(
        self, name: str, fields: Mapping[str, object], *, if_version: int | None = None
    ) -> AgentInfo:
        """Change these fields of an agent and no others; None resets a field to its default.

        With `if_version`, only an agent that is still at that version is changed: FailedPrecondition.
        """
        return from_json(AgentInfo, await self._rest.update_agent(name, fields, if_version=if_version))

    async def rotate_secret(self, name: str) -> AgentInfo:
        """Create a new webhook secret, which is shown once."""
        return from_json(AgentInfo, await self._rest.rotate_agent_secret(name))

    async def delete(self, name: str) -> None:
        """Delete an agent that has no jobs."""
        await self._rest.delete_agent(name)

    async def say(
        self,
        name: str,
        message: str,
        *,
        session: str | None = None,
        channel: str | None = None,
        to: str | None = None,
    ) -> MessageReceipt:
        """Send a message to an agent, in the session `main` or the one that is named.

        `channel` and `to` say where it comes from: jobs that are made in the conversation deliver there.
        """
        receipt = await self._rest.send_message(
            name, message=message, session=session, channel=channel, to=to
        )
        return from_json(MessageReceipt, receipt)

    async def sessions(self, name: str, *, limit: int = 50, cursor: str | None = None) -> Page[SessionInfo]:
        """Return the sessions of an agent, by name; `cursor` is that of the previous page."""
        page = await self._rest.list_sessions(name, limit=limit, cursor=cursor)
        return page_from_json(SessionInfo, page)

    async def session(
        self, name: str, session: str = "main", *, limit: int = 50, cursor: str | None = None
    ) -> SessionInfo:
        """Return a session of an agent with its `history`, newest first; `cursor` continues it."""
        return from_json(SessionInfo, await self._rest.get_session(name, session, limit=limit, cursor=cursor))

    async def delete_session(self, name: str, session: str = "main") -> None:
        """Delete a session with its history. Its turns stop, and its waiting messages are dropped."""
        await self._rest.delete_session(name, session)


class Incidents(RestPart):
    """The incidents of a workspace, failures of one job with one cause: `client.incidents`."""

    async def list(
        self,
        *,
        states: Iterable[str] = (),
        agent: str | None = None,
        job: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Incident]:
        """Return incidents, newest first; `job` is a name or an id, `cursor` is that of the previous page.

        States: `open`, `acknowledged`, `recovered`, `closed`.
        """
        page = await self._rest.list_incidents(
            state=",".join(states) or None, agent=agent, job=job, limit=limit, cursor=cursor
        )
        return page_from_json(Incident, page)

    async def get(self, incident_id: str) -> Incident:
        """Return an incident, or raise NotFound."""
        return from_json(Incident, await self._rest.get_incident(incident_id))

    async def ack(self, incident_id: str, *, note: str | None = None) -> Incident:
        """Acknowledge an incident: no reminder follows. Acknowledging it again changes nothing.

        FailedPrecondition: it has recovered, or was closed.
        """
        return from_json(Incident, await self._rest.acknowledge_incident(incident_id, note=note))


class Inbox(RestPart):
    """What waits for a person: runs to confirm, jobs to approve, suggestions, incidents: `client.inbox`."""

    async def list(
        self,
        *,
        kinds: Iterable[str] = (),
        agent: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[InboxItem]:
        """Return what waits, newest first; `cursor` is that of the previous page.

        Kinds: `verification`, `approval`, `suggestion`, `incident`.
        """
        page = await self._rest.list_inbox(
            kind=",".join(kinds) or None, agent=agent, limit=limit, cursor=cursor
        )
        return page_from_json(InboxItem, page)

    async def counts(self, *, agent: str | None = None) -> InboxCounts:
        """Return how much of each kind waits."""
        return from_json(InboxCounts, await self._rest.count_inbox(agent=agent))

    async def approve(
        self, item_id: str, *, reason: str | None = None, version: int | None = None
    ) -> InboxDecision:
        """Confirm a run, approve a job, apply a suggestion, or acknowledge an incident.

        `version` is that of the item. FailedPrecondition: another person has decided, or it changed since.
        """
        decision = await self._rest.approve_item(item_id, reason=reason, version=version)
        return from_json(InboxDecision, decision)

    async def reject(
        self, item_id: str, *, reason: str | None = None, version: int | None = None
    ) -> InboxDecision:
        """Reject the work of a run, leave a job paused, or dismiss a suggestion.

        `version` is that of the item. FailedPrecondition: another person has decided, or it changed since.
        """
        decision = await self._rest.reject_item(item_id, reason=reason, version=version)
        return from_json(InboxDecision, decision)


class Suggestions(RestPart):
    """The suggestions of a workspace: `client.suggestions`.

    They are better settings for jobs, of agents with `evolution: suggest`.
    """

    async def list(
        self,
        *,
        statuses: Iterable[str] = (),
        agent: str | None = None,
        job: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Suggestion]:
        """Return suggestions, newest first; `job` is a name or an id, `cursor` is that of the previous page.

        Statuses: `open`, `applied`, `dismissed`, `rolled_back`, `withdrawn`.
        """
        page = await self._rest.list_suggestions(
            status=",".join(statuses) or None, agent=agent, job=job, limit=limit, cursor=cursor
        )
        return page_from_json(Suggestion, page)

    async def get(self, suggestion_id: str) -> Suggestion:
        """Return a suggestion, or raise NotFound."""
        return from_json(Suggestion, await self._rest.get_suggestion(suggestion_id))

    async def apply(self, suggestion_id: str) -> Suggestion:
        """Change the job as suggested.

        FailedPrecondition: it is not open; or its job was changed since the analysis, and it is withdrawn.
        """
        return from_json(Suggestion, await self._rest.apply_suggestion(suggestion_id))

    async def dismiss(self, suggestion_id: str) -> Suggestion:
        """Dismiss an open suggestion: it returns only if its figure gets much worse, or its job is changed.

        Dismissing it again changes nothing. FailedPrecondition: it is neither open nor dismissed.
        """
        return from_json(Suggestion, await self._rest.dismiss_suggestion(suggestion_id))

    async def rollback(self, suggestion_id: str) -> Suggestion:
        """Give the job the settings back that it had before the suggestion was applied.

        FailedPrecondition: it is not applied, or its job was changed since.
        """
        return from_json(Suggestion, await self._rest.roll_back_suggestion(suggestion_id))


class Keys(RestPart):
    """The API keys of a workspace: `client.keys`."""

    async def list(self) -> builtins.list[ApiKey]:
        """Return all keys, oldest first; never the keys themselves."""
        return [from_json(ApiKey, key) for key in await self._rest.list_keys()]

    async def create(
        self,
        name: str,
        *,
        role: str = "member",
        agent: str | None = None,
        expires_at: str | datetime | None = None,
    ) -> ApiKey:
        """Create a key. The `key` in the result is shown once."""
        key = await self._rest.create_key(name=name, role=role, agent=agent, expires_at=expires_at)
        return from_json(ApiKey, key)

    async def revoke(self, key_id: str) -> None:
        """Revoke a key, at once."""
        await self._rest.revoke_key(key_id)


class Audit(RestPart):
    """The audit log of a workspace: `client.audit`."""

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
        page = await self._rest.list_audit(
            actor=actor, action=action, subject=subject, limit=limit, cursor=cursor
        )
        return page_from_json(AuditEntry, page)

    async def verify(self) -> dict[str, Json]:
        """Check the whole chain of hashes: return the number of entries, and the first flaw or None."""
        return cast(dict[str, Json], await self._rest.verify_audit())


class Quotas(RestPart):
    """The quotas of a workspace: `client.quotas`."""

    async def list(self) -> builtins.list[Quota]:
        """Return all quotas that are set or used."""
        return [from_json(Quota, quota) for quota in await self._rest.list_quotas()]


class Workflows(RestPart):
    """The workflows of a workspace, by id and version: `client.workflows`."""

    async def put(self, workflow_id: str, version: int, dag: Mapping[str, object]) -> WorkflowVersion:
        """Store a version; AlreadyExists if it exists with another content."""
        return from_json(WorkflowVersion, await self._rest.put_workflow(workflow_id, version, dag))

    async def get(self, workflow_id: str, version: int) -> WorkflowVersion:
        """Return a version, or raise NotFound."""
        return from_json(WorkflowVersion, await self._rest.get_workflow(workflow_id, version))
