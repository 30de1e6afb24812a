"""Incidents: read and acknowledge them."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Final

from wakeful.errors import FailedPrecondition, InvalidArgument, NotFound
from wakeful.run.incidents import INCIDENT_STATES, Incident, acknowledge
from wakeful.service.auth.access import Action, Principal, visible_agent
from wakeful.service.auth.accounts import Accounts
from wakeful.service.filters import check_choices
from wakeful.service.row_codec import instant
from wakeful.store.port import Store
from wakeful.store.sql.incidents import IncidentFilter
from wakeful.values.json_value import compact
from wakeful.values.stored_text import UNSTORABLE, is_storable

#: The longest note of an acknowledgement.
MAX_NOTE: Final = 1_000


class IncidentService:
    """Reads and acknowledges incidents."""

    def __init__(self, store: Store, accounts: Accounts) -> None:
        self._store = store
        self._accounts = accounts

    async def get(self, principal: Principal, workspace: str, incident_id: str) -> Incident:
        """Return the incident of that id, or raise NotFound."""
        return await self._one(principal, "read", workspace, incident_id)

    async def list(
        self,
        principal: Principal,
        workspace: str,
        *,
        agent: str | None = None,
        job: str | None = None,
        states: Sequence[str] = (),
        before: str | None = None,
        limit: int = 50,
    ) -> builtins.list[Incident]:
        """List incidents, newest first; `job` is a name or an id.

        `before` is the id of the last incident of the previous page.
        """
        await self._accounts.authorize(principal, "read", workspace, agent)
        check_choices("state", states, INCIDENT_STATES)
        visible = visible_agent(principal, agent)
        found = await self._store.incidents(
            IncidentFilter(workspace, visible, job, tuple(states), before, limit)
        )
        if not found:
            await self._accounts.check_agent(principal, workspace, agent)
        await self._accounts.names.load(each.acknowledged_by for each in found)
        return found

    async def acknowledge(
        self, principal: Principal, workspace: str, incident_id: str, note: object = None
    ) -> Incident:
        """Acknowledge an incident: no alert or reminder follows until it has recovered.

        Acknowledging it again changes nothing. FailedPrecondition: it has recovered or was closed.
        """
        text = _note(note)
        incident = await self._one(principal, "incident.acknowledge", workspace, incident_id)
        now_ms = self._store.clock.now_ms()

        def change(old: Incident) -> Incident | None:
            if old.acknowledged_ms is not None:
                return None
            if old.closed_ms is not None:
                raise FailedPrecondition(
                    f"incident {old.id} is {old.state} since {instant(old.closed_ms)}; "
                    "there is nothing to acknowledge"
                )
            return acknowledge(old, now_ms, principal.actor, text)

        details = {"job": f"{incident.agent}/{incident.job_name}", "cause": incident.cause}
        entry = principal.entry(
            workspace,
            "incident.acknowledge",
            incident_id,
            compact({**details, **({"note": text} if text else {})}),
        )
        changed = await self._store.acknowledge_incident(workspace, incident_id, change, [entry])
        if changed is None:
            raise _no_incident(incident_id)
        return changed

    async def _one(self, principal: Principal, action: Action, workspace: str, incident_id: str) -> Incident:
        await self._accounts.authorize(principal, "read", workspace)
        incident = await self._store.incident(workspace, incident_id)
        if incident is None or (principal.role == "agent" and incident.agent != principal.agent):
            raise _no_incident(incident_id)
        await self._accounts.authorize(principal, action, workspace, incident.agent)
        await self._accounts.names.load((incident.acknowledged_by,))
        return incident


def _no_incident(incident_id: str) -> NotFound:
    return NotFound(f"no incident '{incident_id[:64]}'; list the incidents to see their ids")


def _note(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > MAX_NOTE:
        raise InvalidArgument(f"note: write a text of at most {MAX_NOTE} characters")
    if not is_storable(value):
        raise InvalidArgument(f"note: {UNSTORABLE}")
    return value.strip() or None
