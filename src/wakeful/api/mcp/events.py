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
from wakeful.errors import NotFound, PermissionDenied, ResourceExhausted, WakefulError
from wakeful.launch.event_callback import CallbackRefused
from wakeful.service.agents.subscriptions import TTL_MS, SubscriptionRequest, Subscriptions
from wakeful.service.auth.access import Principal
from wakeful.service.row_codec import instant
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
)
from wakeful.values.json_value import Json

_CAPABILITIES: Final = ("server/discover", "initialize")

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

    async def subscribe(ctx: Context, params: RequestParams) -> Answer:
        caller, request = caller_of(ctx), _request(ctx)
        found = await caller.subscriptions.subscribe(
            caller.principal, caller.workspace, caller.agent, request
        )
        return {
            "id": found.row.id,
            "refreshBefore": instant(found.row.expires_ms),
            "cursor": found.cursor,
            "truncated": found.truncated,
        }

    async def unsubscribe(ctx: Context, params: RequestParams) -> Answer:
        caller, request = caller_of(ctx), _request(ctx)
        await caller.subscriptions.unsubscribe(caller.principal, caller.workspace, caller.agent, request)
        return {}

    async def poll(ctx: Context, params: RequestParams) -> Answer:
        caller, request = caller_of(ctx), _request(ctx)
        found = await caller.subscriptions.poll(caller.principal, caller.workspace, caller.agent, request)
        return found.to_json()

    for method, handler in (
        (LIST, list_events),
        (SUBSCRIBE, subscribe),
        (UNSUBSCRIBE, unsubscribe),
        (POLL, poll),
    ):
        server.add_request_handler(method, RequestParams, _with_errors(handler))
    server.middleware.append(_advertise)


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


def _with_errors(
    handler: Callable[[Context, RequestParams], Awaitable[Answer]],
) -> Callable[[Context, RequestParams], Awaitable[Answer]]:
    """Return a handler that raises the errors of the protocol."""

    async def call(ctx: Context, params: RequestParams) -> Answer:
        try:
            return await handler(ctx, params)
        except CallbackRefused as error:
            raise MCPError(CALLBACK_ERROR, error.message, {"reason": error.reason}) from error
        except WakefulError as error:
            raise MCPError(_code(error), error.message, {"code": error.code}) from error

    return call


def _code(error: WakefulError) -> int:
    if isinstance(error, NotFound):
        return NOT_FOUND
    if isinstance(error, PermissionDenied):
        return FORBIDDEN
    if isinstance(error, ResourceExhausted):
        return EXHAUSTED
    return INVALID_PARAMS if error.code in ("invalid-argument", "failed-precondition") else INTERNAL_ERROR
