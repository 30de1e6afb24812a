"""An agent that calls the tool `cron` with the official client, over HTTP or over stdin and stdout."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from tests.support import prefork
from tests.support.api_client import ApiClient


class Agent:
    """A client of the tool."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def raw(self, **arguments: object) -> CallToolResult:
        return await self.client.call_tool("cron", arguments)

    async def __call__(self, action: str, **arguments: object) -> dict[str, Any]:
        """Call the tool, which must succeed; return the structured result."""
        result = await self.raw(action=action, **arguments)
        assert not result.is_error, result
        return {**result.structured_content, "text": text_of(result)}

    async def refused(self, **arguments: object) -> str:
        """Call the tool, which must refuse; return the error message."""
        result = await self.raw(**arguments)
        assert result.is_error, result
        error = result.structured_content["error"]
        assert text_of(result).startswith(error["message"])
        return f"{error['code']}: {error['message']}"


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


@asynccontextmanager
async def over_http(
    caller: ApiClient, query: str = "", run_id: str = "", **given: Any
) -> AsyncIterator[Agent]:
    headers = {"Authorization": f"Bearer {caller.key}", "x-wakeful-run-id": run_id}
    async with httpx2.AsyncClient(headers=headers) as http:
        transport = streamable_http_client(f"{caller.url}/mcp{query}", http_client=http)
        async with Client(transport, **given) as client:
            yield Agent(client)


@asynccontextmanager
async def over_stdio(
    url: str, key: str | None, home: Path, *options: str, run_id: str = ""
) -> AsyncIterator[Agent]:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "WAKEFUL_URL": url,
        "WAKEFUL_KEY": key or "",
        "WAKEFUL_RUN_ID": run_id,
    }
    command, *arguments = prefork.command("wakeful", "mcp", *options)
    parameters = StdioServerParameters(command=command, args=arguments, env=environment, cwd=str(home))
    async with Client(parameters) as client:
        yield Agent(client)
