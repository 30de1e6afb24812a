"""Alerts: incidents, and the jobs that send alerts about them.

- `incidents`: failed runs, ticks missed during downtime, and budget caps that were reached. An incident is
  written in the transaction of its cause if the agent or the workspace has `alerts` (topic: `incidents`).
  The transaction that removes it decides whether an alert is sent, so at most one is.
- `alert_cooldowns`: when the last alert was sent, from which a cool-down counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple, Protocol

from wakeful.store.rows import RunRow

#: The jobs that send alerts: of an agent, and of a workspace (owned by its agent `default`). Webhook and
#: channel have a job each, so that each is retried on its own. Their own runs cause no alerts.
AGENT_ALERTS: Final = "wakeful-alerts"
WORKSPACE_ALERTS: Final = "wakeful-workspace-alerts"
AGENT_CHANNEL: Final = "wakeful-channel-alerts"
WORKSPACE_CHANNEL: Final = "wakeful-workspace-channel-alerts"
ALERT_JOBS: Final = (AGENT_ALERTS, WORKSPACE_ALERTS, AGENT_CHANNEL, WORKSPACE_CHANNEL)
#: The agent that owns the alert jobs of a workspace.
WORKSPACE_AGENT: Final = "default"

IncidentKind = Literal["failed", "missed", "budget"]


class AlertJob(NamedTuple):
    """A job that sends alerts."""

    id: str
    agent: str
    name: str
    work: str


class Incident(NamedTuple):
    """An event that may cause an alert, with everything that the alert needs."""

    id: int
    at_ms: int
    kind: str
    workspace: str
    #: '' for the whole workspace
    agent: str
    job_id: str | None
    run_id: str | None
    #: consecutive failures; missed ticks; 1
    times: int
    #: compact JSON with further facts
    details: str
    job_name: str | None
    error: str | None
    #: compact JSON of the alert settings: the agent's, else the workspace's; None: removed since
    alerts: str | None
    #: the job that sends to the webhook; None: there is none
    webhook_id: str | None
    webhook_agent: str | None
    webhook_name: str | None
    webhook_work: str | None
    #: the job that sends to the channel; None: there is none
    channel_id: str | None
    channel_agent: str | None
    channel_name: str | None
    channel_work: str | None

    @property
    def webhook(self) -> AlertJob | None:
        """The job that sends to the webhook."""
        return _alert_job(self.webhook_id, self.webhook_agent, self.webhook_name, self.webhook_work)

    @property
    def channel(self) -> AlertJob | None:
        """The job that sends to the channel."""
        return _alert_job(self.channel_id, self.channel_agent, self.channel_name, self.channel_work)


class Alert(NamedTuple):
    """An alert to send, unless its cool-down is running."""

    workspace: str
    #: a job's id, or the owner of a cap; the cool-down is per subject and kind
    subject: str
    kind: str
    cooldown_ms: int
    #: the runs that send it, one for each destination
    runs: tuple[RunRow, ...]


class AlertStore(Protocol):
    """The part of a store that holds incidents and cool-downs."""

    async def raise_alerts(
        self, now_ms: int, limit: int, judge: Callable[[Incident], Sequence[Alert]]
    ) -> int:
        """Remove up to `limit` incidents, oldest first, and add the runs of the alerts that `judge` returns.

        An alert is dropped while the cool-down of its kind and subject runs, whichever replica sent the last
        one; all destinations of an alert count as one. Returns the number of incidents.
        """
        ...


def _alert_job(id: str | None, agent: str | None, name: str | None, work: str | None) -> AlertJob | None:
    if id is None or agent is None or name is None or work is None:
        return None
    return AlertJob(id, agent, name, work)
