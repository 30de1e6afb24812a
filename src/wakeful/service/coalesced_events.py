"""Coalesced events: one summary of all changes per interval, for clients that show the state, such as pages.

One reader per process follows the changelog while there are subscriptions. It reads a few columns of the
changed runs, in batches. Subscriptions with the same workspace, visible agent and interval share a channel:
a channel computes and serializes an event once, and all its subscriptions send the same bytes. A subscription
that waits and can write at once does so, without its task.

A subscription has its own position, a number of the changelog. If it is behind its channel (it resumes, or
its client is slow), it gets one event about everything in between, computed from the changelog and shared
with subscriptions at the same position. So no change is missed, no subscriber delays another, and nothing
accumulates for a slow one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Final, NamedTuple
from weakref import WeakSet

from wakeful.errors import InvalidArgument, WakefulError
from wakeful.logs import get_logger
from wakeful.model.codec import JsonObject
from wakeful.service.auth.access import Principal, visible_agent
from wakeful.service.auth.accounts import Accounts
from wakeful.service.change_summary import (
    ChangeSummary,
    FigureCache,
    Scope,
    by_scope,
    event_json,
    figures_to_json,
    read_changes,
    summarize,
)
from wakeful.service.event_stream import RESET, Event, serialize_event
from wakeful.store.changelog import ChangeRow
from wakeful.store.port import Store
from wakeful.store.stats import LiveFigures
from wakeful.values.json_value import compact
from wakeful.values.stored_text import clean_text

#: The intervals in ms. Another one is rounded up, so that few channels serve many clients.
INTERVALS_MS: Final = (250, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)
#: The name of the event.
CHANGES: Final = "changes"
#: Seconds after which the figures of a channel without changes are read again.
FIGURES_S: Final = 5.0
#: Seconds without an event after which one is sent, so that the position of clients stays recent.
IDLE_S: Final = 15.0
#: How many changes one event can cover; a client that missed more gets a `reset`.
MOST_CHANGES: Final = 5_000

#: The longest time between two reads of the changelog: not every change is announced.
_POLL_S: Final = 1.0
#: The pause after an announcement, so that concurrent changes are read together.
_PAUSE_S: Final = 0.05
_AFTER_ERROR_S: Final = 1.0
#: How many rows of the changelog are read at once, with up to a thousand changes each.
_ROWS: Final = 50
#: How many events a channel keeps for subscriptions that are behind.
_MERGED: Final = 256
#: How many subscriptions get an event before other tasks run.
_AT_ONCE: Final = 50

log = get_logger("wakeful.events")


class _Frame(NamedTuple):
    """An event as it is sent, and the position after it."""

    seq: int
    data: bytes


class _Channel:
    """The shared events of one scope and interval."""

    def __init__(self, scope: Scope, interval_s: float, seq: int, now: float) -> None:
        self.scope = scope
        self.interval_s = interval_s
        #: the position of the newest event
        self.seq = seq
        #: the number of events so far
        self.count = 0
        self.last = _Frame(seq, b"")
        self.sent_at = now
        self.figures_at = now
        #: after an error: when the next try is due
        self.retry_at = now
        self.shown: LiveFigures | None = None
        self.summary = ChangeSummary()
        #: whether changes since the last event were pruned before they were read
        self.missed = False
        self.subscriptions: WeakSet[CoalescedSubscription] = WeakSet()
        #: events for subscriptions that are behind, by their position
        self.merged: dict[int, asyncio.Task[_Frame]] = {}

    def due_at(self, announced: bool = False) -> float:
        """Return when the next event is due, or the next look at the figures.

        If a change is `announced`, the figures may be others now.
        """
        if self.summary or self.missed:
            due = self.sent_at + self.interval_s
        else:
            due = self.figures_at + (max(self.interval_s, _POLL_S) if announced else FIGURES_S)
        return max(due, self.retry_at)

    def drop_failed(self, seen: int, merged: asyncio.Task[_Frame]) -> None:
        """Drop an event that could not be computed, also if nobody waits for it any more."""
        if (merged.cancelled() or merged.exception() is not None) and self.merged.get(seen) is merged:
            del self.merged[seen]

    async def publish(self, frame: _Frame, now: float) -> None:
        """Publish an event to all subscriptions."""
        self.seq, self.last, self.sent_at = frame.seq, frame, now
        self.count += 1
        self.summary, self.missed = ChangeSummary(), False
        self.merged.clear()
        for number, subscription in enumerate(list(self.subscriptions), 1):
            subscription.offer()
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)


class CoalescedSubscription:
    """A subscription to coalesced events. The owner must close it."""

    def __init__(self, events: CoalescedEvents, channel: _Channel, seen: int, reset: bool) -> None:
        self._events = events
        self._channel = channel
        #: sends an event at once; False: it cannot, and `next` returns the event
        self.write: Callable[[bytes], bool] | None = None
        self._waiting: asyncio.Future[None] | None = None
        #: the position of the last event that was returned
        self.seen = seen
        self._reset = reset
        #: the number of the last event of the channel that was returned; -1: none yet
        self._count = -1
        self._not_before = 0.0
        self._ended = False

    async def next(self) -> bytes | None:
        """Wait for the next event that is not written directly, and return it as it is sent; None: the end.

        The first one comes at once. It covers all changes since the position of the subscription.
        """
        channel, loop = self._channel, asyncio.get_running_loop()
        if self._count >= 0:
            while channel.count == self._count and not self._ended:
                self._waiting = loop.create_future()
                try:
                    await self._waiting
                finally:
                    self._waiting = None
            if self._not_before > loop.time() and not self._ended:
                await asyncio.sleep(self._not_before - loop.time())
        if self._ended:
            return None
        behind = self._count < 0 or channel.count > self._count + 1
        self._count = channel.count
        if not behind:
            self.seen = channel.last.seq
            return channel.last.data
        # The channel sends its next event in less than an interval.
        self._not_before = loop.time() + channel.interval_s
        prefix = b""
        if self._reset:
            self._reset, prefix = False, self._events.reset_frame(channel)
            self.seen = channel.seq
        frame = await self._events.merged(channel, self.seen)
        self.seen = frame.seq
        return prefix + frame.data

    def offer(self) -> None:
        """Write the newest event, if the client has all others and waits; else let `next` return it."""
        if self._waiting is None or self._waiting.done():
            return
        channel, now = self._channel, asyncio.get_running_loop().time()
        is_next = channel.count == self._count + 1 and self._not_before <= now
        if is_next and self.write is not None and self.write(channel.last.data):
            self._count, self.seen = channel.count, channel.last.seq
        else:
            self._waiting.set_result(None)

    def end(self) -> None:
        """Mark the subscription as ended."""
        self._ended = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def close(self) -> None:
        """End the subscription and remove it."""
        self.end()
        self._events.forget(self._channel, self)


class CoalescedEvents:
    """Follows the changelog for all channels of this process."""

    def __init__(self, store: Store, accounts: Accounts) -> None:
        self._store = store
        self._accounts = accounts
        self._channels: dict[tuple[Scope, float], _Channel] = {}
        self._figures = FigureCache(store)
        self._reader: asyncio.Task[None] | None = None
        self._last = 0
        self._awake = asyncio.Event()
        store.listen(lambda topic: self._awake.set())

    async def subscribe(
        self,
        principal: Principal,
        workspace: str,
        interval_ms: int,
        *,
        agent: str | None = None,
        after: int | None = None,
    ) -> CoalescedSubscription:
        """Subscribe from now on, or after the position `after`.

        If the changes after it are no longer stored, or there are too many, the first event is a `reset`.
        """
        await self._accounts.authorize(principal, "read", workspace, agent)
        scope = Scope(workspace, visible_agent(principal, agent))
        if not INTERVALS_MS[0] <= interval_ms <= INTERVALS_MS[-1]:
            raise InvalidArgument(
                f"coalesceMs: write a number of milliseconds from {INTERVALS_MS[0]} to {INTERVALS_MS[-1]}"
            )
        if after is not None and after < 0:
            raise InvalidArgument("after: write the number of the last event that you have seen, or 0")
        # Without a reader, `_last` may be that of a database that was replaced by its backup.
        known = self._last if self._reader is not None else -1
        reset = after is not None and after > known and after > await self._store.last_change()
        await self._follow()
        interval_s = next(each for each in INTERVALS_MS if each >= interval_ms) / 1_000
        channel = self._channel(scope, interval_s)
        subscription = CoalescedSubscription(self, channel, channel.seq if after is None else after, reset)
        channel.subscriptions.add(subscription)
        return subscription

    async def position(self) -> int:
        """Return the position of now: a subscription after it misses nothing that changes from now on."""
        return self._last if self._reader is not None else await self._store.last_change()

    async def figures(self, principal: Principal, workspace: str) -> JsonObject:
        """Return the figures of the visible agent or the workspace, and which of them are lower bounds."""
        await self._accounts.authorize(principal, "read", workspace)
        return figures_to_json(await self._figures.get(Scope(workspace, visible_agent(principal, None))))

    def forget(self, channel: _Channel, subscription: CoalescedSubscription) -> None:
        """Remove a subscription; stop the reader after the last one."""
        channel.subscriptions.discard(subscription)
        self._drop_unused()

    def shut_down(self) -> None:
        """End all subscriptions: the process stops."""
        for channel in list(self._channels.values()):
            for subscription in list(channel.subscriptions):
                subscription.end()
            channel.subscriptions.clear()
        self._drop_unused()
        self._figures = FigureCache(self._store)  # the scheduler may start again on another event loop

    def _drop_unused(self) -> None:
        """Drop channels without subscriptions, and the reader without channels."""
        for key, channel in list(self._channels.items()):
            if not channel.subscriptions:
                del self._channels[key]
        if not self._channels and self._reader is not None:
            self._reader.cancel()
            self._reader = None

    def _channel(self, scope: Scope, interval_s: float) -> _Channel:
        key = scope, interval_s
        if key not in self._channels:
            self._channels[key] = _Channel(scope, interval_s, self._last, asyncio.get_running_loop().time())
        return self._channels[key]

    async def _follow(self) -> None:
        """Start the reader if it is not running."""
        if self._reader is not None and not self._reader.done():
            return
        last = await self._store.last_change()
        if self._reader is None or self._reader.done():  # nobody else has started it meanwhile
            self._last, self._awake = last, asyncio.Event()  # the scheduler may have had another event loop
            self._reader = asyncio.create_task(
                self._read(), name="wakeful-coalesced-events", context=Context()
            )

    # --- the reader -------------------------------------------------------------------------------

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._drop_unused()
            announced = self._awake.is_set()
            self._awake.clear()
            try:
                await self._advance()
            except Exception as error:
                _report(error)
                await asyncio.sleep(_AFTER_ERROR_S)
                continue
            for channel in list(self._channels.values()):
                if channel.due_at(announced) <= loop.time():
                    try:
                        await self._refresh(channel)
                    except Exception as error:  # of one workspace: the others go on
                        _report(error)
                        channel.retry_at = loop.time() + _AFTER_ERROR_S
            await self._wait()

    async def _wait(self) -> None:
        """Wait until a channel is due or, if one can send at once, until a change is announced."""
        now = asyncio.get_running_loop().time()
        channels = list(self._channels.values())
        due = min((channel.due_at() for channel in channels), default=now)
        shortest = min((channel.interval_s for channel in channels), default=_POLL_S)
        timeout = min(max(due - now, _PAUSE_S), max(shortest, _PAUSE_S), _POLL_S)
        if all(channel.sent_at + channel.interval_s > now for channel in channels):
            await asyncio.sleep(timeout)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._awake.wait()
        await asyncio.sleep(_PAUSE_S)

    async def _advance(self) -> None:
        """Read the changelog to its end, and add the changes to the summaries of the channels."""
        while True:
            rows = await self._store.changes(self._last, _ROWS)
            if not rows:
                return
            changes = await read_changes(self._store, rows, self._last)
            # A process that was suspended for long may find that rows are pruned which it has not read.
            pruned = rows[0].first > self._last + 1
            # Nothing may suspend here: a new channel starts at `_last`.
            found = by_scope(changes, (channel.scope for channel in self._channels.values()))
            for channel in self._channels.values():
                channel.missed = channel.missed or pruned
                for change in found[channel.scope]:
                    channel.summary.add(change)
            self._last = rows[-1].last
            if len(rows) < _ROWS:
                return

    async def _refresh(self, channel: _Channel) -> None:
        """Publish an event if anything changed, or if the last one is too old."""
        loop = asyncio.get_running_loop()
        figures = await self._figures.get(channel.scope)
        now = loop.time()
        # Figures may be older than the changes: then look again soon.
        channel.figures_at = now - FIGURES_S + _POLL_S if channel.summary else now
        idle = now - channel.sent_at >= IDLE_S
        if channel.summary or channel.missed or figures != channel.shown or idle:
            channel.shown = figures
            frame = self._frame(channel, self._last, channel.summary, figures)
            if channel.missed:
                frame = _Frame(frame.seq, self.reset_frame(channel, frame.seq) + frame.data)
            await channel.publish(frame, now)

    # --- subscriptions that are behind --------------------------------------------------------------

    async def merged(self, channel: _Channel, seen: int) -> _Frame:
        """Return one event about all changes from a position to that of the channel."""
        task = channel.merged.get(seen)
        if task is None:
            if len(channel.merged) >= _MERGED:
                channel.merged.clear()
            task = asyncio.create_task(self._merge(channel, seen, channel.seq))
            channel.merged[seen] = task
            task.add_done_callback(partial(channel.drop_failed, seen))
        return await asyncio.shield(task)

    async def _merge(self, channel: _Channel, seen: int, until: int) -> _Frame:
        figures = await self._figures.get(channel.scope)
        rows: list[ChangeRow] = []
        position = seen
        while position < until:
            page = await self._store.changes(position, _ROWS) if until - seen <= MOST_CHANGES else []
            if not page or page[0].first > position + 1:
                frame = self._frame(channel, until, ChangeSummary(), figures)
                return _Frame(until, self.reset_frame(channel, until) + frame.data)
            rows += page
            position = page[-1].last
        changes = await read_changes(self._store, rows, seen, until) if rows else []
        return self._frame(channel, max(seen, until), summarize(changes, channel.scope), figures)

    def reset_frame(self, channel: _Channel, seq: int | None = None) -> bytes:
        """Return the event that tells a client to read its lists again."""
        at = channel.seq if seq is None else seq
        event = Event(at, RESET, self._store.clock.now_ms(), channel.scope.workspace)
        return _encode(at, RESET, serialize_event(event))

    def _frame(self, channel: _Channel, seq: int, summary: ChangeSummary, figures: LiveFigures) -> _Frame:
        data = event_json(seq, channel.scope, self._store.clock.now_ms(), summary, figures)
        return _Frame(seq, _encode(seq, CHANGES, data))


def _report(error: Exception) -> None:
    if isinstance(error, WakefulError):
        log.warning("events.unavailable", error=error.message)
    else:
        log.error("events.error", exc_info=error)


def _encode(seq: int, name: str, data: JsonObject) -> bytes:
    return f"id: {seq}\nevent: {name}\ndata: {clean_text(compact(data))}\n\n".encode()
