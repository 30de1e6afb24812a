"""The events of the MCP server: `events/list`, `events/subscribe`, `events/unsubscribe` and `events/poll`.

Experimental. They are part of the server at `/mcp` only: one on stdin and stdout cannot verify callbacks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, cast

from mcp.server.context import CallNext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, RequestParams

from wakeful.api.mcp.server import Context
from wakeful.errors import WakefulError
from wakeful.launch.event_callback import CallbackRefused
from wakeful.service.agents.subscriptions import TTL_MS, SubscriptionRequest, Subscriptions
from wakeful.service.auth.access import Principal
from wakeful.signal.event_catalog import EVENTS
from wakeful.signal.mcp_events import (
    CALLBACK_ERROR,
    CAPABILITY,
    EXHAUSTED,
    FORBIDDEN,
    LIST,
    NOT_FOUND,
    POLL,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Grant,
    PolledEvents,
)
from wakeful.values.json_value import Json

_CAPABILITIES: Final = ("server/discover", "initialize")
_CODES: Final = {
    "not-found": NOT_FOUND,
    "permission-denied": FORBIDDEN,
    "resource-exhausted": EXHAUSTED,
    "invalid-argument": INVALID_PARAMS,
    "failed-precondition": INVALID_PARAMS,
}

Answer = dict[str, Json]


class EventCaller(NamedTuple):
    """The caller of a request about events."""

    subscriptions: Subscriptions
    principal: Principal
    workspace: str
    #: None: the request names none
    agent: str | None


def add_events(server: Server[Any], caller_of: Callable[[Context], EventCaller]) -> None:
    """Add the methods of events to a server."""

    async def list_events(ctx: Context, params: RequestParams) -> Answer:
        return {"events": [event.to_json() for event in EVENTS.values()]}

    server.add_request_handler(LIST, RequestParams, list_events)
    for method in (SUBSCRIBE, UNSUBSCRIBE, POLL):
        server.add_request_handler(method, RequestParams, _handler(method, caller_of))
    server.middleware.append(_advertise)


def _handler(
    method: str, caller_of: Callable[[Context], EventCaller]
) -> Callable[[Context, RequestParams], Awaitable[Answer]]:
    """Return the handler of a method. It raises the errors of the protocol."""

    async def handle(ctx: Context, params: RequestParams) -> Answer:
        caller = caller_of(ctx)
        events = caller.subscriptions
        methods: dict[str, Callable[..., Awaitable[Grant | PolledEvents | None]]]
        methods = {SUBSCRIBE: events.subscribe, UNSUBSCRIBE: events.unsubscribe, POLL: events.poll}
        try:
            found = await methods[method](caller.principal, caller.workspace, caller.agent, _request(ctx))
        except CallbackRefused as error:
            raise MCPError(CALLBACK_ERROR, error.message, {"reason": error.reason}) from error
        except WakefulError as error:
            code = _CODES.get(error.code, INTERNAL_ERROR)
            raise MCPError(code, error.message, {"code": error.code}) from error
        return {} if found is None else found.to_json()

    return handle


async def _advertise(ctx: Context, call_next: CallNext) -> Any:
    """Add the capability: the library returns only those that it knows."""
    result = await call_next(ctx)
    found = result.get("capabilities") if ctx.method in _CAPABILITIES and isinstance(result, dict) else None
    if isinstance(found, dict):
        found[CAPABILITY] = {}
    return result


def _request(ctx: Context) -> SubscriptionRequest:
    params = cast(Mapping[str, object], ctx.params or {})
    return SubscriptionRequest(
        params.get("name"),
        params.get("arguments"),
        params.get("delivery"),
        params.get("ttlMs", TTL_MS),  # null: no end
        params.get("cursor"),
        params.get("maxAgeMs"),
        params.get("maxEvents"),
    )
