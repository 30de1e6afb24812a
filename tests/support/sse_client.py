"""A client of the event stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp

from tests.support.api_client import HOME, ApiClient
from tests.support.waiting import PATIENCE


class ReceivedEvent(NamedTuple):
    """One event."""

    seq: int
    type: str
    data: dict[str, Any]


class Stream:
    """The events of one connection."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next_event(self) -> ReceivedEvent | None:
        """Return the next event; None at the end of the stream."""
        fields: dict[str, str] = {}
        async for line in self._response.content:
            text = line.decode().rstrip("\n")
            if text.startswith((":", "retry:")):
                continue
            if not text:
                if "data" in fields:
                    return ReceivedEvent(int(fields["id"]), fields["event"], json.loads(fields["data"]))
                continue
            name, _, value = text.partition(": ")
            fields[name] = value
        return None

    async def until(self, enough: Callable[[ReceivedEvent], bool]) -> list[ReceivedEvent]:
        """Return all events up to the first that matches."""
        received: list[ReceivedEvent] = []
        async with asyncio.timeout(PATIENCE):
            while event := await self.next_event():
                received.append(event)
                if enough(event):
                    return received
        raise AssertionError(f"the stream ended after {received}")


@asynccontextmanager
async def listening(
    caller: ApiClient, workspace: str = HOME, last_event_id: int | None = None, **query: str | int
) -> AsyncIterator[Stream]:
    """Open the event stream with the key of this client."""
    headers = {"Authorization": f"Bearer {caller.key}"}
    if last_event_id is not None:
        headers["Last-Event-ID"] = str(last_event_id)
    async with caller.session.get(
        f"{caller.url}{workspace}/events", headers=headers, params=query
    ) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        yield Stream(response)
