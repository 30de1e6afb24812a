"""The event stream: changes of jobs, runs, incidents, suggestions and the inbox, and emitted signals.

The changelog of the store is the source. One reader per process follows it while there are subscriptions and
caches the newest events. Each subscription has its own position: it reads from the cache or, if it is behind,
from the changelog. So no event is missed or repeated, and a slow subscriber delays no other. Events of one
workspace do not wake the subscriptions of others.

An event shows a run or an incident as it is when the event is read, which may be later than the change.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence, Set
from contextvars import Context
from typing import Any, Final, NamedTuple
from weakref import WeakSet

from wakeful.errors import InvalidArgument, Unavailable
from wakeful.evolution.suggestion import Suggestion
from wakeful.logs import get_logger
from wakeful.model.codec import JsonObject
from wakeful.run.inbox import InboxRow
from wakeful.run.incidents import Incident
from wakeful.service.auth.access import Principal, visible_agent
from wakeful.service.auth.accounts import Accounts
from wakeful.service.filters import check_choices
from wakeful.service.row_codec import instant
from wakeful.service.serializers import INBOX_ITEMS, INCIDENTS, SUGGESTIONS, serialize_run
from wakeful.store.changelog import SUGGESTION, WAITING, ChangedJob, ChangeRow
from wakeful.store.port import Store
from wakeful.store.rows import RunView
from wakeful.values.bounded_cache import MB, text_size

#: The types of events.
TYPES: Final = (
    "run.started",
    "run.finished",
    "job.changed",
    "signal.emitted",
    "incident.opened",
    "incident.acknowledged",
    "incident.recovered",
    "incident.closed",
    "suggestion.changed",
    "inbox.item_added",
)
#: Replaces events that are no longer stored: a client reads its lists again.
RESET: Final = "reset"
#: The longest time between two reads of the changelog: not every change is announced.
POLL_S: Final = 0.25
#: The pause between two reads, so that concurrent changes are read together.
_PAUSE_S: Final = 0.02
_AFTER_ERROR_S: Final = 1.0
#: The number of cached events, and a page more at times, and their size: payloads and outputs may be large.
_CACHED: Final = 2_000
_CACHED_BYTES: Final = 32 * MB
_PAGE: Final = 500
#: How many events a subscription reads at once that is behind the cache: each has its own copies of them.
_BEHIND: Final = 50
#: About how many bytes an event takes without the texts of its run.
_SMALL: Final = 1_000
#: How many subscriptions are woken before other tasks run.
_AT_ONCE: Final = 50
#: How many rows of the changelog are read at once, and of how many changes, unless one row has more.
_ROWS: Final = 50
_CHANGES: Final = 1_000
#: The kinds of changes that become `inbox.item_added`.
_WAITING: Final = frozenset(WAITING.values())
#: The types of events about runs begin with these.
_OF_RUNS: Final = ("run.", "signal.")

log = get_logger("wakeful.events")


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
    #: for a changed job: whether it was deleted
    deleted: bool = False
    incident: Incident | None = None
    suggestion: Suggestion | None = None
    item: InboxRow | None = None


def serialize_event(event: Event) -> JsonObject:
    """Return an event as JSON."""
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
        "incident": INCIDENTS.to_json(event.incident) if event.incident else None,
        "suggestion": SUGGESTIONS.to_json(event.suggestion) if event.suggestion else None,
        "item": INBOX_ITEMS.to_json(event.item) if event.item else None,
    }


class EventFilter(NamedTuple):
    """The events that a subscription gets."""

    workspace: str
    agent: str | None = None
    #: the name of a job, or its id
    job: str | None = None
    types: frozenset[str] = frozenset()

    def matches(self, event: Event) -> bool:
        """Return whether the event passes the filter."""
        return (
            event.workspace == self.workspace
            and (self.agent is None or event.agent == self.agent)
            and (self.job is None or self.job in (event.job, event.job_id))
            and (not self.types or event.type in self.types)
        )


class Subscription:
    """A subscription to events. The owner must close it."""

    def __init__(self, stream: EventStream, event_filter: EventFilter) -> None:
        self._stream = stream
        self.filter = event_filter
        #: the number of the last event that was read; -1: not known yet
        self.seen = -1
        self._lost = False
        self._ended = False
        self._waiting: asyncio.Future[None] | None = None

    def reset(self, seen: int) -> None:
        """Report a reset, and continue after this number: earlier events are not stored."""
        self.seen, self._lost = seen, True

    async def next(self, wait_s: float) -> list[Event] | None:
        """Wait for the next events; return an empty list after `wait_s`, None after the end."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        while not self._ended:
            if self._lost:
                self._lost = False
                return [Event(self.seen, RESET, self._stream.now_ms(), self.filter.workspace)]
            before, events = self.seen, await self._stream.after(self)
            wanted = [event for event in events if self.filter.matches(event)]
            if wanted and not self._ended:
                return wanted
            if loop.time() >= until:  # also while it is behind: the client must not wait longer
                return []
            if self.seen > before or self._lost:
                await asyncio.sleep(0)
            else:  # nothing has suspended since it was up to date
                self._waiting = loop.create_future()
                try:
                    await asyncio.wait({self._waiting}, timeout=until - loop.time())
                finally:
                    self._waiting = None
        return None

    def advance(self, last: int, workspaces: Set[str]) -> None:
        """Learn of events up to that number, of these workspaces, that follow those it has seen."""
        if self.filter.workspace in workspaces:
            self.wake()
        else:
            self.seen = last

    def wake(self) -> None:
        """End the wait for events."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def end(self) -> None:
        """Mark the subscription as ended."""
        self._ended = True
        self.wake()

    def close(self) -> None:
        """End the subscription and remove it."""
        self.end()
        self._stream.forget(self)


class EventStream:
    """Reads the changelog for all subscriptions of this process."""

    def __init__(self, store: Store, accounts: Accounts) -> None:
        self._store = store
        self._accounts = accounts
        # Weak: a subscription that was dropped without being closed does not keep the reader running.
        self._listeners: WeakSet[Subscription] = WeakSet()
        self._reader: asyncio.Task[None] | None = None
        #: the newest events, without gaps in their numbers; None for an event whose run was deleted
        self._cache: list[Event | None] = []
        self._cached_bytes = 0
        self._last = 0
        self._awake = asyncio.Event()
        store.listen(lambda topic: self._awake.set())

    def now_ms(self) -> int:
        """Return the current time."""
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
        """Subscribe to the events from now on, or after the event with the number `after`.

        If older events are no longer stored, the first event is a `reset`, followed by all that are stored.
        """
        await self._accounts.authorize(principal, "read", workspace, agent)
        agent = visible_agent(principal, agent)
        wanted = frozenset(types)
        check_choices("types", sorted(wanted), TYPES)
        if after is not None and after < 0:
            raise InvalidArgument("after: write the number of the last event that you have seen, or 0")
        listener = Subscription(self, EventFilter(workspace, agent, job, wanted))
        self._listeners.add(listener)
        try:
            await self._follow()
            last = await self._store.last_change()
        except BaseException:
            self.forget(listener)
            raise
        if after is not None and after > last:
            listener.reset(last)  # a number of another database, or of one restored from a backup
        else:
            listener.seen = last if after is None else after
        return listener

    def forget(self, listener: Subscription) -> None:
        """Remove a subscription; stop the reader after the last one."""
        self._listeners.discard(listener)
        if not self._listeners and self._reader is not None:
            self._reader.cancel()
            self._reader = None
            self._empty_cache()

    def shut_down(self) -> None:
        """End all subscriptions: the process stops."""
        for listener in list(self._listeners):
            listener.close()

    # --- reading ---------------------------------------------------------------------------------

    async def after(self, listener: Subscription) -> list[Event]:
        """Return the next events of a subscription, a page at a time, and advance its position."""
        seen = listener.seen
        if seen >= self._last:
            return []
        first = self._last - len(self._cache) + 1
        if seen + 1 >= first:
            start = seen + 1 - first
            found = self._cache[start : start + _PAGE]
            listener.seen = seen + len(found)
            return [event for event in found if event is not None]
        rows = _first_of(await self._store.changes(seen, _ROWS))
        if not rows or rows[0].first > seen + 1:
            listener.reset(rows[0].first - 1 if rows else self._last)
            return []
        listener.seen = await self._pass_others(rows, seen, listener.filter)
        if listener.seen > seen:
            return []
        row = rows[0]
        start = seen + 1 - row.first
        part = row._replace(first=seen + 1, items=row.items[start : start + _BEHIND])
        events = await self._events([part], seen)
        listener.seen = part.last
        return [event for event in events if event is not None]

    async def _pass_others(self, rows: Sequence[ChangeRow], after: int, only: EventFilter) -> int:
        """Return the number of the last change after which there may be one that passes the filter.

        It reads a few columns of the runs: most of a long backlog is of other workspaces.
        """
        run_ids = {item for row in rows if row.kind.startswith(_OF_RUNS) for item in row.items}
        others = {
            run.id
            for run in await self._store.run_changes(list(run_ids))
            if run.workspace != only.workspace or only.agent not in (None, run.agent)
        }
        for row in rows:
            if row.kind == "job.changed":
                passed = [job.workspace != only.workspace for job in row.jobs()]
            else:
                passed = [item in others for item in row.items]
            for seq, is_other in enumerate(passed, row.first):
                if seq > after and not is_other:
                    return seq - 1
        return rows[-1].last

    async def _follow(self) -> None:
        """Start the reader if it is not running."""
        if self._reader is not None and not self._reader.done():
            return
        last = await self._store.last_change()
        if self._reader is None or self._reader.done():  # nobody else has started it meanwhile
            self._last, self._awake = last, asyncio.Event()  # the scheduler may have had another event loop
            self._empty_cache()
            self._reader = asyncio.create_task(self._read(), name="wakeful-events", context=Context())

    async def _read(self) -> None:
        while self._listeners:
            self._awake.clear()
            try:
                found = await self._store.changes(self._last, _ROWS)
                rows = _first_of(found)
                events = await self._events(rows, self._last)
            except Unavailable as error:
                log.warning("events.unavailable", error=error.message)
                await asyncio.sleep(_AFTER_ERROR_S)
                continue
            except Exception:
                log.exception("events.error")
                await asyncio.sleep(_AFTER_ERROR_S)
                continue
            if rows:
                await self._add(rows, events)
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_S):
                        await self._awake.wait()
            if len(rows) == len(found) < _ROWS:  # else it is behind
                await asyncio.sleep(_PAUSE_S)
        self._reader = None
        self._empty_cache()

    async def _add(self, rows: Sequence[ChangeRow], events: Sequence[Event | None]) -> None:
        """Cache the events of these rows, and wake the subscriptions of their workspaces."""
        before = self._last
        pruned = rows[0].first > before + 1
        if pruned:
            self._empty_cache()
        self._cache += events
        self._cached_bytes += sum(map(_size, events))
        self._trim_cache()
        self._last = last = rows[-1].last
        workspaces = {event.workspace for event in events if event is not None}
        for number, listener in enumerate(list(self._listeners), 1):
            if pruned or listener.seen != before:
                listener.wake()
            else:
                listener.advance(last, workspaces)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)

    def _trim_cache(self) -> None:
        """Drop the oldest events that are too many, or too large in all: subscriptions read them again."""
        most = len(self._cache) - _CACHED if len(self._cache) > _CACHED + _PAGE else 0
        dropped = 0
        while dropped < most or (self._cached_bytes > _CACHED_BYTES and dropped < len(self._cache)):
            self._cached_bytes -= _size(self._cache[dropped])
            dropped += 1
        del self._cache[:dropped]

    def _empty_cache(self) -> None:
        self._cache.clear()
        self._cached_bytes = 0

    async def _events(self, rows: Sequence[ChangeRow], after: int) -> list[Event | None]:
        """Return the events of these rows after a number, with their runs and jobs."""
        run_ids = list({item for row in rows if row.kind.startswith(_OF_RUNS) for item in row.items})
        runs: dict[str, RunView] = {}
        for start in range(0, len(run_ids), _CHANGES):
            found = await self._store.runs_by_ids(run_ids[start : start + _CHANGES])
            runs.update((run.id, run) for run in found)
        jobs = [job.id for row in rows if row.kind == "job.changed" for job in row.jobs()]
        existing = set(await self._store.existing_jobs(jobs)) if jobs else set[str]()
        incident_ids = list({item for row in rows if row.kind.startswith("incident.") for item in row.items})
        incidents = {each.id: each for each in await self._store.incidents_by_ids(incident_ids)}
        suggestion_ids = list({item for row in rows if row.kind == SUGGESTION for item in row.items})
        suggestions = {each.id: each for each in await self._store.suggestions_by_ids(suggestion_ids)}
        waiting = {
            kind: list({item for row in rows if row.kind == name for item in row.items})
            for kind, name in WAITING.items()
        }
        items: dict[tuple[str, str], InboxRow] = {
            (WAITING[item.kind], item.subject_id): item for item in await self._store.inbox_items(waiting)
        }
        actors = [run.triggered_by for run in runs.values()]
        actors += [each.acknowledged_by for each in incidents.values()]
        actors += [each.decided_by for each in suggestions.values()]
        await self._accounts.names.load(actors)
        events: list[Event | None] = []
        for row in rows:
            changed = row.jobs() if row.kind == "job.changed" else None
            for number, item in enumerate(row.items):
                seq = row.first + number
                if seq <= after:
                    continue
                if changed is not None:
                    events.append(_job_event(seq, row, changed[number], changed[number].id not in existing))
                elif row.kind.startswith("incident."):
                    events.append(_event(seq, row, "incident", incidents.get(item)))
                elif row.kind == SUGGESTION:
                    events.append(_event(seq, row, "suggestion", suggestions.get(item)))
                elif row.kind in _WAITING:
                    events.append(_event(seq, row, "item", items.get((row.kind, item))))
                else:
                    events.append(_event(seq, row, "run", runs.get(item)))
        return events


def _first_of(rows: Sequence[ChangeRow]) -> Sequence[ChangeRow]:
    """Return the first rows, with a bounded number of changes: their runs and jobs are read together."""
    changes = 0
    for number, row in enumerate(rows):
        changes += len(row.items)
        if changes > _CHANGES:
            return rows[: max(number, 1)]
    return rows


def _size(event: Event | None) -> int:
    """Return about how many bytes an event takes."""
    run = None if event is None else event.run
    if run is None:
        return _SMALL
    texts = (
        run.payload, run.output, run.error, run.usage, run.emitted, run.context, run.precheck, run.evidence,
    )  # fmt: skip
    return _SMALL + text_size(*filter(None, texts))


def _job_event(seq: int, row: ChangeRow, job: ChangedJob, deleted: bool) -> Event:
    return Event(seq, row.kind, row.at_ms, job.workspace, job.agent, job.id, job.name, deleted=deleted)


def _event(
    seq: int, row: ChangeRow, field: str, about: RunView | Incident | Suggestion | InboxRow | None
) -> Event | None:
    """Return the event about a thing; None: it is gone, or was decided meanwhile."""
    if about is None:
        return None
    type_ = "inbox.item_added" if field == "item" else row.kind
    event = Event(seq, type_, row.at_ms, about.workspace, about.agent, about.job_id, about.job_name)
    given: Any = {field: about}
    return event._replace(**given)
