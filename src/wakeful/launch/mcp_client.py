"""A client of an MCP server for requests that need no session (protocol 2026-07-28, over HTTP).

The operator sets the address of the server, so any address is allowed. Redirects are not followed: they could
send the credentials to another host.
"""

from __future__ import annotations

import asyncio
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
        try:
            async with asyncio.timeout(TIMEOUT_S):
                response = await self._http.request(
                    "POST", URL(url), headers, compact(message).encode(), MAX_RESPONSE
                )
        except TimeoutError:
            raise McpTimeout(f"{method}: the server did not answer within {TIMEOUT_S:.0f} s") from None
        except (HttpError, OSError, ValueError) as error:
            raise McpError(f"{method}: {str(error) or type(error).__name__}") from error
        answer = _answer(response.header(b"content-type") or "", response.body, number)
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


def _answer(content_type: str, body: bytes, number: int) -> dict[str, Json]:
    """Return the response message of a body: JSON, or the event of a stream that answers this request."""
    text = body.decode("utf-8", "replace")
    if "text/event-stream" not in content_type:
        return _message(text, number) or {}
    for block in text.replace("\r\n", "\n").split("\n\n")[:-1]:  # the last one is empty, or was cut off
        lines = (line[5:].removeprefix(" ") for line in block.split("\n") if line.startswith("data:"))
        found = _message("\n".join(lines), number)
        if found is not None:
            return found
    return {}


def _message(text: str, number: int) -> dict[str, Json] | None:
    try:
        value = json_from_stored(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.get("id") not in (number, None):
        return None
    return value if "result" in value or "error" in value else None
