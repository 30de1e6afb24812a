"""What goes over the wire: requests that come in, answers, errors and events that go out; all JSON."""

from __future__ import annotations

from math import isfinite
from typing import Final, NamedTuple, TypeGuard

from wakeful.api.http.dependencies import read_json
from wakeful.document.values import compact
from wakeful.errors import InvalidArgument, WakefulError
from wakeful.job import Json
from wakeful.service.event_stream import Event, serialize_event

#: The number or text by which a client knows an answer again; none where it gave none.
RequestId = str | int | float | None
_LONGEST_ID: Final = 128
_UNTOLD: Final = "something went wrong here, not with the request; the log of the server has it"


class Request(NamedTuple):
    """One request."""

    id: RequestId
    method: str
    params: dict[str, object]


class Unreadable(InvalidArgument):
    """A message that is no request; `id` is its own, as far as it could be read."""

    def __init__(self, message: str, id: RequestId = None) -> None:
        super().__init__(message)
        self.id = id


def read_request(text: str) -> Request:
    """The request that a message is, or Unreadable.

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
    if not _knowable(id):
        raise Unreadable(f"id: give a number, or text of at most {_LONGEST_ID} characters")
    if not isinstance(method, str) or not method:
        raise Unreadable("method: name one, such as 'cron.list'", id)
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise Unreadable("params: give a JSON object, or leave it out", id)
    return Request(id, method, params)


def _knowable(id: object) -> TypeGuard[RequestId]:
    if isinstance(id, str):
        return len(id) <= _LONGEST_ID
    if isinstance(id, float):
        return isfinite(id)
    return id is None or (isinstance(id, int) and not isinstance(id, bool))


def answer(id: RequestId, result: Json) -> str:
    """The answer to a request.

    >>> answer(1, {"deleted": True})
    '{"id":1,"result":{"deleted":true}}'
    """
    return compact({"id": id, "result": result})


def refusal(id: RequestId, error: Exception) -> str:
    """The answer to a request that is refused, or that something of our own went wrong with.

    >>> refusal(1, InvalidArgument("limit: give a whole number"))
    '{"id":1,"error":{"code":"invalid-argument","message":"limit: give a whole number"}}'
    """
    told = (error.code, error.message) if isinstance(error, WakefulError) else ("internal", _UNTOLD)
    return compact({"id": id, "error": {"code": told[0], "message": told[1]}})


def event(happened: Event) -> str:
    """Something that happened."""
    return compact({"event": happened.type, "seq": happened.seq, "data": serialize_event(happened)})
