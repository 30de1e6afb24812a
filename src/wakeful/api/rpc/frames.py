"""The JSON messages of the RPC: requests, results, errors and events; the parameters of requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from typing import Final, NamedTuple, TypeGuard

from wakeful.api.http.dependencies import read_json
from wakeful.api.http.responses import compact_in_turns
from wakeful.errors import InvalidArgument, WakefulError
from wakeful.service.auth.access import Principal
from wakeful.service.event_stream import Event, serialize_event
from wakeful.values.bounded_cache import MB, bounded_cache, text_size
from wakeful.values.json_value import Json, compact, whole_number

#: The number or text that a client sends with a request and gets back with the result.
RequestId = str | int | float | None
_LONGEST_ID: Final = 128
_INTERNAL: Final = "internal error; the server's log has the details"
#: The form of ids and names; anything else is refused before it reaches the database.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Request(NamedTuple):
    """A request."""

    id: RequestId
    method: str
    params: dict[str, object]


class Unreadable(InvalidArgument):
    """A message that is not a request; `id` is its id if it could be read."""

    def __init__(self, message: str, id: RequestId = None) -> None:
        super().__init__(message)
        self.id = id


def read_request(text: str) -> Request:
    """Read a request from a message, or raise Unreadable.

    >>> read_request('{"id": 1, "method": "cron.list"}')
    Request(id=1, method='cron.list', params={})
    >>> read_request('["cron.list"]')
    Traceback (most recent call last):
    wakeful.api.rpc.frames.Unreadable: a message is a JSON object such as {"id":1,"method":"cron.list"}
    """
    try:
        value = read_json(text, "the message")
    except InvalidArgument as error:
        raise Unreadable(error.message) from None
    if not isinstance(value, dict):
        raise Unreadable('a message is a JSON object such as {"id":1,"method":"cron.list"}')
    id, method, params = value.get("id"), value.get("method"), value.get("params")
    if not _is_request_id(id):
        raise Unreadable(f"id: give a number, or text of at most {_LONGEST_ID} characters")
    if not isinstance(method, str) or not method:
        raise Unreadable("method: name one, such as 'cron.list'", id)
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise Unreadable("params: give a JSON object, or leave it out", id)
    return Request(id, method, params)


def _is_request_id(id: object) -> TypeGuard[RequestId]:
    if isinstance(id, str):
        return len(id) <= _LONGEST_ID
    if isinstance(id, float):
        return isfinite(id)
    return id is None or (isinstance(id, int) and not isinstance(id, bool))


async def result_frame(id: RequestId, result: Mapping[str, Json]) -> str:
    """Return the message with the result of a request.

    >>> import asyncio
    >>> asyncio.run(result_frame(1, {"deleted": True}))
    '{"id":1,"result":{"deleted":true}}'
    """
    return f'{{"id":{compact(id)},"result":{await compact_in_turns(result)}}}'


def error_frame(id: RequestId, error: Exception) -> str:
    """Return the message with the error of a request. Internal errors show no details.

    >>> error_frame(1, InvalidArgument("limit: give a whole number"))
    '{"id":1,"error":{"code":"invalid-argument","message":"limit: give a whole number"}}'
    """
    code, message = (
        (error.code, error.message) if isinstance(error, WakefulError) else ("internal", _INTERNAL)
    )
    return compact({"id": id, "error": {"code": code, "message": message}})


@bounded_cache(8 * MB, lambda frame, event: 2 * text_size(frame))  # many clients get the same events
def event_frame(event: Event) -> str:
    """Return the message of an event."""
    return compact({"event": event.type, "seq": event.seq, "data": serialize_event(event)})


class Params:
    """The parameters of a request. Workspace and agent default to those of the caller."""

    def __init__(self, principal: Principal, given: Mapping[str, object]) -> None:
        self.given = {name: value for name, value in given.items() if value is not None}
        self.workspace = self.name("workspace") or principal.workspace or "default"
        #: the agent of the request
        self.agent = self.name("agentId")
        #: the agent of the request, or the default
        self.agent_or_default = self.agent or principal.agent or "default"

    def only(self, *names: str) -> None:
        """Raise InvalidArgument for unknown parameters."""
        known = (*names, "agentId", "workspace")
        for name in self.given:
            if name not in known:
                raise InvalidArgument(
                    f"{name[:64]}: there is no such parameter; there are {', '.join(known)}"
                )

    def name(self, name: str) -> str | None:
        """Return a name or an id, or None."""
        value = self.given.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            raise InvalidArgument(f"{name}: give a name or an id: letters, digits and hyphens")
        return value

    def job(self) -> str:
        """Return the job of the request: its id or its name."""
        job = self.name("jobId")
        if job is None:
            raise InvalidArgument("jobId: write the id of the job, or its name with the agentId")
        return job

    def flag(self, name: str, default: bool | None = None) -> bool:
        """Return a boolean."""
        value = self.given.get(name, default)
        if not isinstance(value, bool):
            raise InvalidArgument(f"{name}: write true or false")
        return value

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`."""
        value = whole_number(self.given.get(name, default))
        if value is None or not low <= value <= high:
            raise InvalidArgument(f"{name}: give a whole number from {low} to {high}")
        return value

    def object(self, name: str) -> dict[str, object]:
        """Return a JSON object."""
        value = self.given.get(name)
        if not isinstance(value, dict):
            raise InvalidArgument(f"{name}: give a JSON object")
        return value

    def words(self, name: str) -> list[str]:
        """Return a list of text; a single text is a list of one."""
        value = self.given.get(name, [])
        words = [value] if isinstance(value, str) else value
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise InvalidArgument(f"{name}: give a list of text")
        return words
