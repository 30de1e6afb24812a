"""What happens on a server, as it happens: a stream that goes on where a broken connection stopped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final, cast

from wakeful.client.connection import Connection, Query, pause
from wakeful.client.types import EventShape
from wakeful.errors import Unavailable

#: Seconds before the first try to come back, and between two of them at most.
_FIRST_WAIT: Final = 0.1
_LONGEST_WAIT: Final = 5.0


async def events(
    connection: Connection, path: str, query: Query, after: int | None, patience: float
) -> AsyncGenerator[EventShape, None]:
    """The events from that number on, over as many connections as it takes.

    A server that was there and is gone is waited for, `patience` seconds at most; what it refuses is raised.
    """
    loop = asyncio.get_running_loop()
    seen, wait = after, _FIRST_WAIT
    gone: float | None = None
    reached = False
    while True:
        try:
            async with connection.stream(path, query={**query, "after": seen}) as chunks:
                reached, gone, wait = True, None, _FIRST_WAIT
                async for number, event in read_events(chunks):
                    seen = number
                    if event is not None:
                        yield event
        except Unavailable:
            if not reached or (gone is not None and loop.time() - gone > patience):
                raise
        if gone is None:
            gone = loop.time()
        await pause(wait)
        wait = min(wait * 2, _LONGEST_WAIT)


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[tuple[int, EventShape | None]]:
    """The events of a stream, each with its number; a number alone says where the stream begins."""
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
