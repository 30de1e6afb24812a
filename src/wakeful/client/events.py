"""The event stream, which resumes where a broken connection stopped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Final, cast

from wakeful.client.connection import Connection, Query
from wakeful.client.types import EventShape
from wakeful.errors import ResourceExhausted, Unavailable, WakefulError

#: Seconds before the first reconnection, and at most between two.
_FIRST_WAIT: Final = 0.1
_LONGEST_WAIT: Final = 5.0


async def events(
    connection: Connection,
    path: str,
    query: Query,
    after: int | None,
    patience: float,
    on_connection: Callable[[bool], None] = lambda connected: None,
) -> AsyncGenerator[EventShape, None]:
    """Yield the events after that number, over as many connections as necessary.

    Reconnect for at most `patience` seconds to a server that was reached before; after a 429 not earlier than
    its `Retry-After` says. `on_connection` is called with True when a connection is established, and with
    False when it is lost.
    """
    loop = asyncio.get_running_loop()
    seen, wait = after, _FIRST_WAIT
    lost_at: float | None = None
    reached = connected = False

    async def note_reached(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        nonlocal reached
        async for chunk in chunks:
            reached = True
            yield chunk

    ended: WakefulError
    while True:
        opened_at, asked = loop.time(), 0
        try:
            async with connection.stream(path, query={**query, "after": seen}) as chunks:
                connected = True
                on_connection(True)
                async for number, event in read_events(note_reached(chunks)):
                    lost_at, wait = None, _FIRST_WAIT
                    seen = number
                    if event is not None:
                        yield event
            ended = Unavailable(f"{connection.url} closed the stream of events; check the address")
        except Unavailable as error:
            ended = error
        except ResourceExhausted as error:
            ended, asked = error, error.retry_after_s or 0
        now = loop.time()
        if connected:
            connected = False
            on_connection(False)
            if now - opened_at >= _LONGEST_WAIT:  # less: a proxy may respond and close at once, for ever
                lost_at, wait = None, _FIRST_WAIT
        lost_at = now if lost_at is None else lost_at
        if not reached or now + asked - lost_at > patience:
            raise ended
        await asyncio.sleep(max(wait, asked))
        wait = min(wait * 2, _LONGEST_WAIT)


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[tuple[int, EventShape | None]]:
    """Yield the events of a stream, each with its number; a number alone is where the stream starts.

    Raises Unavailable for what is no event.
    """
    rest = b""
    number, data = "", ""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            name, _, value = line.decode(errors="replace").partition(":")
            if name == "id":
                number = value.strip()
            elif name == "data":
                data = value.strip()
            elif not name and not value and number:
                yield _read(number, data)
                number, data = "", ""


def _read(number: str, data: str) -> tuple[int, EventShape | None]:
    try:
        event = json.loads(data) if data else None
        if not isinstance(event, dict | None):
            raise ValueError("it is not an object")
        return int(number), cast(EventShape | None, event)
    except (ValueError, RecursionError) as error:
        raise Unavailable(f"the server sent an event that cannot be read: {error}") from error
