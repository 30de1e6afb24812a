"""The event stream as Server-Sent Events, which a client can resume after a disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from wakeful.api.http.dependencies import (
    SECURED,
    WorkspaceDep,
    current_principal,
    open_use,
)
from wakeful.api.http.responses import direct_write_of, responses
from wakeful.errors import InvalidArgument, WakefulError
from wakeful.service.auth.connections import ConnectionSlot, OpenUse
from wakeful.service.coalesced_events import INTERVALS_MS, CoalescedSubscription
from wakeful.service.event_stream import TYPES, Event, Subscription, serialize_event
from wakeful.values.bounded_cache import MB, bounded_cache
from wakeful.values.json_value import compact
from wakeful.values.stored_text import clean_text

#: Seconds without an event after which a comment keeps the connection alive.
HEARTBEAT_S: Final = 15.0
#: Seconds after which the key of a client is checked again before it gets an event.
KEY_S: Final = 1.0
#: Seconds after which the key of a client with summaries is checked again: there may be many clients.
CHECK_S: Final = 30.0
#: A part of a stream is sent once it has so many bytes.
_PART: Final = 65_536
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
#: The reconnect delay of the client, in ms. No blank line follows it: many clients take one for the end of an
#: event, and fail on an event without data.
_FIRST: Final = b"retry: 1000\n: here\n"
_ALIVE: Final = b": alive\n"

router = APIRouter(prefix="/api/workspaces/{workspace}", tags=["events"], dependencies=SECURED)

_RESPONSES = responses({200: None}, 429)
_RESPONSES[200]["content"] = {"text/event-stream": {"schema": {"type": "string"}}}


@router.get("/events", summary="Stream events", responses=_RESPONSES)
async def stream_events(
    about: WorkspaceDep,
    agent: str | None = None,
    job: Annotated[str | None, Query(description="The name of a job, or its id.")] = None,
    types: Annotated[str | None, Query(description=f"Some of {', '.join(TYPES)}, with commas.")] = None,
    after: Annotated[int | None, Query(ge=0, description="Resume after the event of this number.")] = None,
    coalesce_ms: Annotated[
        int | None,
        Query(
            alias="coalesceMs",
            ge=INTERVALS_MS[0],
            le=INTERVALS_MS[-1],
            description="Send at most one event `changes` in this time, with a summary of all changes.",
        ),
    ] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """Each event has a number (`id`), a type (`event`) and JSON (`data`).

    `Last-Event-ID`, which browsers send on a reconnect, or `after` resumes the stream: no event is missed or
    repeated. An event `reset` means that the requested events are no longer stored: read the lists again.
    Without events, a comment is sent every 15 s. With `coalesceMs`, summaries replace the single events.
    """
    number = _number(last_event_id) if last_event_id else after
    if coalesce_ms is not None and (job or types):
        raise InvalidArgument("coalesceMs: a summary has all changes; remove 'job' and 'types'")
    slot = about.services.auth.connection_limits.acquire(
        "events", about.principal.actor, about.principal.workspace
    )
    try:
        if coalesce_ms is not None:
            summaries = await about.services.live.subscribe(
                *about.caller, coalesce_ms, agent=agent, after=number
            )
            return await _event_response(
                about.request, _stream_summaries(about.request, summaries), summaries, slot
            )
        listener = await about.services.events.subscribe(
            *about.caller,
            agent=agent,
            job=job,
            types=[kind.strip() for kind in types.split(",")] if types else (),
            after=number,
        )
    except BaseException:
        slot.release()
        raise
    # A client needs a number before its first event: otherwise it would miss the events before that one if
    # the connection breaks. This is the only block without data.
    first = _FIRST if number is not None else _FIRST + f"id: {listener.seen}\n\n".encode()
    return await _event_response(about.request, _stream(about.request, listener, first), listener, slot)


async def _event_response(
    request: Request,
    parts: AsyncIterator[bytes],
    subscription: Subscription | CoalescedSubscription,
    slot: ConnectionSlot,
) -> Response:
    """Return the stream, which ends with the key of its client."""
    try:
        use = await open_use(request, subscription.end)
    except BaseException:
        subscription.close()
        slot.release()
        raise
    return _EventResponse(parts, subscription, slot, use)


class _EventResponse(StreamingResponse):
    """A stream of events. Its end closes the subscription and frees the slot, also if it never began."""

    def __init__(
        self,
        parts: AsyncIterator[bytes],
        subscription: Subscription | CoalescedSubscription,
        slot: ConnectionSlot,
        use: OpenUse,
    ) -> None:
        super().__init__(parts, media_type="text/event-stream", headers=_HEADERS)
        self._subscription = subscription
        self._slot = slot
        self._use = use

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._subscription.close()
            self._slot.release()
            self._use.close()


def _number(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > 18:
        raise InvalidArgument("Last-Event-ID: send the id of the last event that you have seen")
    return int(text)


async def _stream(request: Request, listener: Subscription, first: bytes) -> AsyncIterator[bytes]:
    """Yield the events until the client disconnects, its key becomes invalid, or the server stops."""
    loop = asyncio.get_running_loop()
    checked = loop.time()
    yield first
    try:
        while (found := await listener.next(HEARTBEAT_S)) is not None:
            for part in _parts(found) if found else (_ALIVE,):
                if loop.time() - checked >= KEY_S:
                    await current_principal(request)
                    checked = loop.time()
                yield part
    except WakefulError:
        return  # the client reconnects and resumes where it stopped


def _parts(events: Iterable[Event]) -> Iterator[bytes]:
    """Yield events as they are sent, several together; a large part would wait in memory for its client."""
    part: list[bytes] = []
    size = 0
    for event in events:
        part.append(frame := _frame(event))
        size += len(frame)
        if size >= _PART:
            yield b"".join(part)
            part, size = [], 0
    if part:
        yield b"".join(part)


async def _stream_summaries(request: Request, summaries: CoalescedSubscription) -> AsyncIterator[bytes]:
    """Yield the summaries until the client disconnects, its key becomes invalid, or the server stops.

    Most summaries are written directly. Here are those of a client that is slow, or whose key is checked.
    """
    loop = asyncio.get_running_loop()
    checked = loop.time()
    direct = direct_write_of(request.scope)
    try:
        yield _FIRST
        if direct is not None:
            summaries.write = lambda frame: loop.time() - checked < CHECK_S and direct(frame)
        while (frame := await summaries.next()) is not None:
            if loop.time() - checked >= CHECK_S:
                await current_principal(request)
                checked = loop.time()
            yield frame
    except WakefulError:
        return  # the client reconnects and resumes where it stopped


@bounded_cache(8 * MB, lambda frame, event: 2 * len(frame))  # many clients get the same events
def _frame(event: Event) -> bytes:
    data = clean_text(compact(serialize_event(event)))
    return f"id: {event.seq}\nevent: {event.type}\ndata: {data}\n\n".encode()
