"""The event subscriber: subscribes jobs with `on` to the events of MCP servers, renews and ends that.

With a public URL, the server posts events to the callback of the subscription
(`wakeful.service.jobs.event_receiver`); otherwise, and if the event has no such delivery, they are polled.
One replica acts for a subscription at a time (`store.sql.event_sources`). Requests are idempotent and events
have ids, so one that dies at any point repeats at most what has no effect.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, Protocol

from wakeful.document import work_from_text
from wakeful.engine.loop import Loop
from wakeful.errors import FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted, Unavailable
from wakeful.job.policy import Backoff
from wakeful.launch.mcp_client import McpClient, McpError, McpTimeout
from wakeful.launch.secrets import Keyring, format_secret, new_secret
from wakeful.logs import get_logger
from wakeful.settings.event_servers import EventServer, refusal
from wakeful.signal.mcp_events import (
    FORBIDDEN,
    NO_METHOD,
    NOT_FOUND,
    POLL,
    SUBSCRIBE,
    UNSUBSCRIBE,
    UNSUPPORTED,
    McpEvent,
    read_grant,
    read_poll,
)
from wakeful.store.port import Store
from wakeful.store.sql.event_sources import EventJob, EventSource
from wakeful.values.clock import Clock
from wakeful.values.ids import new_id
from wakeful.values.json_value import Json, compact

#: The path of callbacks, before the id of the subscription.
CALLBACK_PATH: Final = "/hooks/events/"
#: How many subscriptions a process acts for at once, and for how long at most.
MAX_CONCURRENT: Final = 16
LEASE_MS: Final = 180_000
#: How long a subscription shall last. It is renewed after two thirds of what the server grants.
TTL_MS: Final = 3_600_000
_LONGEST_MS: Final = 24 * 3_600_000
_SHORTEST_MS: Final = 1_000
_POLL_MS: Final = 30_000
_PAGE: Final = 50
_BACKOFF: Final = Backoff(base_ms=2_000, max_ms=300_000)
#: How many failures in a row open an incident, and how often a request to end a subscription is tried.
MANY_FAILURES: Final = 5
#: For how many seconds a server that did not answer gets one request at a time: its subscriptions hold up no
#: others.
_SILENT_S: Final = 30.0
#: When a server is asked again that refused the subscription.
_REFUSED_MS: Final = 600_000

_NO_KEY: Final = (
    "its secret was encrypted with another key; add that key to WAKEFUL_SECRET_KEY after a comma, or pause "
    "and resume the job, so that it subscribes with a new secret"
)

ProblemReason = Literal["event_gap", "event_ended", "event_refused"]
log = get_logger("wakeful.events")


class _NotSent(McpError):
    """The server did not answer lately, and is not asked before `wait_ms` have passed."""

    def __init__(self, message: str, wait_ms: int) -> None:
        super().__init__(message)
        self.wait_ms = wait_ms


class EventReceiver(Protocol):
    """What becomes of events and problems of a subscription."""

    async def start(self, source: EventSource, event: McpEvent) -> bool:
        """Start the run of an event. False: it has one. NotFound: the subscription has ended."""
        ...

    async def report(
        self, source: EventSource, reason: ProblemReason, error: str, *, message_id: str | None = None
    ) -> None:
        """Open an incident, once for the id of a message. NotFound: the subscription has ended."""
        ...


class _Source(NamedTuple):
    """What a job subscribes to."""

    server: str
    event: str
    arguments: Mapping[str, Json]


class EventSubscriber(Loop):
    """Keeps the subscriptions of jobs."""

    name = "event-subscriber"
    follows_time = True

    def __init__(
        self,
        store: Store,
        clock: Clock,
        servers: Mapping[str, EventServer],
        keyring: Keyring,
        public_url: str | None,
        receiver: EventReceiver,
        max_sleep_ms: int,
    ) -> None:
        super().__init__(clock, max_sleep_ms)
        self._store = store
        self._servers = servers
        self._keyring = keyring
        self._public_url = public_url
        self._receiver = receiver
        self._worker = f"events:{new_id(clock.now_ms())[-12:]}"
        #: whether secrets can be encrypted; None: not tried yet, or not needed
        self._can_seal: bool | None = None
        self._client: McpClient | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        #: the servers that did not answer in time, and when the next request finds out whether they do
        self._silent: dict[str, float] = {}
        store.listen(self._on_notify)

    def _on_notify(self, topic: str) -> None:
        if topic == "jobs":
            self.wake()

    @property
    def is_busy(self) -> bool:
        """Whether requests are under way."""
        return bool(self._tasks)

    async def run(self) -> None:
        """Run until cancelled; requests under way are cancelled too, and repeated after their lease."""
        self._client = McpClient(MAX_CONCURRENT)
        try:
            await super().run()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._client.close()

    async def step(self) -> int | None:
        """Let the subscriptions follow their jobs, and act for those that are due."""
        now_ms = self.clock.now_ms()
        mode = "webhook" if self._takes_callbacks() else "poll"
        await self._store.sync_event_sources(now_ms, mode, self._read_job)
        free = MAX_CONCURRENT - len(self._tasks)
        due_ms = await self._store.next_event_source_ms(0) if free else None
        if due_ms is None or due_ms > now_ms:
            return due_ms
        taken = await self._store.take_event_sources(now_ms, self._worker, now_ms + LEASE_MS, free)
        for source in taken:
            task = asyncio.create_task(self._act(source), name="wakeful-event-source")
            self._tasks.add(task)
            task.add_done_callback(self._end_task)
        return now_ms if len(taken) == free else await self._store.next_event_source_ms(now_ms)

    def _takes_callbacks(self) -> bool:
        """Return whether servers can post to this one, with secrets that can be stored."""
        if self._public_url is not None and self._can_seal is None:
            try:
                self._keyring.seal(new_secret())
                self._can_seal = True
            except FailedPrecondition as error:
                log.warning("event_source.polled", reason=error.message)
                self._can_seal = False
        return bool(self._can_seal)

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.wake()

    def _read_job(self, job: EventJob) -> tuple[str, bytes | None] | None:
        try:
            source = work_from_text(job.work).on
        except InvalidArgument:
            return None
        if source is None:
            return None
        secret = self._keyring.seal(new_secret()) if self._can_seal else None
        return compact(dict(source), sort=True), secret

    async def _act(self, source: EventSource) -> None:
        """Subscribe, renew, poll or end, and write what became of it."""
        try:
            if source.state == "ending":
                await self._end(source)
            else:
                await self._store.save_event_source(self._worker, await self._keep(source))
        except NotFound:  # it ended meanwhile
            self.wake()
        except Unavailable as error:  # its lease ends, and it is repeated
            log.warning("event_source.unwritten", source=source.id, error=error.message)
        except Exception:
            log.exception("event_source.error", source=source.id)

    async def _keep(self, source: EventSource) -> EventSource:
        wanted = _read_source(source.source)
        problem = refusal(self._servers, wanted.server, source.workspace, source.agent)
        if problem is not None:  # another replica may have the server: settings change one by one
            return await self._fail(source, problem, refused=wanted.server in self._servers)
        try:
            if source.mode == "webhook" and self._public_url is not None:
                try:
                    secret = self._keyring.open(source.secret or b"")
                except FailedPrecondition:
                    return await self._fail(source, _NO_KEY, refused=True)
                kept = await self._subscribe(source, wanted, format_secret(secret))
            else:
                kept = await self._poll(source, wanted)
        except _NotSent as error:  # no failure: another subscription finds out whether it answers
            return source._replace(error=error.message, due_ms=self.clock.now_ms() + error.wait_ms)
        except McpError as error:
            if source.mode == "webhook" and error.rpc_code in (UNSUPPORTED, NO_METHOD):
                return source._replace(mode="poll", due_ms=self.clock.now_ms())
            refused = error.rpc_code in (NOT_FOUND, FORBIDDEN) or error.status in (401, 403)
            return await self._fail(source, error.message, refused=refused)
        # The server's answer cannot be read, or a polled event cannot start the job now.
        except (FailedPrecondition, InvalidArgument, ResourceExhausted) as error:
            return await self._fail(source, error.message, refused=False)
        if source.state != "active":
            log.info("event_source.active", source=source.id, server=wanted.server, mode=source.mode)
        return kept._replace(state="active", error=None, failures=0)

    async def _subscribe(self, source: EventSource, wanted: _Source, secret: str) -> EventSource:
        delivery: dict[str, Json] = {"mode": "webhook", "url": self._callback(source), "secret": secret}
        sent_ms = self.clock.now_ms()
        answer = await self._request(
            wanted, SUBSCRIBE, {"delivery": delivery, "cursor": source.position, "ttlMs": TTL_MS}
        )
        grant = read_grant(answer)
        if grant.truncated and source.position is not None:
            await self._receiver.report(source, "event_gap", "the server no longer has all events")
        left_ms = _LONGEST_MS if grant.refresh_before_ms is None else grant.refresh_before_ms - sent_ms
        due_ms = sent_ms + min(max(left_ms * 2 // 3, _SHORTEST_MS), _LONGEST_MS)
        position = grant.cursor or source.position
        return source._replace(
            remote_id=grant.id, position=position, due_ms=due_ms, expires_ms=grant.refresh_before_ms
        )

    async def _poll(self, source: EventSource, wanted: _Source) -> EventSource:
        page = read_poll(await self._request(wanted, POLL, {"cursor": source.position, "maxEvents": _PAGE}))
        at, started = source.position or "", False
        for number, event in enumerate(page.events):
            try:
                if isinstance(event, InvalidArgument):
                    raise event
                started = await self._receiver.start(source, event) or started
            except InvalidArgument as error:  # the events after it are not held up
                why = f"an event of the server cannot be read: {error.message}"
                await self._receiver.report(source, "event_gap", why, message_id=f"event {number} after {at}")
        if page.truncated and source.position is not None:
            why = "the server no longer has all events"
            await self._receiver.report(source, "event_gap", why, message_id=f"events after {at}")
        wait_ms = _POLL_MS if page.next_poll_ms is None else page.next_poll_ms
        # A server may have more for ever of what starts nothing.
        has_next = page.has_more and page.cursor != source.position and started
        due_ms = self.clock.now_ms() + (0 if has_next else min(max(wait_ms, _SHORTEST_MS), _LONGEST_MS))
        return source._replace(position=page.cursor, due_ms=due_ms, expires_ms=None)

    async def _fail(self, source: EventSource, error: str, *, refused: bool) -> EventSource:
        """Return the subscription after a failure. The first refusal and many failures open an incident."""
        failures = source.failures + 1
        state = "failed" if refused or failures >= MANY_FAILURES else source.state
        log.warning("event_source.failed", source=source.id, error=error, failures=failures)
        if state == "failed" != source.state:
            await self._receiver.report(source, "event_refused", error)
        wait_ms = _REFUSED_MS if refused else _BACKOFF.delay_ms(failures, source.id)
        return source._replace(
            state=state, error=error, failures=failures, due_ms=self.clock.now_ms() + wait_ms
        )

    async def _end(self, source: EventSource) -> None:
        """Unsubscribe, and forget the subscription. The server ends it by itself if that fails."""
        wanted = _read_source(source.source)
        if source.mode == "webhook" and wanted.server in self._servers and self._public_url is not None:
            try:
                await self._request(wanted, UNSUBSCRIBE, {"delivery": {"url": self._callback(source)}})
            except McpError as error:
                failures = source.failures + 1
                if error.rpc_code is None and failures < MANY_FAILURES:
                    due_ms = self.clock.now_ms() + _BACKOFF.delay_ms(failures, source.id)
                    row = source._replace(failures=failures, error=error.message, due_ms=due_ms)
                    await self._store.save_event_source(self._worker, row)
                    return
        await self._store.delete_event_source(self._worker, source.id)
        log.info("event_source.ended", source=source.id, server=wanted.server)

    async def _request(self, wanted: _Source, method: str, params: Mapping[str, Json]) -> Json:
        assert self._client is not None, "the loop runs"
        server, now_s = self._servers[wanted.server], asyncio.get_running_loop().time()
        named: dict[str, Json] = {"name": wanted.event, "arguments": dict(wanted.arguments), **params}
        if wanted.server in self._silent:
            wait_s = self._silent[wanted.server] - now_s
            if wait_s > 0:
                raise _NotSent(f"{method}: the server does not answer", round(1000 * wait_s))
            self._silent[wanted.server] = now_s + _SILENT_S
        silent = False
        try:
            return await self._client.request(server.url, server.key, method, named)
        except McpTimeout:
            silent = True
            raise
        finally:
            if silent:
                self._silent[wanted.server] = asyncio.get_running_loop().time() + _SILENT_S
            else:
                self._silent.pop(wanted.server, None)

    def _callback(self, source: EventSource) -> str:
        return f"{self._public_url}{CALLBACK_PATH}{source.id}"


def _read_source(text: str) -> _Source:
    value = json.loads(text)
    return _Source(value["server"], value["event"], value.get("arguments") or {})
