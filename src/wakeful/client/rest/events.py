"""The event stream, which resumes where a broken connection stopped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Final, cast

from wakeful.client.connection import Connection, Query
from wakeful.client.types import EventShape
from wakeful.errors import Unavailable

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

    Reconnect for at most `patience` seconds to a server that was reached before. `on_connection` is called
    with True when a connection is established, and with False when it is lost.
    """
    loop = asyncio.get_running_loop()
    seen, wait = after, _FIRST_WAIT
    lost_at: float | None = None
    reached = False
    while True:
        try:
            async with connection.stream(path, query={**query, "after": seen}) as chunks:
                reached, lost_at, wait = True, None, _FIRST_WAIT
                on_connection(True)
                async for number, event in read_events(chunks):
                    seen = number
                    if event is not None:
                        yield event
        except Unavailable:
            if not reached or (lost_at is not None and loop.time() - lost_at > patience):
                raise
        if lost_at is None:
            lost_at = loop.time()
            on_connection(False)
        await asyncio.sleep(wait)
        wait = min(wait * 2, _LONGEST_WAIT)


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[tuple[int, EventShape | None]]:
    """Yield the events of a stream, each with its number; a number alone is where the stream starts."""
    rest = b""
    number, data = "", ""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            name, _, value = line.decode().partition(":")
            if name == "id":
                number = value.strip()
            elif name == "data":
                data = value.strip()
            elif not name and not value and number:
                yield int(number), cast(EventShape, json.loads(data)) if data else None
                number, data = "", ""
