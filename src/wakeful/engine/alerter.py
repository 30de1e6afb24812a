"""The alerter: turns incidents into alerts. `alert_rules.judge` decides which.

An alert is a run of the job that posts it to the webhook, and a run of the job that sends it to the channel,
so that each is recorded and retried on its own. One transaction removes an incident and inserts its runs, so
only one replica does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wakeful.alert_rules import Alert, Incident, judge
from wakeful.clock import Clock
from wakeful.engine.loop import Loop
from wakeful.logs import get_logger
from wakeful.store.port import Store

_BATCH: Final = 200

log = get_logger("wakeful.alerter")


class Alerter(Loop):
    """Turns incidents into alerts.

    The replica that writes an incident is notified of it. The others check every `check_ms`, in case that
    replica has died.
    """

    name = "alerter"

    def __init__(self, store: Store, clock: Clock, check_ms: int) -> None:
        super().__init__(clock, check_ms)
        self._store = store

    async def step(self) -> int | None:
        """Handle one batch. Returns the current time while there may be more."""
        now_ms = self.clock.now_ms()
        taken = await self._store.raise_alerts(now_ms, _BATCH, self._judge)
        return now_ms if taken >= _BATCH else None

    def _judge(self, incident: Incident) -> Sequence[Alert]:
        """Return the alerts of an incident; none for one that cannot be read, so that it blocks no other."""
        try:
            return judge(incident, self.clock.now_ms())
        except Exception:
            log.exception("incident.set_aside", kind=incident.kind, workspace=incident.workspace)
            return ()
