"""The alerter: sends alerts about incidents and events. `wakeful.run.alerts` decides which.

An alert is a run of the job that posts it to the webhook, and a run of the job that sends it to the channel,
so that each is recorded and retried on its own. One transaction changes an incident, or removes an event, and
inserts the runs, so only one replica does it. When a reminder is due is in the database too, and
when the last digest of what waits was written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from wakeful.engine.loop import Loop
from wakeful.logs import get_logger
from wakeful.run.alerts import SKEW_MS, Alert, AlertEvent, DueIncident, Notification, decide, judge
from wakeful.run.digests import DigestOwner, digest_times, write_digest
from wakeful.run.inbox import InboxRow
from wakeful.run.run import NewRun
from wakeful.store.port import Store
from wakeful.values.clock import Clock

_BATCH: Final = 200

log = get_logger("wakeful.alerter")


class Alerter(Loop):
    """Sends alerts and digests.

    The replica that writes an incident is notified of it. The others check every `check_ms`, in case that
    replica has died.
    """

    name = "alerter"
    follows_time = True

    def __init__(self, store: Store, clock: Clock, check_ms: int) -> None:
        super().__init__(clock, check_ms)
        self._store = store
        #: when to look for digests again: their settings may have changed
        self._look_ms = 0
        #: when the next digest is due
        self._digest_ms: int | None = None

    async def step(self) -> int | None:
        """Handle one batch. Returns the current time while there may be more."""
        now_ms = self.clock.now_ms()
        events = await self._store.raise_alerts(now_ms, _BATCH, self._judge)
        incidents, next_ms = await self._store.notify_incidents(now_ms, _BATCH, self._decide)
        digest_ms = await self._send_digests(now_ms)
        if events >= _BATCH or incidents >= _BATCH:
            return now_ms
        return min((at for at in (next_ms, digest_ms) if at is not None), default=None)

    async def _send_digests(self, now_ms: int) -> int | None:
        """Send the digests that are due, if it is time to look. Returns when the next one is due."""
        due_ms, latest_ms = self._digest_ms, now_ms + self._max_sleep_ms
        if now_ms < self._look_ms <= latest_ms and (due_ms is None or now_ms < due_ms):
            return due_ms
        due_ms = None
        for owner in await self._store.digest_owners():
            self.report_progress()
            times = self._digest_times(owner, now_ms)
            if times is None:
                continue
            if not times[0] <= owner.since_ms <= now_ms + SKEW_MS:
                await self._store.send_digest(now_ms, owner, times[0], partial(self._write_digest, owner))
            due_ms = times[1] if due_ms is None else min(due_ms, times[1])
        self._look_ms, self._digest_ms = latest_ms, due_ms
        return due_ms

    @staticmethod
    def _digest_times(owner: DigestOwner, now_ms: int) -> tuple[int, int] | None:
        """Return when digests are due; None for settings that cannot be read, so that they stop no other."""
        try:
            return digest_times(owner, now_ms)
        except Exception:
            log.exception("digest.set_aside", workspace=owner.workspace, agent=owner.agent)
            return None

    def _write_digest(
        self, owner: DigestOwner, counts: Mapping[str, int], items: Sequence[InboxRow]
    ) -> Sequence[NewRun]:
        """Return the runs of a digest; none if its jobs cannot be read, so that they stop no other."""
        try:
            return write_digest(owner, self.clock.now_ms(), counts, items)
        except Exception:
            log.exception("digest.set_aside", workspace=owner.workspace, agent=owner.agent)
            return ()

    def _judge(self, event: AlertEvent) -> Sequence[Alert]:
        """Return the alerts of an event; none for one that cannot be read, so that it blocks no other."""
        try:
            return judge(event, self.clock.now_ms())
        except Exception:
            log.exception("alert.set_aside", kind=event.kind, workspace=event.workspace)
            return ()

    def _decide(self, due: DueIncident) -> Notification:
        """Return the messages of an incident; none for one that cannot be read."""
        try:
            return decide(due, self.clock.now_ms())
        except Exception:
            log.exception("incident.set_aside", incident=due.incident.id, workspace=due.incident.workspace)
            return Notification(due.incident._replace(notify_ms=None))
