"""Alerts about single events, and the jobs that send alerts.

- `incidents` is the queue of events (`AlertEvent`): ticks missed during downtime, and budget caps that were
  reached. An event is written in the transaction of its cause if the agent or the workspace has `alerts`
  (topic: `incidents`). The transaction that removes it decides whether an alert is sent, so at most one is.
  Its name is that of an earlier version, whose replicas may use it at the same time. They write failed runs
  too, which become incidents of jobs (`wakeful.store.incidents`).
- `alert_cooldowns`: when the last alert was sent, from which a cool-down counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from wakeful.run.alerts import Alert, AlertEvent

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
