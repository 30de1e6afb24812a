"""Deliveries of MCP events: a signed `POST` to the callback of a subscription.

    {"kind": "event", "subscription": "sub_…", "sinceMs": 1800000000000}

Only the internal jobs of subscriptions have such a target. The body is one event; a tick of the job is the
event `schedule.tick`. The signature is the one of Standard Webhooks, and `webhook-id` is the id of the event.
2xx succeeds. 410 ends the subscription before the outcome is recorded, so that no waiting event is sent after
it. Everything else fails and may be retried. Redirects are not followed.

If events are lost, because they failed for too long or were missed, the callback is told by a `gap`, which is
a delivery like an event. When Wakeful ends a subscription, the callback is told once by `terminated`.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from yarl import URL

from wakeful.document import timing_from_text
from wakeful.errors import InvalidArgument, Unavailable, WakefulError
from wakeful.job.target_kinds import EVENT
from wakeful.launch.address_guard import AddressRefused
from wakeful.launch.http.messages import HttpError, Response
from wakeful.launch.port import Launch, truncate
from wakeful.launch.secrets import standard_signature
from wakeful.launch.tick_events import TickCursor, tick_event
from wakeful.launch.webhook import WebhookLauncher, parse_url, traceparent
from wakeful.launch.webhook_response import read_text
from wakeful.logs import get_logger
from wakeful.run.outcome import Failed, Outcome, Succeeded
from wakeful.signal.mcp_events import (
    MAX_MESSAGE,
    SUBSCRIPTION_HEADER,
    McpEvent,
    gap_json,
    takes_control,
    terminated_json,
    verification_json,
)
from wakeful.store.sql.subscriptions import SubscriptionRow
from wakeful.values.json_value import Json, compact
from wakeful.values.stored_text import is_storable

KIND: Final = EVENT
#: How often an event is tried; a gap, which would hold up the events after it, is tried less often.
MAX_ATTEMPTS: Final = 30
_CONTROL_ATTEMPTS: Final = 5
#: Statuses of a callback that does not know a message, and of one that takes no body of this size.
_REFUSED: Final = frozenset({400, 404, 405, 413, 415, 422, 501})
_TOO_LARGE: Final = 413
#: Before each try to tell a callback that its subscription is over.
_PAUSES_S: Final = (0, 2, 10)
#: How long a message that is no event may take.
_CONTROL_S: Final = 10.0
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})

log = get_logger("wakeful.events")


class CallbackRefused(InvalidArgument):
    """A callback could not be reached, or did not return the challenge."""

    def __init__(self, why: str, reason: str) -> None:
        super().__init__(f"delivery.url: {why}")
        #: `connection_refused`, `timeout`, `http_4xx`, `http_5xx`, `challenge_failed`
        self.reason = reason


class EventLauncher(WebhookLauncher):
    """Posts events to the callbacks of subscriptions, and verifies callbacks."""

    kind = KIND
    #: returns the callback of an active subscription; None: it has ended
    find_url: Callable[[str], Awaitable[str | None]]
    #: ends a subscription for a reason, such as `gone`
    end: Callable[[str, str], Awaitable[SubscriptionRow | None]]
    #: records that events of a subscription are lost, so that its callback is told
    lose: Callable[[str], Awaitable[object]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._notices: set[asyncio.Task[None]] = set()

    def check(self, target: Mapping[str, Json]) -> None:
        """Raise InvalidArgument for a target without a subscription."""
        if not isinstance(target.get("subscription"), str):
            raise InvalidArgument("target: an event goes to a subscription, which only /mcp creates")

    def check_callback(self, value: object) -> str:
        """Return the URL of a callback. Raises InvalidArgument unless it is HTTPS to a public address.

        Where private addresses are allowed, HTTP to this machine is too.
        """
        try:
            url = parse_url(value if isinstance(value, str) and is_storable(value) else None)
            self._guard.check_host(url.raw_host or "")
        except AddressRefused as error:
            raise InvalidArgument(f"delivery.url: {error}") from error
        except InvalidArgument as error:
            raise InvalidArgument(
                "delivery.url: it is not a URL; write one such as 'https://example.com/events'"
            ) from error
        local = self._guard.allow_private and url.raw_host in _LOOPBACK
        if url.scheme != "https" and not local:
            raise InvalidArgument("delivery.url: a callback must use https")
        if url.user is not None or url.password is not None or url.fragment:
            raise InvalidArgument("delivery.url: a callback has no user, no password and no fragment")
        return str(value)

    async def verify_callback(self, url: str, secret: bytes, subscription: str) -> None:
        """Post a challenge to a callback. Raises CallbackRefused unless the callback returns it."""
        challenge = secrets.token_urlsafe(32)
        try:
            message = verification_json(challenge)
            response = await self._send(url, (secret,), subscription, message, _message_id(message))
        except TimeoutError as error:
            raise CallbackRefused(f"no response within {_CONTROL_S:.0f} s", "timeout") from error
        except AddressRefused as error:
            raise CallbackRefused(str(error), "address_refused") from error
        except (HttpError, OSError, ValueError) as error:
            raise CallbackRefused(f"it cannot be reached: {error}", "connection_refused") from error
        status = response.status
        if not 200 <= status < 300:
            raise CallbackRefused(
                f"it answered the verification with status {status}", f"http_{status // 100}xx"
            )
        try:
            answer = json.loads(read_text(response))
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or answer.get("challenge") != challenge:
            raise CallbackRefused("it did not return the challenge of the verification", "challenge_failed")

    async def _send(
        self, url: str, keys: tuple[bytes, ...], to: str, message: dict[str, Json], message_id: str
    ) -> Response:
        if self._client is None:
            raise Unavailable("no engine runs in this process; send the request to another one")
        body = compact(message).encode()
        headers = self._signed(message_id, keys, body, to)
        async with asyncio.timeout(_CONTROL_S):
            return await self._client.request("POST", URL(url), headers, body, MAX_MESSAGE)

    def tell_end(self, url: str, keys: tuple[bytes, ...], subscription: str, code: int, why: str) -> None:
        """Tell a callback in the background that its subscription is over, if it takes such messages."""
        if self._client is not None and takes_control(URL(url).raw_host):
            task = asyncio.create_task(self._tell(url, keys, subscription, terminated_json(code, why)))
            self._notices.add(task)
            task.add_done_callback(self._notices.discard)

    async def _tell(self, url: str, keys: tuple[bytes, ...], to: str, message: dict[str, Json]) -> None:
        message_id = _message_id(message)
        for pause_s in _PAUSES_S:
            await asyncio.sleep(pause_s)
            try:
                if (await self._send(url, keys, to, message, message_id)).status < 500:
                    return
            except (HttpError, OSError, ValueError, WakefulError) as error:
                log.info("subscription.not_told", subscription=to, error=str(error))

    async def close(self) -> None:
        """Close the connections; callbacks that are not told yet are not told."""
        for task in self._notices:
            task.cancel()
        await asyncio.gather(*self._notices, return_exceptions=True)
        await super().close()

    async def start(self, run: Launch) -> Outcome:
        """Post the event of the run and return its outcome."""
        try:
            return await self._deliver(run, str(run.target.get("subscription")))
        except Unavailable as error:
            return Failed(truncate(error.message), reason="unavailable", counted=False)

    async def _deliver(self, run: Launch, subscription: str) -> Outcome:
        url = await self.find_url(subscription)
        if url is None:
            return Failed("its subscription has ended", permanent=True, reason="subscription_ended")
        payload, since = run.payload, run.target.get("sinceMs")
        at = TickCursor(since if isinstance(since, int) else run.scheduled_ms, run.scheduled_ms)
        is_control = isinstance(payload, dict) and "type" in payload
        if isinstance(payload, dict) and is_control:
            if not takes_control(URL(url).raw_host):
                return Succeeded("not sent: the callback takes no such messages")
            body: str | None = compact(gap_json(str(payload.get("cursor") or at)))
        elif isinstance(payload, dict) and "eventId" in payload:
            body = run.payload_text
        else:
            body = compact(_tick(run, subscription, at).to_json())
            if run.missed and not run.failed_attempts:  # again after an attempt that could not record it
                await self.lose(subscription)
        if run.failed_attempts + 1 >= MAX_ATTEMPTS and not is_control:  # whatever becomes of it
            await self.lose(subscription)
        launch = run.with_target({"kind": "webhook", "url": url, "subscription": subscription}, body)
        try:
            async with asyncio.timeout(_CONTROL_S if is_control else None):
                outcome = await super().start(launch)
        except TimeoutError:
            outcome = Failed(f"no response within {_CONTROL_S:.0f} s", reason="timeout")
        if not isinstance(outcome, Failed):
            return outcome
        if outcome.reason == "gone":
            await self.end(subscription, "gone")
            return outcome._replace(pause_job=False)
        status = outcome.response_code or 500
        if is_control and (status in _REFUSED or run.failed_attempts + 1 >= _CONTROL_ATTEMPTS):
            return Succeeded(f"the callback did not take it: {outcome.error}", response_code=status)
        outcome = outcome._replace(permanent=outcome.permanent or status == _TOO_LARGE)
        if outcome.permanent:
            await self.lose(subscription)
        return outcome

    def _body(self, run: Launch) -> bytes:
        return (run.payload_text or "null").encode()

    def _headers(self, run: Launch, secrets: tuple[bytes, ...], body: bytes) -> dict[str, str]:
        identity = json.loads(body).get("eventId") or f"msg_gap_{run.idempotency_key[:32]}"
        headers = self._signed(identity, secrets, body, str(run.target.get("subscription")))
        return {**headers, "traceparent": traceparent(run)}

    def _signed(
        self, identity: str, secrets: tuple[bytes, ...], body: bytes, subscription: str
    ) -> dict[str, str]:
        timestamp = self._clock.now_ms() // 1000
        return {
            "content-type": "application/json",
            "accept": "*/*",
            "accept-encoding": "identity",
            "user-agent": self._agent,
            "webhook-id": identity,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": standard_signature(secrets, identity, timestamp, body),
            SUBSCRIPTION_HEADER: subscription,
        }


def _message_id(message: Mapping[str, Json]) -> str:
    return f"msg_{message['type']}_{secrets.token_hex(16)}"


def _tick(run: Launch, subscription: str, at: TickCursor) -> McpEvent:
    ticks = None
    if run.timing is not None and run.anchor_ms is not None:
        ticks = timing_from_text(run.timing).ticks(run.anchor_ms)
    return tick_event(subscription, ticks, at, run.message)
