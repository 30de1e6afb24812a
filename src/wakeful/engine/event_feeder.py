"""The event feeder: makes runs of what subscriptions to MCP events wait for, and ends those that expired.

A callback that lost events is told by one more run, a `gap`.

It reads the changelog, so an event commits together with what happened. The runs of a batch and the position
in the changelog change in one transaction, which does nothing if another replica was faster: each event
becomes one run per subscription, in the order of commits, whatever stops in between.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from wakeful.document import work_from_text
from wakeful.engine.event_facts import Fact, first_rows, read_facts
from wakeful.engine.loop import Loop
from wakeful.errors import Unavailable
from wakeful.logs import get_logger
from wakeful.run.factory import manual_run
from wakeful.run.run import NewRun
from wakeful.signal.event_catalog import TICK, job_name, passes
from wakeful.signal.mcp_events import gap_json
from wakeful.store.port import Store
from wakeful.store.sql.subscriptions import EventPosition, SubscriptionRow
from wakeful.values.clock import Clock
from wakeful.values.json_value import Json, compact

#: How many subscriptions one step ends, how many rows of the changelog it reads, and about how many runs it
#: makes: it makes all of one fact.
_BATCH: Final = 100
_ROWS: Final = 50
_RUNS: Final = 5_000
#: How many facts are compared with subscriptions before other tasks run.
_AT_ONCE: Final = 50
#: How often the changelog is read while there are subscriptions to changes.
_EVERY_MS: Final = 250
#: How many events wait for a callback that fails before its subscription ends, and how often that is checked.
_MOST_WAITING: Final = 10_000
_CHECK_MS: Final = 60_000
_LANE: Final = work_from_text("{}").lane

log = get_logger("wakeful.event_feeder")

#: Ends a subscription for a reason; returns it, or None if it has ended.
EndRule: TypeAlias = Callable[[str, str], Awaitable[SubscriptionRow | None]]


class EventFeeder(Loop):
    """Makes the runs that deliver events, and ends subscriptions that have expired."""

    name = "event_feeder"

    def __init__(self, store: Store, clock: Clock, *, max_sleep_ms: int, end: EndRule | None = None) -> None:
        super().__init__(clock, max_sleep_ms)
        self._store = store
        self._end: EndRule = end or store.end_subscription
        #: when it was last checked which subscriptions lost events, or have too many that wait
        self._checked_ms = -_CHECK_MS

    async def step(self) -> int | None:
        """Handle one batch. Returns a near time while there is more."""
        now_ms = self.clock.now_ms()
        expired = await self._store.expired_subscriptions(now_ms, _BATCH)
        for identity in expired:
            if (ended := await self._try_end(identity, "expired")) is not None:
                log.info("subscription.ended", subscription=identity, reason=ended.reason)
        is_time = not 0 <= now_ms - self._checked_ms < _CHECK_MS
        if is_time:
            self._checked_ms = now_ms
            await self._tell_gaps()
            await self._end_full()
        before = await self._store.event_position()
        if before is None:
            return now_ms if len(expired) == _BATCH else None
        more = await self._feed(before) or len(expired) == _BATCH
        return now_ms if more else now_ms + _EVERY_MS

    async def _end_full(self) -> None:
        """End subscriptions with too many waiting events: those of a dead callback would fill the disk."""
        for identity in await self._store.full_subscriptions(_MOST_WAITING):
            if await self._try_end(identity, "queue_full") is not None:
                log.warning("subscription.ended", subscription=identity, reason="queue_full")

    async def _try_end(self, identity: str, reason: str) -> SubscriptionRow | None:
        """End a subscription. One that cannot be ended now stops no other."""
        try:
            return await self._end(identity, reason)
        except Unavailable:
            raise
        except Exception:
            log.exception("subscription.not_ended", subscription=identity)
            return None

    async def _tell_gaps(self) -> None:
        """Add a delivery that tells of lost events, after those that wait."""
        for row in await self._store.lost_subscriptions(_BATCH):
            at, now_ms = await self._store.event_position(), self.clock.now_ms()
            cursor = None if at is None or row.event == TICK else str(max(at.change, row.position))
            at_ms = now_ms if at is None else max(now_ms, at.at_ms)
            run = new_delivery(row, f"gap:{now_ms}", compact(gap_json(cursor)), now_ms, at_ms)
            if await self._store.tell_gap(row.id, run):
                log.warning("subscription.gap", subscription=row.id, run_id=run.id)

    async def _feed(self, before: EventPosition) -> bool:
        """Make the runs of one batch of changes after that position. Returns whether there may be more."""
        batch = await self.read(before)
        if batch is None:
            return False
        if await self._store.feed(before, batch.position, batch.runs, batch.lost) and batch.runs:
            log.debug("events.fed", count=len(batch.runs))
        return batch.more

    async def read(self, before: EventPosition, limit: int = _ROWS) -> Batch | None:
        """Read a batch of changes after that position; None: there is none."""
        found = await self._store.changes(before.change, limit, finished_only=True)
        if not found:
            return None
        names = set(await self._store.subscribed_events())
        rows = first_rows(found, names)
        facts = await read_facts(self._store, rows, before.change, names)
        wanted = {(fact.workspace, fact.name) for fact in facts}
        subscribers = Subscribers(await self._store.subscribers(sorted(wanted)) if wanted else ())
        runs: list[tuple[str, NewRun]] = []
        lost: set[str] = set()
        change, at_ms, now_ms = rows[-1].last, before.at_ms + 1, self.clock.now_ms()
        for number, fact in enumerate(facts, 1):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            if len(runs) >= _RUNS and fact.seq > change:
                break
            at_ms = max(at_ms, fact.at_ms)
            rows_of = list(subscribers.of(fact))
            lost.update(row.id for row in rows_of if row.is_paused)
            runs += deliveries(fact, [row for row in rows_of if not row.is_paused], now_ms, at_ms)
            if len(runs) >= _RUNS:  # the rest is for the next batch
                change = fact.seq
        more = len(found) == limit or change < found[-1].last
        return Batch(EventPosition(change, at_ms), runs, more, lost)


class Batch(NamedTuple):
    """What becomes of some changes."""

    position: EventPosition
    runs: Sequence[tuple[str, NewRun]]
    #: whether there may be more changes
    more: bool
    #: the subscriptions that lose events, because their jobs are paused
    lost: Collection[str] = ()


class Subscribers:
    """Subscriptions by what they may get: a fact is not compared with those of other agents and jobs."""

    def __init__(self, rows: Iterable[SubscriptionRow]) -> None:
        self._found: dict[tuple[Json, ...], list[tuple[SubscriptionRow, Mapping[str, Json]]]]
        self._found = defaultdict(list)
        for row in rows:
            filters = json.loads(row.arguments)
            key = row.workspace, row.event, filters.get("agent"), filters.get("job")
            self._found[key].append((row, filters))

    def of(self, fact: Fact) -> Iterator[SubscriptionRow]:
        """Yield the subscriptions that a fact is for."""
        agents, jobs = ({None, fact.data.get(name)} for name in ("agent", "job"))
        for agent in agents:
            for job in jobs:
                for row, filters in self._found.get((fact.workspace, fact.name, agent, job), ()):
                    if fact.seq > row.position and passes(filters, fact.data):
                        yield row


def deliveries(
    fact: Fact, rows: Sequence[SubscriptionRow], now_ms: int, at_ms: int
) -> list[tuple[str, NewRun]]:
    """Return the runs that deliver a fact to these subscriptions, each with its subscription.

    They are scheduled at `at_ms`, which is not before the one of an earlier fact: the clock of the replica
    where this one happened may be behind.
    """
    if not rows:
        return []
    event = fact.to_event()
    payload = compact(event.to_json())
    return [(row.id, new_delivery(row, event.id, payload, now_ms, at_ms)) for row in rows]


def new_delivery(row: SubscriptionRow, key: str, payload: str, now_ms: int, at_ms: int) -> NewRun:
    """Return the run that delivers a message. `key` is the same in each attempt to make it."""
    run = manual_run(
        job_id=row.job_id, workspace=row.workspace, agent=row.agent, job_name=job_name(row.id), lane=_LANE,
        trigger="event", now_ms=now_ms, scheduled_ms=at_ms, serial=True, payload=payload,
    )  # fmt: skip
    return run._replace(idempotency_key=hashlib.sha256(f"{row.id}:{key}".encode()).hexdigest())
