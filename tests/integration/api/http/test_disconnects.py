"""A client that disconnects before its response causes one debug line in the log and no traceback."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.integration.conftest import on_one_store
from tests.support.api_client import HOME, JOBS, ApiClient
from tests.support.waiting import eventually


async def _connected(ask: ApiClient, path: str, body: bytes, length: int) -> asyncio.StreamWriter:
    """Open a connection and send `body` as the start of a request body of `length` bytes."""
    parts = urlsplit(ask.url)
    _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {parts.netloc}\r\nauthorization: Bearer {ask.key}\r\n"
        f"content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
    return writer


def _lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return the log records of requests."""
    return [
        record
        for record in caplog.records
        if record.name.startswith(("wakeful.http", "uvicorn", "asyncio")) and "path=" in record.getMessage()
    ]


@on_one_store
@pytest.mark.parametrize(
    ("path", "body", "length"),
    [
        (JOBS, b'{"name": "a", ', 1000),
        (f"{HOME}/runs/claim", json.dumps({"worker": "w1", "waitMs": 60_000}).encode(), None),
    ],
    ids=["upload", "long poll"],
)
async def test_a_disconnect_logs_one_debug_line(
    ask: ApiClient,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    body: bytes,
    length: int | None,
) -> None:
    waiting = asyncio.Event()
    claimable_ms = ask.app.store.claimable_ms

    async def watched(*given: Any) -> list[int | None]:
        waiting.set()
        return await claimable_ms(*given)

    monkeypatch.setattr(ask.app.store, "claimable_ms", watched)
    await ask("GET", "/jobs")
    caplog.set_level(logging.DEBUG)
    caplog.clear()
    writer = await _connected(ask, path, body, length or len(body))
    if length is None:
        await waiting.wait()
    writer.close()
    await eventually(lambda: _lines(caplog))
    assert (await ask("GET", "/jobs")).status == 200
    first, after = _lines(caplog)
    assert (first.levelno, after.levelno) == (logging.DEBUG, logging.INFO)
    assert "status=disconnected" in first.getMessage()
    assert not [record for record in caplog.records if record.levelno > logging.INFO or record.exc_info]
