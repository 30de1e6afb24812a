"""Subscriptions to MCP events: who may subscribe to what, and the internal job that delivers the events.

A subscription belongs to the principal that made it: no other principal may see or end it over MCP. Its
events are those of its agent; a subscription for no agent gets those of the workspace. It lasts until it is
ended, refused by its callback, or expires; it never outlives the key that made it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from wakeful.document import read_definition
from wakeful.engine.event_facts import first_rows, read_facts
from wakeful.errors import FailedPrecondition, InvalidArgument, NotFound
from wakeful.job.job import Definition, JobRecord, Work, check_slug, choose_anchor
from wakeful.job.policy import DAY_MS, Backoff, Policy
from wakeful.job.self_scheduling import check_outside
from wakeful.launch.event_callback import KIND, EventLauncher
from wakeful.launch.secrets import Keyring, read_secret
from wakeful.run.planning import begin
from wakeful.service.auth.access import Action, Principal, check_person
from wakeful.service.auth.accounts import Accounts, JobContext
from wakeful.service.auth.agent_policy import AgentTargetPolicy
from wakeful.signal.event_catalog import TICK, EventDefinition, check_arguments, find_event, job_name, passes
from wakeful.signal.mcp_events import McpEvent, subscription_id
from wakeful.store.audit import AuditEntry
from wakeful.store.internal_jobs import WORKSPACE_AGENT
from wakeful.store.port import Store
from wakeful.store.quotas import Allowance
from wakeful.store.row_mapping import job_to_row
from wakeful.store.sql.subscriptions import SubscriptionRow
from wakeful.values.bounded_cache import MB, BoundedCache, text_size
from wakeful.values.ids import new_id
from wakeful.values.json_value import Json, compact, whole_number

#: The labels of the jobs of subscriptions.
LABELS: Final = {"system": "subscription"}
#: One event at a time, in order. 30 attempts take about five hours.
_POLICY: Final = Policy(
    overlap="queue",
    max_queued=10_000,
    catchup="fire_immediately",
    catchup_window_ms=7 * DAY_MS,
    max_attempts=30,
    backoff=Backoff(2_000, 900_000),
)
#: The longest time until a subscription expires that has a time to live.
_MAX_TTL_MS: Final = 366 * DAY_MS
#: How many events a poll returns, by default and at most, and how many pages of the changelog it reads.
_POLLED: Final = 50
_MOST_POLLED: Final = 500
_ROWS: Final = 50
_PAGES: Final = 10
_DELIVERY: Final = frozenset({"mode", "url", "secret"})


class SubscriptionRequest(NamedTuple):
    """What `events/subscribe` asks for."""

    name: object
    arguments: object
    delivery: object
    ttl_ms: object = None
    #: where to begin, the age of the oldest event and how many events to return, of a poll
    cursor: object = None
    max_age_ms: object = None
    max_events: object = None


class PolledEvents(NamedTuple):
    """The events after a cursor."""

    events: Sequence[McpEvent]
    cursor: str
    #: whether events between the two cursors were left out
    truncated: bool
    more: bool


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
            launcher.find_url, launcher.end = self.find_url, self.end_gone

    async def subscribe(
        self, principal: Principal, workspace: str, agent: str | None, request: SubscriptionRequest
    ) -> SubscriptionRow:
        """Subscribe to an event, or refresh the same subscription. Its callback is verified first."""
        event = find_event(request.name)
        arguments = check_arguments(event, request.arguments)
        scope, agent = agent or principal.agent, agent or principal.agent or WORKSPACE_AGENT
        check_slug(agent, "agent")  # its job adds an agent that there is not
        await self._authorize(principal, workspace, agent, event)
        filters = await self.filters(principal, workspace, scope, event, arguments)
        url, secret = self._read_delivery(event, request.delivery)
        identity = subscription_id(_owner(principal, workspace, agent), url, event.name, arguments)

        def prepare(context: JobContext) -> JobRecord:
            self._check_agent(principal, context, event)
            self._target_policy.check(principal, Work(target={"kind": "webhook", "url": url}), context)
            now_ms = self._store.clock.now_ms()
            return subscription_job(context, identity, event, arguments, now_ms, principal)

        async def write(context: JobContext) -> SubscriptionRow:
            job = prepare(context)  # the agent may have changed while the callback was verified
            row = SubscriptionRow(
                identity, workspace, agent, principal.actor, event.name, compact(filters, sort=True), url,
                job.id, 0, job.created_ms, job.created_ms, _expiry_ms(request.ttl_ms, job.created_ms),
            )  # fmt: skip

            def entries(written: SubscriptionRow) -> list[AuditEntry]:
                action = "subscription.create" if written.job_id == job.id else "subscription.refresh"
                return [_entry(principal, written, action)]

            sealed = self._keyring.seal(secret)
            return await self._store.subscribe(
                row, job_to_row(job, sealed), entries, self._allowance, context.inherited
            )

        prepare(await self._accounts.context(workspace, agent))
        assert self._launcher is not None
        await self._launcher.verify_callback(url, secret, identity)
        return await self._accounts.with_context(workspace, agent, write)

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
        """Return the events after a cursor, which is the position in the changelog; None: from now on."""
        event = find_event(request.name)
        arguments = check_arguments(event, request.arguments)
        if "poll" not in event.delivery:
            raise InvalidArgument(f"{event.name} is delivered by 'webhook' only; subscribe to it")
        scope = agent or principal.agent
        await self._accounts.authorize(principal, "read", workspace, scope)
        filters = await self.filters(principal, workspace, scope, event, arguments)
        most = min(_number("maxEvents", request.max_events) or _POLLED, _MOST_POLLED)
        max_age_ms = _number("maxAgeMs", request.max_age_ms)
        last = await self._store.last_change()
        position = last if request.cursor is None else read_cursor(request.cursor)
        if position > last:  # of another database
            return PolledEvents((), str(last), True, False)
        oldest_ms = 0 if max_age_ms is None else self._store.clock.now_ms() - max_age_ms
        found: list[McpEvent] = []
        truncated, pages = False, 0
        while position < last and len(found) < most and pages < _PAGES:
            rows = await self._store.changes(position, _ROWS, finished_only=True)
            if not rows:
                break
            truncated, pages = truncated or rows[0].first > position + 1, pages + 1
            rows = [*first_rows(rows, (event.name,))]
            for fact in await read_facts(self._store, rows, position, (event.name,)):
                if len(found) >= most and fact.seq > position:
                    break
                if (fact.workspace, fact.name) == (workspace, event.name) and passes(filters, fact.data):
                    truncated = truncated or fact.at_ms < oldest_ms
                    found += [fact.to_event()] if fact.at_ms >= oldest_ms else []
                    position = fact.seq
            else:
                position = rows[-1].last
        return PolledEvents(found, str(position), truncated, position < last)

    async def filters(
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

    async def end_gone(self, identity: str) -> None:
        """End a subscription whose callback answered 410."""
        row = await self._store.subscription(identity)
        if row is not None:
            await self._end(row, "gone", None)

    async def _end(self, row: SubscriptionRow, reason: str, principal: Principal | None) -> bool:
        self._urls.drop(row.id)
        entries = [] if principal is None else [_entry(principal, row, "subscription.end")]
        return await self._store.end_subscription(row.id, reason, entries) is not None

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


def _expiry_ms(ttl: object, now_ms: int) -> int | None:
    ttl_ms = _number("ttlMs", ttl)
    return None if ttl_ms is None else now_ms + min(ttl_ms, _MAX_TTL_MS)


def subscription_job(
    context: JobContext,
    identity: str,
    event: EventDefinition,
    arguments: Mapping[str, Json],
    now_ms: int,
    principal: Principal,
) -> JobRecord:
    """Return the job that delivers the events of a subscription: for time, with its schedule."""
    if not context.active:
        raise FailedPrecondition(f"agent '{context.agent}' is not active; activate it to subscribe")
    target: dict[str, Json] = {"kind": KIND, "subscription": identity, "sinceMs": now_ms}
    about = f"Delivers the event {event.name} to a subscriber."
    definition = Definition(job_name(identity), None, _POLICY, Work(target), None, about, LABELS)
    if event.name == TICK:
        document = {"name": definition.name, **arguments}
        read = read_definition(document, now_ms=now_ms, defaults=context.defaults)
        work = replace(definition.work, message=read.work.message)
        definition = replace(definition, timing=read.timing, work=work)
    anchor_ms = choose_anchor(definition, now_ms)
    job_id = new_id(now_ms)
    next_ms, wake_ms = begin(job_id, definition, anchor_ms, now_ms)
    return JobRecord(
        id=job_id,
        workspace=context.workspace,
        agent=context.agent,
        definition=definition,
        enabled=True,
        anchor_ms=anchor_ms,
        next_ms=next_ms,
        wake_ms=wake_ms,
        created_ms=now_ms,
        updated_ms=now_ms,
        created_by=principal.creator,
    )
