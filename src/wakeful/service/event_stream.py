"""The feed: what changes, told to whoever listens, in order, from any number on.

The store's log is the truth. One reader a process follows it while somebody listens, and keeps the newest
events at hand. Everybody who listens has a place in the log of their own and goes on from there: out of what
is at hand, or, having been away or slow, out of the log itself. So nothing is missed, nothing comes twice,
and nobody waits for a slow one.

An event tells of a run as it is when it is told, which may be later than it was when it changed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple
from weakref import WeakSet

from wakeful.errors import InvalidArgument, Unavailable
from wakeful.logs import get_logger
from wakeful.service.auth.access import Principal, visible_agent
from wakeful.service.auth.accounts import Accounts
from wakeful.service.serializers import JsonObject, instant, serialize_run
from wakeful.store.changelog import ChangedJob, ChangeRow
from wakeful.store.port import Store
from wakeful.store.rows import RunView

#: What can happen.
TYPES: Final = ("run.started", "run.finished", "job.changed")
#: Comes in place of what is not kept any more: whoever shows lists reads them anew.
RESET: Final = "reset"
#: How often the log is looked at, at the latest: not all that happens is announced.
LOOK_S: Final = 0.25
#: Between two looks: what happens together is read together.
_PAUSE_S: Final = 0.02
_AFTER_ERROR_S: Final = 1.0
#: So many events are at hand; their runs may be large.
_AT_HAND: Final = 2_000
_AT_ONCE: Final = 500
_ROWS: Final = 20
_RUNS: Final = 1_000

log = get_logger("wakeful.feed")


class Event(NamedTuple):
    """One change."""

    seq: int
    type: str
    at_ms: int
    workspace: str
    agent: str | None = None
    job_id: str | None = None
    job: str | None = None
    run: RunView | None = None
    #: of a job that changed: whether it is gone
    deleted: bool = False


def serialize_event(event: Event) -> JsonObject:
    """An event, as JSON has it."""
    return {
        "seq": event.seq,
        "type": event.type,
        "at": instant(event.at_ms),
        "workspace": event.workspace,
        "agentId": event.agent,
        "jobId": event.job_id,
        "job": event.job,
        "run": serialize_run(event.run) if event.run else None,
        "deleted": event.deleted,
    }


class EventFilter(NamedTuple):
    """What somebody wants to hear of."""

    workspace: str
    agent: str | None = None
    #: the name of a job, or its id
    job: str | None = None
    types: frozenset[str] = frozenset()

    def wants(self, event: Event) -> bool:
        """Whether this is for them."""
        return (
            event.workspace == self.workspace
            and (self.agent is None or event.agent == self.agent)
            and (self.job is None or self.job in (event.job, event.job_id))
            and (not self.types or event.type in self.types)
        )


class Subscription:
    """Somebody who listens. Close it."""

    def __init__(self, feed: EventStream, only: EventFilter) -> None:
        self._feed = feed
        self._only = only
        #: the number up to which they have heard everything; -1: not known yet
        self.seen = -1
        self._lost = False
        self._ended = False

    def lose(self, seen: int) -> None:
        """What came before this number is not to be had: say so, and go on from there."""
        self.seen, self._lost = seen, True

    async def next(self, patience: float) -> list[Event] | None:
        """The next events, as soon as there are any; none, when it took too long; None: it is over."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        while not self._ended:
            if self._lost:
                self._lost = False
                return [Event(self.seen, RESET, self._feed.now_ms(), self._only.workspace)]
            news = self._feed.news
            before, events = self.seen, await self._feed.after(self)
            wanted = [event for event in events if self._only.wants(event)]
            if wanted:
                return wanted
            if self.seen > before or self._lost:
                await asyncio.sleep(0)
            elif loop.time() >= until:
                return []
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(until):
                        await news.wait()
        return None

    def end(self) -> None:
        """Nothing more comes."""
        self._ended = True

    def close(self) -> None:
        """Listen no more."""
        self.end()
        self._feed.forget(self)


