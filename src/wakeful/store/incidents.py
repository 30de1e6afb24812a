"""Incidents of jobs, alerts about single events, and the jobs that send both.

- `job_incidents` has one row per incident (`wakeful.run.incidents`). UNIQUE (job_id, cause) among open ones.
  The transaction of an outcome writes it, as part of the consequences. In PostgreSQL that transaction locks
  the job first, then its incidents. Topic: `incidents`, if a message may be due. An incident outlives its
  job.
- `incidents` is the queue of events (`AlertEvent`): ticks missed during downtime, and budget caps that were
  reached. An event is written in the transaction of its cause if the agent or the workspace has `alerts`
  (topic: `incidents`). The transaction that removes it decides whether an alert is sent, so at most one is.
  Its name is that of an earlier version, whose replicas may use it at the same time. They write failed runs
  too, which become incidents of jobs.
- `alert_cooldowns`: when the last alert was sent, from which a cool-down counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from wakeful.run.alerts import Alert, AlertEvent, DueIncident, Notification
from wakeful.run.incidents import Incident
from wakeful.store.audit import AuditEntry

#: The jobs that send alerts: of an agent, and of a workspace (owned by its agent `default`). Webhook and
#: channel have a job each, so that each is retried on its own. Their own runs cause no alerts.
AGENT_ALERTS: Final = "wakeful-alerts"
WORKSPACE_ALERTS: Final = "wakeful-workspace-alerts"
AGENT_CHANNEL: Final = "wakeful-channel-alerts"
WORKSPACE_CHANNEL: Final = "wakeful-workspace-channel-alerts"
ALERT_JOBS: Final = (AGENT_ALERTS, WORKSPACE_ALERTS, AGENT_CHANNEL, WORKSPACE_CHANNEL)
#: The agent that owns the alert jobs of a workspace.
WORKSPACE_AGENT: Final = "default"


class AlertStore(Protocol):
    """The part of a store that holds alert events and cool-downs."""

    async def raise_alerts(
        self, now_ms: int, limit: int, judge: Callable[[AlertEvent], Sequence[Alert]]
    ) -> int:
        """Remove up to `limit` events, oldest first, and add the runs of the alerts that `judge` returns.

        An alert is dropped while the cool-down of its kind and subject runs, whichever replica sent the last
        one; all destinations of an alert count as one. Returns the number of events.
        """
        ...


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
