"""A client of an MCP server for requests that need no session (protocol 2026-07-28, over HTTP).

The operator sets the address of the server, so any address is allowed. Redirects are not followed: they could
send the credentials to another host.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from itertools import count
from typing import Final

from yarl import URL

from wakeful.launch.address_guard import AddressGuard
from wakeful.launch.http.client import HttpClient
from wakeful.launch.http.messages import HttpError
from wakeful.values.json_value import Json, compact, json_from_stored
from wakeful.values.package import VERSION
from wakeful.values.stored_text import clean_text

PROTOCOL: Final = "2026-07-28"
TIMEOUT_S: Final = 30.0
#: The most bytes of a response: a page of events.
MAX_RESPONSE: Final = 16 * 1024 * 1024
_END_OF_EVENT: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE: Final = re.compile(r"\r\n|\n|\r")
_PREFIX: Final = "io.modelcontextprotocol/"
_META: Final[dict[str, Json]] = {
    f"{_PREFIX}protocolVersion": PROTOCOL,
    f"{_PREFIX}clientInfo": {"name": "wakeful", "version": VERSION},
    f"{_PREFIX}clientCapabilities": {},
}


class McpError(Exception):
    """A request to an MCP server failed. `rpc_code` is that of JSON-RPC, `status` that of HTTP."""

    def __init__(self, message: str, rpc_code: int | None = None, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.rpc_code = rpc_code
        self.status = status


class McpTimeout(McpError):
    """A server did not answer in time."""


class McpClient:
    """Sends requests to MCP servers."""

    def __init__(self, connections: int = 16) -> None:
        self._http = HttpClient(AddressGuard(allow_private=True), connections=connections, per_host=8)
        self._ids = count(1)

    async def request(self, url: str, key: str | None, method: str, params: Mapping[str, Json]) -> Json:
        """Return the result of a request. McpError: there is none."""
        number = next(self._ids)
        message: dict[str, Json] = {
            "jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": _META},
        }  # fmt: skip
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": PROTOCOL,
            "mcp-method": method,
            "user-agent": f"wakeful/{VERSION}",
            **({"authorization": f"Bearer {key}"} if key else {}),
        }
        events = _Events(number)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                response = await self._http.request(
                    "POST", URL(url), headers, compact(message).encode(), MAX_RESPONSE, until=events.read
                )
        except TimeoutError:
            raise McpTimeout(f"{method}: the server did not answer within {TIMEOUT_S:.0f} s") from None
        except (HttpError, OSError, ValueError) as error:
            raise McpError(f"{method}: {str(error) or type(error).__name__}") from error
        events.read(response.body)
        answer = events.answer or _message(response.body.decode("utf-8", "replace"), number) or {}
        refusal = answer.get("error")
        if isinstance(refusal, dict):
            code = refusal.get("code")
            text = clean_text(str(refusal.get("message") or "the server refused the request")[:500])
            raise McpError(f"{method}: {text}", code if type(code) is int else None, response.status)
        if not 200 <= response.status < 300:
            raise McpError(f"{method}: the server answered HTTP {response.status}", status=response.status)
        if "result" not in answer:
            raise McpError(f"{method}: the server did not answer in the form of JSON-RPC, or was cut off")
        return answer["result"]

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()


class _Events:
    """The events of a stream. It may stay open after the answer, so they are read as they arrive.

    No line of JSON begins with `data:`, so a body that is the answer itself has no events.
    """

    def __init__(self, number: int) -> None:
        #: the message that answers the request
        self.answer: dict[str, Json] | None = None
        self._number = number
        #: where the first event begins that is not complete, and up to where its end was searched for
        self._begin = self._searched = 0

    def read(self, body: bytes | bytearray) -> bool:
        """Read the events that are complete now, and return whether one is the answer."""
        while self.answer is None:
            end = _END_OF_EVENT.search(body, max(self._begin, self._searched - 3))
            if end is None:
                self._searched = len(body)
                return False
            lines = _LINE.split(body[self._begin : end.start()].decode("utf-8", "replace"))
            data = (line[5:].removeprefix(" ") for line in lines if line.startswith("data:"))
            self._begin = self._searched = end.end()
            self.answer = _message("\n".join(data), self._number)
        return True


def _message(text: str, number: int) -> dict[str, Json] | None:
    try:
        value = json_from_stored(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.get("id") not in (number, None):
        return None
    return value if "result" in value or "error" in value else None
