"""Incidents of jobs: see `wakeful.run.incidents`.

`job_incidents` has one row per incident (`Incident`). UNIQUE (job_id, cause) among open ones. The transaction
of an outcome writes it, as part of the consequences. In PostgreSQL that transaction locks the job first, then
its incidents. Topic: `incidents`, if a message may be due. An incident outlives its job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from wakeful.run.alerts import DueIncident, Notification
from wakeful.run.incidents import Incident
from wakeful.store.audit import AuditEntry


class IncidentFilter(NamedTuple):
    """Which incidents to list; None does not filter."""

    workspace: str
    agent: str | None = None
    #: the id or the name of a job
    job: str | None = None
    states: tuple[str, ...] = ()
    #: only incidents with an id lower than this one: ids are in the order of creation
    before: str | None = None
    limit: int = 50


class IncidentStore(Protocol):
    """The part of a store that holds incidents."""

    async def incident(self, workspace: str, incident_id: str) -> Incident | None:
        """Return the incident of that id."""
        ...

    async def incidents_by_ids(self, ids: Sequence[str]) -> list[Incident]:
        """Return those of these incidents that exist, in any order."""
        ...

    async def incidents(self, only: IncidentFilter) -> list[Incident]:
        """Return the incidents that match, newest first."""
        ...

    async def acknowledge_incident(
        self,
        workspace: str,
        incident_id: str,
        change: Callable[[Incident], Incident | None],
        entries: Sequence[AuditEntry] = (),
    ) -> Incident | None:
        """Write what `change` returns for this incident; None leaves it. Returns it afterwards.

        The change is published as `incident.acknowledged`. Returns None if there is no such incident.
        """
        ...

    async def notify_incidents(
        self, now_ms: int, limit: int, decide: Callable[[DueIncident], Notification]
    ) -> tuple[int, int | None]:
        """Write what `decide` returns for up to `limit` incidents whose `notify_ms` has come, oldest first.

        Adds the runs of the messages in the same transaction, so each message is sent by one replica.
        Incidents that another transaction holds are skipped. Returns the number of incidents, and the next
        `notify_ms`.
        """
        ...

    async def prune_incidents(self, before_ms: int) -> None:
        """Delete the incidents that were closed before then."""
        ...
