"""Subscriptions to MCP events: who may subscribe to what, and the internal job that delivers the events.

A subscription belongs to the principal that made it: no other principal may see or end it over MCP. Its
events are those of its agent; a subscription for no agent gets those of the workspace. It lasts until it is
ended, refused by its callback, or expires; it never outlives the key that made it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from wakeful.engine.event_facts import Fact, first_rows, read_facts
from wakeful.engine.event_feeder import new_delivery
from wakeful.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable
from wakeful.job.job import JobRecord, Work, check_slug
from wakeful.job.policy import DAY_MS
from wakeful.job.self_scheduling import check_outside
from wakeful.launch.event_callback import EventLauncher
from wakeful.launch.secrets import Keyring, read_secret
from wakeful.launch.tick_events import (
    KEPT_MS,
    TickCursor,
    poll_ticks,
    read_tick_cursor,
    replay_from,
)
from wakeful.run.run import NewRun
from wakeful.service.agents.subscription_jobs import read_ticks, subscription_job
from wakeful.service.auth.access import Action, Principal, check_person
from wakeful.service.auth.accounts import Accounts, JobContext
from wakeful.service.auth.agent_policy import AgentTargetPolicy
from wakeful.signal.event_catalog import TICK, EventDefinition, check_arguments, find_event, passes
from wakeful.signal.mcp_events import EXHAUSTED, FORBIDDEN, Grant, PolledEvents, subscription_id
from wakeful.store.audit import AuditEntry
from wakeful.store.internal_jobs import WORKSPACE_AGENT
from wakeful.store.port import Store
from wakeful.store.quotas import Allowance
from wakeful.store.row_mapping import job_to_row
from wakeful.store.sql.people import SIGN_IN_LASTS_MS
from wakeful.store.sql.subscriptions import EventsMoved, SubscriptionRow
from wakeful.values.bounded_cache import MB, BoundedCache, text_size
from wakeful.values.json_value import Json, compact, whole_number

#: How long a subscription lasts that names no time to live, and the longest time to live. Nobody says that a
#: token of an issuer was revoked, so what it subscribed to lasts no longer than the session of a person.
TTL_MS: Final = 30 * DAY_MS
_MAX_TTL_MS: Final = 366 * DAY_MS
_TOKEN: Final = "jwt:"
#: How many events a poll returns, by default and at most, and how many pages of the changelog it reads.
_POLLED: Final = 50
_MOST_POLLED: Final = 500
_ROWS: Final = 50
_PAGES: Final = 10
_NEXT_POLL_MS: Final = 5_000
#: How many stored events a new subscription gets, and how many pages it reads for them.
_MOST_REPLAYED: Final = 1_000
_REPLAYED_PAGES: Final = 200
_TRIES: Final = 5
#: What the callback is told at the end of a subscription: not if the client ended it, or let it expire.
_TOLD: Final = {
    "ended": (FORBIDDEN, "an admin ended the subscription"),
    "key_ended": (FORBIDDEN, "the key that subscribed was revoked, or has expired"),
    "queue_full": (EXHAUSTED, "too many events wait for the callback"),
}
_DELIVERY: Final = frozenset({"mode", "url", "secret"})


class SubscriptionRequest(NamedTuple):
    """What `events/subscribe` asks for."""

    name: object
    arguments: object
    delivery: object
    #: None: no end
    ttl_ms: object = TTL_MS
    #: where to begin, the age of the oldest event and, of a poll, how many events to return
    cursor: object = None
    max_age_ms: object = None
    max_events: object = None


class _Stored(NamedTuple):
    """Stored events up to a position, and whether some before it are missing."""

    facts: Sequence[Fact]
    position: int
    truncated: bool
    more: bool = False


class Subscriptions:
    """Creates, refreshes and ends subscriptions."""

    def __init__(
        self,
        store: Store,
        accounts: Accounts,
        keyring: Keyring,
        launcher: EventLauncher | None,
        target_policy: AgentTargetPolicy,
        allowance: Allowance,
    ) -> None:
        self._store = store
        self._accounts = accounts
        self._keyring = keyring
        self._launcher = launcher
        self._target_policy = target_policy
        self._allowance = allowance
        #: the callbacks of subscriptions, by id: the id is a function of the callback
        self._urls: BoundedCache[str, str] = BoundedCache(4 * MB)
        if launcher is not None:
            launcher.find_url, launcher.end = self.find_url, self.end_for
            launcher.lose = store.lose_events

    async def subscribe(
        self, principal: Principal, workspace: str, agent: str | None, request: SubscriptionRequest
    ) -> Grant:
        """Subscribe to an event, or refresh the same subscription. Its callback is verified first.

        A new one gets the events after the cursor that are still stored.
        """
        event = find_event(request.name)
        arguments = check_arguments(event, request.arguments)
        scope, agent = agent or principal.agent, agent or principal.agent or WORKSPACE_AGENT
        check_slug(agent, "agent")  # its job adds an agent that there is not
        await self._authorize(principal, workspace, agent, event)
        filters = await self._filters(principal, workspace, scope, event, arguments)
        url, secret = self._read_delivery(event, request.delivery)
        if event.name != TICK and request.cursor is not None:
            read_cursor(request.cursor)
        identity = subscription_id(_owner(principal, workspace, agent), url, event.name, arguments)

        def prepare(context: JobContext) -> tuple[JobRecord, TickCursor, bool]:
            self._check_agent(principal, context, event)
            self._target_policy.check(principal, Work(target={"kind": "webhook", "url": url}), context)
            now_ms = self._store.clock.now_ms()
            first, truncated = TickCursor(now_ms, now_ms), False
            if event.name == TICK and request.cursor is not None:
                first = read_tick_cursor(request.cursor, now_ms)
                ticks, _ = read_ticks(arguments, first.since_ms, context)
                oldest_ms = max(now_ms - KEPT_MS, self._oldest_ms(request))
                first, truncated = replay_from(ticks, first, oldest_ms, now_ms)
            job = subscription_job(context, identity, event, arguments, now_ms, principal, first)
            return job, first, truncated

        known: _Stored | None = None

        async def write(context: JobContext) -> Grant:
            nonlocal known
            job, first, truncated = prepare(context)  # the agent may have changed meanwhile
            now_ms, backlog = job.created_ms, None
            old = await self._store.subscription(identity)
            if event.name != TICK and request.cursor is not None and (old is None or not old.is_active):
                limits = _MOST_REPLAYED, _REPLAYED_PAGES
                backlog = await self._read_stored(workspace, event, filters, request, *limits, known)
                if backlog.more:  # what is left is not sent
                    last = await self._store.last_change()
                    backlog = backlog._replace(position=last, truncated=True)
                known = backlog  # a repetition goes on there: events go on, and reading takes a while
            row = SubscriptionRow(
                identity, workspace, agent, principal.actor, event.name, compact(filters, sort=True), url,
                job.id, backlog.position if backlog else 0, now_ms, now_ms,
                _expiry_ms(principal, request.ttl_ms, now_ms),
            )  # fmt: skip

            def entries(written: SubscriptionRow) -> list[AuditEntry]:
                action = "subscription.create" if written.job_id == job.id else "subscription.refresh"
                return [_entry(principal, written, action)]

            sealed = self._keyring.seal(secret)
            runs = None if backlog is None else _replayed(row, backlog.facts, now_ms)
            written = await self._store.subscribe(
                row, job_to_row(job, sealed), entries, self._allowance, context.inherited, runs
            )
            cursor = str(first)  # a client that stores it loses nothing
            if event.name != TICK:
                truncated = backlog.truncated if backlog else request.cursor is not None
                cursor = str(backlog.facts[0].seq - 1 if backlog and backlog.facts else written.position)
            if written.job_id != job.id:  # it goes on where it is
                cursor, truncated = str(request.cursor or cursor), False
            return Grant(written.id, written.expires_ms, cursor, truncated)

        prepare(await self._accounts.context(workspace, agent))
        assert self._launcher is not None
        await self._launcher.verify_callback(url, secret, identity)
        for _ in range(_TRIES):
            try:
                return await self._accounts.with_context(workspace, agent, write)
            except EventsMoved:
                continue
        raise Unavailable("there are too many events at the moment; subscribe again")

    async def _read_stored(
        self,
        workspace: str,
        event: EventDefinition,
        filters: Mapping[str, Json],
        request: SubscriptionRequest,
        most: int,
        pages: int,
        known: _Stored | None = None,
    ) -> _Stored:
        """Return up to `most` stored events after the cursor of a request, which is a position.

        `known` are the first of them.
        """
        after = last = await self._store.last_change()
        if request.cursor is not None:
            after = read_cursor(request.cursor)
        if after > last:  # of another database
            return _Stored((), last, True)
        oldest_ms, truncated = self._oldest_ms(request), False
        found: list[Fact] = []
        if known is not None:
            found, after, truncated = [*known.facts], known.position, known.truncated
        while after < last and pages and len(found) < most:
            rows = await self._store.changes(after, _ROWS, finished_only=True)
            if not rows:
                break
            truncated, pages = truncated or rows[0].first > after + 1, pages - 1
            rows = [*first_rows(rows, (event.name,))]
            for fact in await read_facts(self._store, rows, after, (event.name,)):
                if len(found) >= most and fact.seq > after:
                    return _Stored(found, after, truncated, after < last)
                if fact.workspace == workspace and passes(filters, fact.data):
                    truncated, after = truncated or fact.at_ms < oldest_ms, fact.seq
                    found += [fact] if fact.at_ms >= oldest_ms else []
            after = rows[-1].last
        return _Stored(found, after, truncated, after < last)

    def _oldest_ms(self, request: SubscriptionRequest) -> int:
        """Return the time of the oldest event that the request asks for."""
        max_age_ms = _number("maxAgeMs", request.max_age_ms)
        return 0 if max_age_ms is None else self._store.clock.now_ms() - max_age_ms

    async def list(
        self,
        principal: Principal,
        workspace: str,
        *,
        agent: str | None = None,
        after: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> Sequence[SubscriptionRow]:
        """Return subscriptions, the newest first: an admin sees all, others see their own."""
        await self._accounts.authorize(principal, "read", workspace, agent)
        own = None if principal.role == "admin" else principal.actor
        found = await self._store.subscriptions(workspace, agent, own, after, limit)
        if not found:
            await self._accounts.check_agent(principal, workspace, agent)
        await self._accounts.names.load(row.principal for row in found)
        return found

    async def end(self, principal: Principal, workspace: str, identity: str) -> None:
        """End a subscription: an admin may end any, others their own. NotFound: there is no such one."""
        await self._accounts.authorize(principal, "read", workspace)
        row = await self._store.subscription(identity)
        is_own = row is not None and principal.actor == row.principal
        if row is not None and row.workspace == workspace and (principal.role == "admin" or is_own):
            if await self._end(row, "ended", principal):
                return
            raise FailedPrecondition(f"subscription '{identity}' has ended ({row.reason})")
        raise NotFound(f"no subscription '{identity[:64]}'; list the subscriptions to see their ids")

    async def poll(
        self, principal: Principal, workspace: str, agent: str | None, request: SubscriptionRequest
    ) -> PolledEvents:
        """Return the events after a cursor; None: from now on. Nothing is stored for who polls."""
        event = find_event(request.name)
        arguments = check_arguments(event, request.arguments)
        scope = agent or principal.agent
        await self._accounts.authorize(principal, "read", workspace, scope)
        most = min(_number("maxEvents", request.max_events) or _POLLED, _MOST_POLLED)
        oldest_ms = self._oldest_ms(request)
        if event.name == TICK:
            context = await self._accounts.context(workspace, scope or WORKSPACE_AGENT)
            now_ms = self._store.clock.now_ms()
            at = read_tick_cursor(request.cursor, now_ms)
            ticks, message = read_ticks(arguments, at.since_ms, context)
            source = compact([at.since_ms, dict(arguments)], sort=True)
            return poll_ticks(source, ticks, at, message, max(oldest_ms, now_ms - KEPT_MS), now_ms, most)
        filters = await self._filters(principal, workspace, scope, event, arguments)
        found = await self._read_stored(workspace, event, filters, request, most, _PAGES)
        events = tuple(fact.to_event() for fact in found.facts)
        return PolledEvents(events, str(found.position), found.truncated, found.more, _NEXT_POLL_MS)

    async def _filters(
        self,
        principal: Principal,
        workspace: str,
        scope: str | None,
        event: EventDefinition,
        arguments: Mapping[str, Json],
    ) -> dict[str, Json]:
        """Return what the events of a subscription have to match: also the agent of its key or address."""
        agent = arguments.get("agent") or scope
        if event.name == TICK or agent is None:
            return dict(arguments)
        await self._accounts.authorize(principal, "read", workspace, str(agent))
        return {**arguments, "agent": agent}

    async def unsubscribe(
        self, principal: Principal, workspace: str, agent: str | None, request: SubscriptionRequest
    ) -> None:
        """End the subscription of this principal to that event. NotFound: there is none."""
        event = find_event(request.name)
        arguments = check_arguments(event, request.arguments)
        agent = agent or principal.agent or WORKSPACE_AGENT
        await self._accounts.authorize(principal, "read", workspace, agent)
        url = request.delivery.get("url") if isinstance(request.delivery, dict) else None
        if not isinstance(url, str):
            raise InvalidArgument("delivery.url: it is missing; write the callback of the subscription")
        identity = subscription_id(_owner(principal, workspace, agent), url, event.name, arguments)
        row = await self._store.subscription(identity)
        if row is None or not await self._end(row, "unsubscribed", principal):
            raise NotFound(f"you are not subscribed to {event.name} with these arguments and this callback")

    async def find_url(self, identity: str) -> str | None:
        """Return the callback of an active subscription."""
        url = self._urls.get(identity)
        if url is None:
            row = await self._store.subscription(identity)
            if row is None or not row.is_active:
                return None
            url = row.url
            self._urls.put(identity, url, text_size(identity, url))
        return url

    async def end_for(self, identity: str, reason: str) -> SubscriptionRow | None:
        """End a subscription for a reason, such as `gone`. None: it has ended."""
        row = await self._store.subscription(identity)
        return None if row is None else await self._end(row, reason, None)

    async def _end(
        self, row: SubscriptionRow, reason: str, principal: Principal | None
    ) -> SubscriptionRow | None:
        """End a subscription, and tell its callback if that is news."""
        self._urls.drop(row.id)
        entries = [] if principal is None else [_entry(principal, row, "subscription.end")]
        job = await self._store.job_by_id(row.job_id)
        ended = await self._store.end_subscription(row.id, reason, entries)
        told = None if ended is None else _TOLD.get(str(ended.reason))
        if told is not None and job is not None and job.secret and self._launcher is not None:
            try:
                keys = (self._keyring.open(job.secret),)
            except FailedPrecondition:  # nothing can be signed
                return ended
            self._launcher.tell_end(row.url, keys, row.id, *told)
        return ended

    async def _authorize(
        self, principal: Principal, workspace: str, agent: str, event: EventDefinition
    ) -> None:
        check_person(principal, "a subscription to events")
        action: Action = "job.write" if event.name == TICK else "read"
        await self._accounts.authorize(principal, action, workspace, agent)
        if event.name != TICK and agent != WORKSPACE_AGENT:  # who may only read adds no agent
            await self._accounts.agent(workspace, agent)

    @staticmethod
    def _check_agent(principal: Principal, context: JobContext, event: EventDefinition) -> None:
        if event.name != TICK or principal.role != "agent":
            return
        check_outside(context.bounds, context.agent)
        if context.approval:
            raise FailedPrecondition(
                f"schedules of agent '{context.agent}' wait for a person, so its key cannot subscribe to time"
            )

    def _read_delivery(self, event: EventDefinition, value: object) -> tuple[str, bytes]:
        """Return the callback and the secret of a request."""
        if not isinstance(value, dict) or value.keys() - _DELIVERY:
            raise InvalidArgument("delivery: it is an object with mode, url and secret")
        if value.get("mode") != "webhook" or self._launcher is None:
            raise InvalidArgument("delivery.mode: a subscription is delivered by 'webhook'")
        url, secret = self._launcher.check_callback(value.get("url")), value.get("secret")
        if not isinstance(secret, str):
            raise InvalidArgument("delivery.secret: it is missing; send 'whsec_' and base64 of random bytes")
        return url, read_secret(secret)


def read_cursor(value: object) -> int:
    """Return the position of a cursor. Raises InvalidArgument.

    >>> read_cursor("17")
    17
    """
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    raise InvalidArgument("cursor: it is the cursor of an earlier answer, or null")


def _number(name: str, value: object) -> int | None:
    number = None if value is None else whole_number(value)
    if value is not None and (number is None or number <= 0):
        raise InvalidArgument(f"{name}: it is a number above 0")
    return number


def _owner(principal: Principal, workspace: str, agent: str) -> str:
    return f"{workspace}/{agent}/{principal.actor}"


def _entry(principal: Principal, row: SubscriptionRow, action: str) -> AuditEntry:
    return principal.entry(row.workspace, action, f"{row.agent}/{row.id}", compact({"event": row.event}))


def _expiry_ms(principal: Principal, ttl: object, now_ms: int) -> int | None:
    ttl_ms = _number("ttlMs", ttl)
    if principal.actor.startswith(_TOKEN):
        return now_ms + min(ttl_ms or SIGN_IN_LASTS_MS, SIGN_IN_LASTS_MS)
    return None if ttl_ms is None else now_ms + min(ttl_ms, _MAX_TTL_MS)


def _replayed(row: SubscriptionRow, facts: Sequence[Fact], now_ms: int) -> list[NewRun]:
    """Return the runs of stored events, in their order also if clocks differed."""
    runs: list[NewRun] = []
    at_ms = 0
    for fact in facts:
        at_ms, event = max(at_ms, fact.at_ms), fact.to_event()
        runs.append(new_delivery(row, event.id, compact(event.to_json()), now_ms, at_ms))
    return runs
