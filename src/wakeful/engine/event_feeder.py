"""The event feeder: ends subscriptions to MCP events that have expired.

Each replica has one. Ending a subscription twice changes nothing.
"""

from __future__ import annotations

from typing import Final

from wakeful.engine.loop import Loop
from wakeful.logs import get_logger
from wakeful.store.port import Store
from wakeful.values.clock import Clock

#: How many subscriptions one step ends.
_BATCH: Final = 100

log = get_logger("wakeful.event_feeder")


class EventFeeder(Loop):
    """Ends subscriptions that have expired."""

    name = "event_feeder"

    def __init__(self, store: Store, clock: Clock, *, max_sleep_ms: int) -> None:
        super().__init__(clock, max_sleep_ms)
        self._store = store

    async def step(self) -> int | None:
        """End one batch. Returns a near time while there is more."""
        now_ms = self.clock.now_ms()
        expired = await self._store.expired_subscriptions(now_ms, _BATCH)
        for identity in expired:
            if await self._store.end_subscription(identity, "expired") is not None:
                log.info("subscription.ended", subscription=identity, reason="expired")
        return now_ms if len(expired) == _BATCH else None
