"""The profile of MCP Events that Wakeful serves and consumes. Pure, and experimental.

The protocol is the draft of `events/*` for MCP 2026-07-28 (SEP-3415), with webhook and poll delivery. What
may change with the draft is in this module. A message to a callback is one event, the verification of the
callback, or a control message: `gap` (events were lost) or `terminated` (the subscription is over). Every
message is signed as Standard Webhooks define it (`wakeful.launch.secrets`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias, cast

from wakeful.errors import InvalidArgument
from wakeful.values.instants import LATEST_MS, iso_utc
from wakeful.values.json_value import Json, compact, json_from_stored, json_value, quote
from wakeful.values.stored_text import UNSTORABLE, clean_text, is_storable

#: The capability in `server/discover`, and the methods.
CAPABILITY: Final = "events"
LIST: Final = "events/list"
SUBSCRIBE: Final = "events/subscribe"
UNSUBSCRIBE: Final = "events/unsubscribe"
POLL: Final = "events/poll"
#: The header with the id of the subscription; the others are of Standard Webhooks.
SUBSCRIPTION_HEADER: Final = "x-mcp-subscription-id"
#: The most bytes of a message, and the most events of an answer to a poll.
MAX_MESSAGE: Final = 256 * 1024
MAX_POLLED: Final = 1_000
#: The code of the error of a callback that cannot be verified, and the one of an event that does not exist.
CALLBACK_ERROR: Final = -32015
NOT_FOUND: Final = -32011
#: The codes for a caller without the right, for a limit that is reached, for a mode that an event does not
#: have, and of JSON-RPC for a method that does not exist.
FORBIDDEN: Final = -32012
EXHAUSTED: Final = -32013
UNSUPPORTED: Final = -32014
NO_METHOD: Final = -32601

_MAX_ID: Final = 512


class McpEvent(NamedTuple):
    """An event. Its id is the same in each delivery."""

    id: str
    name: str
    #: when it happened, in ISO 8601
    timestamp: str
    data: Mapping[str, Json]
    #: the position after it; None: events of this kind cannot be read again
    cursor: str | None = None

    def to_json(self) -> dict[str, Json]:
        """Return the event as it is sent.

        >>> McpEvent("evt_1", "schedule.tick", "2026-10-01T09:00:00Z", {"number": 1}).to_json()["eventId"]
        'evt_1'
        """
        return {
            "eventId": self.id,
            "name": self.name,
            "timestamp": self.timestamp,
            "data": dict(self.data),
            "cursor": self.cursor,
        }


class Verification(NamedTuple):
    """The question of a server whether a callback wants its events; it returns the challenge."""

    challenge: str


class Gap(NamedTuple):
    """Events before the cursor are lost."""

    cursor: str | None


class Terminated(NamedTuple):
    """The server ended the subscription."""

    code: int
    message: str


Message: TypeAlias = McpEvent | Verification | Gap | Terminated


def verification_json(challenge: str) -> dict[str, Json]:
    """Return the message that verifies a callback, as it is sent."""
    return {"type": "verification", "challenge": challenge}


def gap_json(cursor: str | None) -> dict[str, Json]:
    """Return the message that events were lost, as it is sent."""
    return {"type": "gap", "cursor": cursor}


def terminated_json(code: int, message: str) -> dict[str, Json]:
    """Return the message that the subscription is over, as it is sent."""
    return {"type": "terminated", "error": {"code": code, "message": message}}


def takes_control(host: str | None) -> bool:
    """Return whether a callback may be sent `gap` and `terminated`: the profile of OpenAI has neither.

    >>> takes_control("a.example"), takes_control("hooks.chatgpt.com"), takes_control("notopenai.com")
    (True, False, True)
    """
    return not f".{host}".endswith((".openai.com", ".chatgpt.com"))


def subscription_id(principal: str, url: str, name: str, arguments: Mapping[str, Json]) -> str:
    """Return the id of a subscription: a function of who subscribes to what, and where events go.

    >>> one = subscription_id("key:1", "https://a.example/", "run.finished", {"agent": "a", "job": "b"})
    >>> one == subscription_id("key:1", "https://a.example/", "run.finished", {"job": "b", "agent": "a"})
    True
    >>> one[:4], len(one)
    ('sub_', 36)
    """
    return f"sub_{_digest(principal, url, name, dict(arguments))}"


def event_id(*parts: Json) -> str:
    """Return the id of an event: a function of the stored fact, so equal after a crash and in each retry.

    >>> event_id("run.finished", "0190a0b0") == event_id("run.finished", "0190a0b0")
    True
    """
    return f"evt_{_digest(*parts)}"


def _digest(*parts: Json) -> str:
    return hashlib.sha256(compact([*parts], sort=True).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def read_message(body: bytes) -> Message:
    """Return the message of a body whose signature is correct. Raises InvalidArgument.

    >>> read_message(b'{"type":"gap","cursor":"7"}')
    Gap(cursor='7')
    >>> read_message(b'{"type":"terminated","error":{"code":-32011,"message":"gone"}}')
    Terminated(code=-32011, message='gone')
    """
    if len(body) > MAX_MESSAGE:
        raise InvalidArgument(f"a message has at most {MAX_MESSAGE:,} bytes; this one has {len(body):,}")
    try:
        value = json_from_stored(body.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"the message is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidArgument("a message is a JSON object")
    kind = value.get("type")
    if kind == "verification":
        return Verification(_text(value, "challenge"))
    if kind == "gap":
        return Gap(_optional_text(value, "cursor"))
    if kind == "terminated":
        reason = value.get("error")
        if not isinstance(reason, dict):
            raise InvalidArgument("'error' of a termination is an object")
        code = reason.get("code")
        message = clean_text(str(reason.get("message") or "")[:_MAX_ID])
        return Terminated(code if type(code) is int else 0, message)
    if kind is not None:
        raise InvalidArgument(f"there is no message of type {quote(kind)}")
    return read_event(value)


def read_event(value: object) -> McpEvent:
    """Return an event of a delivery or of a poll. Raises InvalidArgument.

    >>> read_event({"eventId": "1", "name": "n", "timestamp": "2026-10-01T09:00:00Z", "data": {}}).name
    'n'
    """
    if not isinstance(value, dict):
        raise InvalidArgument("an event is a JSON object")
    data = value.get("data")
    if not isinstance(data, dict):
        raise InvalidArgument("'data' of an event is an object")
    try:
        data = cast(dict[str, Json], json_value(data, MAX_MESSAGE))
    except InvalidArgument as error:
        raise InvalidArgument(f"'data' of an event: {error.message}") from error
    timestamp = _text(value, "timestamp")
    if _instant(timestamp) is None:
        raise InvalidArgument("'timestamp' of an event is an instant in ISO 8601, with its offset")
    return McpEvent(
        _text(value, "eventId"), _text(value, "name"), timestamp, data, _optional_text(value, "cursor")
    )


class Grant(NamedTuple):
    """An answer to `events/subscribe`."""

    id: str
    #: when it must be renewed; None: it does not expire
    refresh_before_ms: int | None
    cursor: str | None
    #: whether events after the cursor of the request are lost
    truncated: bool

    def to_json(self) -> dict[str, Json]:
        """Return the answer as it is sent."""
        refresh = None if self.refresh_before_ms is None else iso_utc(self.refresh_before_ms)
        answer: dict[str, Json] = {"id": self.id, "refreshBefore": refresh}
        return {**answer, "cursor": self.cursor, "truncated": self.truncated}


class PolledEvents(NamedTuple):
    """An answer to `events/poll`."""

    #: in order; an InvalidArgument is an event that cannot be read
    events: tuple[McpEvent | InvalidArgument, ...]
    cursor: str | None
    truncated: bool
    has_more: bool
    next_poll_ms: int | None

    def to_json(self) -> dict[str, Json]:
        """Return the answer as it is sent."""
        return {
            "events": [event.to_json() for event in self.events if isinstance(event, McpEvent)],
            "cursor": self.cursor,
            "truncated": self.truncated,
            "hasMore": self.has_more,
            "nextPollMs": self.next_poll_ms,
        }


def read_grant(value: object) -> Grant:
    """Return the result of `events/subscribe`. Raises InvalidArgument.

    >>> read_grant({"id": "sub_1", "refreshBefore": "1970-01-01T00:01:00Z", "cursor": None})
    Grant(id='sub_1', refresh_before_ms=60000, cursor=None, truncated=False)
    >>> read_grant({"id": "1", "refreshBefore": "9999-12-31T23:59:59-12:00"}).refresh_before_ms == LATEST_MS
    True
    """
    if not isinstance(value, dict):
        raise InvalidArgument("the result of events/subscribe is an object")
    refresh_before = _optional_text(value, "refreshBefore")
    refresh_ms = None
    if refresh_before is not None:
        at = _instant(refresh_before)
        if at is None:
            raise InvalidArgument("'refreshBefore' is an instant in ISO 8601, with its offset, or null")
        refresh_ms = min(max(round(at.timestamp() * 1000), 0), LATEST_MS)
    return Grant(
        _text(value, "id"), refresh_ms, _optional_text(value, "cursor"), value.get("truncated") is True
    )


def read_poll(value: object) -> PolledEvents:
    """Return the result of `events/poll`. Raises InvalidArgument.

    >>> read_poll({"events": [], "cursor": "7", "hasMore": False, "nextPollMs": 30000})[1:]
    ('7', False, False, 30000)
    """
    found = value.get("events") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(found, list):
        raise InvalidArgument("'events' of the result of events/poll is a list")
    if len(found) > MAX_POLLED:
        raise InvalidArgument(
            f"the result of events/poll has {len(found):,} events, more than {MAX_POLLED:,}"
        )
    wait = value.get("nextPollMs")
    return PolledEvents(
        tuple(map(_read_polled, found)),
        _optional_text(value, "cursor"),
        value.get("truncated") is True,
        value.get("hasMore") is True,
        wait if type(wait) is int and wait >= 0 else None,
    )


def _read_polled(value: object) -> McpEvent | InvalidArgument:
    try:
        return read_event(value)
    except InvalidArgument as error:
        return error


def _instant(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if at.tzinfo is None else at


def _text(value: Mapping[str, object], name: str) -> str:
    found = value.get(name)
    if not isinstance(found, str) or not 0 < len(found) <= _MAX_ID:
        raise InvalidArgument(f"'{name}' is a text of 1 to {_MAX_ID} characters")
    if not is_storable(found):
        raise InvalidArgument(f"'{name}': {UNSTORABLE}")
    return found


def _optional_text(value: Mapping[str, object], name: str) -> str | None:
    return None if value.get(name) is None else _text(value, name)
