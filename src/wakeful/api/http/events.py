"""What happens, as it happens: Server-Sent Events, which resume where a broken connection left off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response, StreamingResponse

from wakeful.api.http.dependencies import SECURED, CurrentPrincipal, ServicesDep, current_principal
from wakeful.api.http.responses import responses
from wakeful.document.values import compact
from wakeful.errors import InvalidArgument, WakefulError
from wakeful.service.auth.connection_limits import ConnectionSlot
from wakeful.service.event_stream import TYPES, Event, Subscription, serialize_event

#: Seconds of silence after which a comment says that the connection lives.
HEARTBEAT_S: Final = 15.0
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
#: How long a client waits before it connects again, in ms. No blank line follows it, nor a comment: many
#: clients take one for the end of an event, and fail on an event without data.
_FIRST: Final = b"retry: 1000\n: here\n"
_ALIVE: Final = b": alive\n"

router = APIRouter(prefix="/api/workspaces/{workspace}", tags=["events"], dependencies=SECURED)

_ANSWERS = responses({200: None}, 429)
_ANSWERS[200]["content"] = {"text/event-stream": {"schema": {"type": "string"}}}


@router.get("/events", summary="What happens, as it happens", responses=_ANSWERS)
async def stream_events(
    request: Request,
    workspace: str,
    services: ServicesDep,
    principal: CurrentPrincipal,
    agent: str | None = None,
    job: Annotated[str | None, Query(description="The name of a job, or its id.")] = None,
    types: Annotated[str | None, Query(description=f"Some of {', '.join(TYPES)}, with commas.")] = None,
    after: Annotated[int | None, Query(ge=0, description="Go on after the event of this number.")] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """Each event has a number (`id`), a type (`event`) and what it tells (`data`, JSON).

    `Last-Event-ID`, which browsers send by themselves, or `after` goes on where you stopped: nothing is
    missed and nothing comes twice. An event `reset` says that what you asked for is not kept any more: read
    the lists anew. A comment comes every 15 s when nothing else does.
    """
    number = _number(last_event_id) if last_event_id else after
    place = services.connection_limits.take("events", principal.actor)
    try:
        listener = await services.events.subscribe(
            principal,
            workspace,
            agent=agent,
            job=job,
            types=[kind.strip() for kind in types.split(",")] if types else (),
            after=number,
        )
    except BaseException:
        place.leave()
        raise
    # A client without a number needs one before its first event: otherwise it would miss what happens
    # before that event if the connection breaks. This is the only block without data.
    first = _FIRST if number is not None else _FIRST + f"id: {listener.seen}\n\n".encode()
    return StreamingResponse(
        _stream(request, listener, place, first), media_type="text/event-stream", headers=_HEADERS
    )


def _number(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > 18:
        raise InvalidArgument("Last-Event-ID: send the id of the last event that you have seen")
    return int(text)


async def _stream(
    request: Request, listener: Subscription, place: ConnectionSlot, first: bytes
) -> AsyncIterator[bytes]:
    """The events, until the client goes, its key is not good any more, or the server stops."""
    loop = asyncio.get_running_loop()
    checked = loop.time()
    try:
        yield first
        while True:
            try:
                found = await listener.next(HEARTBEAT_S)
                if loop.time() - checked >= HEARTBEAT_S:
                    await current_principal(request)
                    checked = loop.time()
            except WakefulError:
                return  # where it was the database, the client comes again and goes on where it stopped
            if found is None:
                return
            yield b"".join(map(_told, found)) or _ALIVE
    finally:
        listener.close()
        place.leave()


def _told(event: Event) -> bytes:
    return f"id: {event.seq}\nevent: {event.type}\ndata: {compact(serialize_event(event))}\n\n".encode()
