"""The client of MCP servers, against a server that sends exact bytes."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.raw_server import RawConnection, raw_server
from tests.support.waiting import PATIENCE
from wakeful.launch.mcp_client import McpClient, McpError

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_EVENTS = (
    ": a comment\n\nid: 0\ndata:\n\n"
    'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/message"}\n\n'
    'data: {"jsonrpc":"2.0","id":1,\ndata: "result":"é"}\n\n'
)


async def _ask(text: str, *, size: int, close: bool = False) -> object:
    async def talk(connection: RawConnection) -> None:
        await connection.request()
        body = text.encode()
        parts = [body[at : at + size] for at in range(0, len(body), size)]
        await connection.send(_HEAD, *(b"%x\r\n%s\r\n" % (len(part), part) for part in parts))
        if not close:
            await connection.until_closed()

    async with raw_server(talk) as server, asyncio.timeout(PATIENCE):
        client = McpClient()
        try:
            return await client.request(f"http://127.0.0.1:{server.port}/mcp", None, "events/poll", {})
        finally:
            await client.close()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [1, 1_000])
@pytest.mark.parametrize("close", [False, True], ids=["it stays open", "it is cut off"])
async def test_an_answer_on_a_stream_is_read_when_it_arrives(end: str, size: int, close: bool):
    assert await _ask(_EVENTS.replace("\n", end), size=size, close=close) == "é"


async def test_an_event_that_is_cut_off_is_no_answer():
    with pytest.raises(McpError, match="cut off"):
        await _ask(_EVENTS[:-1], size=1_000, close=True)
