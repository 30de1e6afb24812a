"""The event feeder: makes runs of what subscriptions to MCP events wait for, and ends those that expired.

It reads the changelog, so an event commits together with what happened. The runs of a batch and the position
in the changelog change in one transaction, which does nothing if another replica was faster: each event
becomes one run per subscription, in the order of commits, whatever stops in between.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Final

from wakeful.document import work_from_text
from wakeful.engine.event_facts import Fact, read_facts
from wakeful.engine.loop import Loop
from wakeful.logs import get_logger
from wakeful.run.factory import manual_run
from wakeful.run.run import NewRun
from wakeful.signal.event_catalog import job_name, passes
from wakeful.store.port import Store
from wakeful.store.sql.subscriptions import SubscriptionRow
from wakeful.values.clock import Clock
from wakeful.values.json_value import compact

#: How many subscriptions one step ends, how many rows of the changelog it reads, and about how many runs it
#: makes: it makes all of one fact.
_BATCH: Final = 100
_ROWS: Final = 50
_RUNS: Final = 5_000
#: How often the changelog is read while there are subscriptions to changes.
_EVERY_MS: Final = 250
_LANE: Final = work_from_text("{}").lane

log = get_logger("wakeful.event_feeder")


class EventFeeder(Loop):
    """Makes the runs that deliver events, and ends subscriptions that have expired."""

    name = "event_feeder"

    def __init__(self, store: Store, clock: Clock, *, max_sleep_ms: int) -> None:
        super().__init__(clock, max_sleep_ms)
        self._store = store

    async def step(self) -> int | None:
        """Handle one batch. Returns a near time while there is more."""
        now_ms = self.clock.now_ms()
        expired = await self._store.expired_subscriptions(now_ms, _BATCH)
        for identity in expired:
            if await self._store.end_subscription(identity, "expired") is not None:
                log.info("subscription.ended", subscription=identity, reason="expired")
        before = await self._store.event_position()
        if before is None:
            return now_ms if len(expired) == _BATCH else None
        more = await self._feed(before) or len(expired) == _BATCH
        return now_ms if more else now_ms + _EVERY_MS

    async def _feed(self, before: int) -> bool:
        """Make the runs of one batch of changes after that number. Returns whether there may be more."""
        rows = await self._store.changes(before, _ROWS, finished_only=True)
        if not rows:
            return False
        facts = await read_facts(self._store, rows, before)
        wanted = {(fact.workspace, fact.name) for fact in facts}
        subscribers = await self._store.subscribers(sorted(wanted)) if wanted else []
        runs: list[tuple[str, NewRun]] = []
        position, now_ms = rows[-1].last, self.clock.now_ms()
        for fact in facts:
            if len(runs) >= _RUNS and fact.seq > position:
                break
            runs += deliveries(fact, subscribers, now_ms)
            if len(runs) >= _RUNS:  # the rest is for the next batch
                position = fact.seq
        if await self._store.feed(before, position, runs) and runs:
            log.debug("events.fed", count=len(runs))
        return len(rows) == _ROWS or position < rows[-1].last


def deliveries(fact: Fact, subscribers: Sequence[SubscriptionRow], now_ms: int) -> list[tuple[str, NewRun]]:
    """Return the runs that deliver a fact, each with its subscription."""
    found: list[tuple[str, NewRun]] = []
    payload: str | None = None
    for row in subscribers:
        if (row.workspace, row.event) != (fact.workspace, fact.name) or fact.seq <= row.position:
            continue
        if not passes(json.loads(row.arguments), fact.data):
            continue
        event = fact.to_event()
        payload = payload or compact(event.to_json())
        run = manual_run(
            job_id=row.job_id,
            workspace=row.workspace,
            agent=row.agent,
            job_name=job_name(row.id),
            lane=_LANE,
            trigger="event",
            now_ms=now_ms,
            scheduled_ms=fact.at_ms,
            serial=True,
            payload=payload,
        )
        key = hashlib.sha256(f"{row.id}:{event.id}".encode()).hexdigest()
        found.append((row.id, run._replace(idempotency_key=key)))
    return found
