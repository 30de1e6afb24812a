"""A client of the RPC at /ws."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from tests.support.api_client import ApiClient
from tests.support.waiting import PATIENCE


class Refused(Exception):
    """An error response."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Caller:
    """One connection."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self._number = 0
        self._events: deque[dict[str, Any]] = deque()

    async def __call__(self, method: str, /, **params: object) -> Any:
        """Call a method and return its result. Raise Refused for an error."""
        self._number += 1
        reply = await self.say({"id": self._number, "method": method, "params": params})
        assert reply.keys() in ({"id", "result"}, {"id", "error"}), reply
        assert reply["id"] == self._number
        if "error" in reply:
            assert reply["error"].keys() == {"code", "message"}
            raise Refused(**reply["error"])
        return reply["result"]

    async def say(self, message: object) -> dict[str, Any]:
        """Send a message (text unchanged) and return the response."""
        await self.socket.send(message if isinstance(message, str | bytes) else json.dumps(message))
        async with asyncio.timeout(PATIENCE):
            while "event" in (received := json.loads(await self.socket.recv())):
                self._events.append(received)
        return dict(received)

    async def next_event(self) -> dict[str, Any]:
        """Return the next event."""
        if self._events:
            return self._events.popleft()
        async with asyncio.timeout(PATIENCE):
            received = json.loads(await self.socket.recv())
        assert received.keys() == {"event", "seq", "data"}, received
        return dict(received)

    async def until(self, enough: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """Return all events up to the first that matches."""
        received = [await self.next_event()]
        while not enough(received[-1]):
            received.append(await self.next_event())
        return received

    async def closed(self) -> tuple[int | None, str | None]:
        """Wait until the server closes the connection; return the code and reason."""
        async with asyncio.timeout(PATIENCE):
            await self.socket.wait_closed()
        return self.socket.close_code, self.socket.close_reason


@asynccontextmanager
async def connected(
    url: str, key: str | None = None, headers: Mapping[str, str] | None = None, **given: Any
) -> AsyncIterator[Caller]:
    """Open a connection, with the key in a header if there is one."""
    headers = {**(headers or {}), **({} if key is None else {"Authorization": f"Bearer {key}"})}
    address = url.replace("http", "ws", 1) + "/ws"
    async with connect(address, additional_headers=headers, compression=None, proxy=None, **given) as socket:
        yield Caller(socket)


@asynccontextmanager
async def calling(api_client: ApiClient, **given: Any) -> AsyncIterator[Caller]:
    """Open a connection with the key of this client."""
    async with connected(api_client.url, api_client.key, **given) as caller:
        yield caller