class EventStream:
    """Tells what changes."""

    def __init__(self, store: Store, accounts: Accounts) -> None:
        self._store = store
        self._accounts = accounts
        # Weak: one whom everybody has forgotten, who could not even be closed, is not read for.
        self._listeners: WeakSet[Subscription] = WeakSet()
        self._starting = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None
        #: the newest events, by their numbers without a gap; None for one whose run is gone
        self._at_hand: deque[Event | None] = deque(maxlen=_AT_HAND)
        self._last = 0
        self._awake = asyncio.Event()
        #: is set when there is more, and then another takes its place
        self.news = asyncio.Event()
        store.listen(lambda topic: self._awake.set())

    def now_ms(self) -> int:
        """The time."""
        return self._store.clock.now_ms()

    async def subscribe(
        self,
        principal: Principal,
        workspace: str,
        *,
        agent: str | None = None,
        job: str | None = None,
        types: Iterable[str] = (),
        after: int | None = None,
    ) -> Subscription:
        """Listen: to what happens from now on, or to all that happened after the event of that number.

        What is so old that it is not kept any more is told as `reset`, once, and then all that is kept.
        """
        await self._accounts.authorize(principal, "read", workspace, agent)
        agent = visible_agent(principal, agent)
        wanted = frozenset(types)
        for unknown in sorted(wanted.difference(TYPES)):
            raise InvalidArgument(f"types: there is no '{unknown[:64]}'; there are {', '.join(TYPES)}")
        if after is not None and after < 0:
            raise InvalidArgument("after: give the number of the last event that you have seen, or 0")
        listener = Subscription(self, EventFilter(workspace, agent, job, wanted))
        self._listeners.add(listener)
        try:
            await self._follow()
            last = await self._store.last_change()
        except BaseException:
            self.forget(listener)
            raise
        if after is not None and after > last:
            listener.lose(last)  # a number of another database, or of one that was put back
        else:
            listener.seen = last if after is None else after
        return listener

    def forget(self, listener: Subscription) -> None:
        """They have gone; when all have, nobody reads."""
        self._listeners.discard(listener)
        if not self._listeners and self._reader is not None:
            self._reader.cancel()
            self._reader = None
            self._at_hand.clear()

    def shut_down(self) -> None:
        """End it for all who listen now: the process is about to."""
        for listener in list(self._listeners):
            listener.close()
        self._tell()

    # --- reading ---------------------------------------------------------------------------------

    async def after(self, listener: Subscription) -> list[Event]:
        """The events after what they have seen, some at a time; marks them as seen."""
        seen = listener.seen
        if seen >= self._last:
            return []
        first = self._last - len(self._at_hand) + 1
        if seen + 1 >= first:
            start = seen + 1 - first
            found = list(islice(self._at_hand, start, start + _AT_ONCE))
            listener.seen = seen + len(found)
            return [event for event in found if event is not None]
        rows = await self._store.changes(seen, 1)
        if not rows or rows[0].first > seen + 1:
            listener.lose(rows[0].first - 1 if rows else self._last)
            return []
        events = await self._events(rows, seen)
        listener.seen = rows[-1].last
        return [event for event in events if event is not None]

    async def _follow(self) -> None:
        """See that somebody reads."""
        async with self._starting:
            if self._reader is None:
                self._last = await self._store.last_change()
                self._at_hand.clear()
                self._reader = asyncio.create_task(self._read(), name="wakeful-feed")

    async def _read(self) -> None:
        while self._listeners:
            self._awake.clear()
            try:
                rows = await self._store.changes(self._last, _ROWS)
                events = await self._events(rows, self._last)
            except Unavailable as error:
                log.warning("feed.unavailable", error=error.message)
                await asyncio.sleep(_AFTER_ERROR_S)
                continue
            except Exception:
                log.exception("feed.error")
                await asyncio.sleep(_AFTER_ERROR_S)
                continue
            if rows:
                if rows[0].first > self._last + 1:
                    self._at_hand.clear()
                self._at_hand.extend(events)
                self._last = rows[-1].last
                self._tell()
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._awake.wait()
            await asyncio.sleep(_PAUSE_S)
        self._reader = None
        self._at_hand.clear()

    def _tell(self) -> None:
        self.news.set()
        self.news = asyncio.Event()

    async def _events(self, rows: Sequence[ChangeRow], after: int) -> list[Event | None]:
        """The events of these rows that come after that number, with what they are about."""
        run_ids = list({item for row in rows if row.kind.startswith("run.") for item in row.items})
        runs: dict[str, RunView] = {}
        for start in range(0, len(run_ids), _RUNS):
            found = await self._store.runs_by_ids(run_ids[start : start + _RUNS])
            runs.update((run.id, run) for run in found)
        jobs = [job.id for row in rows if row.kind == "job.changed" for job in row.jobs()]
        there = {job.id for job in await self._store.jobs_by_ids(jobs)} if jobs else set()
        events: list[Event | None] = []
        for row in rows:
            if row.kind == "job.changed":
                events += [
                    _of_job(seq, row, job, job.id not in there)
                    for seq, job in enumerate(row.jobs(), row.first)
                    if seq > after
                ]
            else:
                events += [
                    _of_run(seq, row, runs.get(run_id))
                    for seq, run_id in enumerate(row.items, row.first)
                    if seq > after
                ]
        return events


def _of_run(seq: int, row: ChangeRow, run: RunView | None) -> Event | None:
    if run is None:
        return None
    return Event(seq, row.kind, row.at_ms, run.workspace, run.agent, run.job_id, run.job_name, run)


def _of_job(seq: int, row: ChangeRow, job: ChangedJob, deleted: bool) -> Event:
    return Event(seq, row.kind, row.at_ms, job.workspace, job.agent, job.id, job.name, deleted=deleted)
