"""The alerter: tells somebody when something goes wrong. `alerting.judge` says whom, and of what.

An alert is a run of a job that posts it, and another of one that sends it to a channel where there is one: so
either is recorded, and tried again by itself until it arrives. An incident is taken away, and the runs for it
written, in one transaction: whichever replica does, no other does too.
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

    The replica that writes an incident hears of it; the others look every `look_ms`, lest that one has died.
    """

    name = "alerter"

    def __init__(self, store: Store, clock: Clock, look_ms: int) -> None:
        super().__init__(clock, look_ms)
        self._store = store

    async def step(self) -> int | None:
        """One batch. Returns at once while there may be more."""
        now_ms = self.clock.now_ms()
        taken = await self._store.raise_alerts(now_ms, _BATCH, self._judge)
        return now_ms if taken >= _BATCH else None

    def _judge(self, incident: Incident) -> Sequence[Alert]:
        """What becomes of one; one that cannot be judged is set aside, and holds up no other."""
        try:
            return judge(incident, self.clock.now_ms())
        except Exception:
            log.exception("incident.set_aside", kind=incident.kind, workspace=incident.workspace)
            return ()
