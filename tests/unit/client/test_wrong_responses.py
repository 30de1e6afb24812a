"""The client against a server, or a proxy, that answers something else: it returns, or raises its error."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import aiohttp
import pytest

from tests.simulation.virtual_loop import run_virtually
from tests.support.raw_server import RawConnection, raw_server
from tests.support.waiting import PATIENCE
from wakeful import AsyncClient, Unavailable
from wakeful.api.mcp.stdio import RemoteScheduler
from wakeful.client.connection import Connection
from wakeful.client.events import events, read_events
from wakeful.client.rest import RestClient
from wakeful.errors import ResourceExhausted, WakefulError
from wakeful.service.cron_tool.tool import call

_EVENT = b'id: 7\nevent: job.changed\ndata: {"seq": 7}\n\n'
_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + _EVENT
BODIES = {
    "nothing": b"",
    "a page": b"<html>sign in</html>",
    "half": b'{"jobs": [',
    "null": b"null",
    "a number": b"7",
    "text": b'"ok"',
    "a list": b"[1]",
    "another object": b'{"ok": true}',
    "deep": b"[" * 100_000,
    "not UTF-8": b'{"a": "\xff\xfe"}',
    "NaN": b'{"count": NaN, "cursor": 1e999}',
}
#: the fields that hold lists
LISTS = (
    "jobs", "runs", "agents", "keys", "quotas", "entries", "incidents", "suggestions", "items", "sessions",
    "instances", "revisions", "deadLetters", "replayed", "discarded", "renewed", "lost", "released",
    "settings", "warnings", "errors", "channels", "workers",
)  # fmt: skip
for value in ("null", '"a"', "[]", "[null]", "[{}]", "[[]]"):
    fields = ", ".join(f'"{name}": {value}' for name in LISTS)
    BODIES[f"lists are {value}"] = f'{{{fields}, "cursor": "x"}}'.encode()
GIVEN: dict[str, Any] = {
    "start": datetime(2027, 1, 1, tzinfo=UTC), "end": datetime(2027, 1, 2, tzinfo=UTC), "version": 1,
    "fields": {}, "dag": {}, "signal": "go", "verified": True, "revision": 1, "status": "succeeded",
    "body": {"name": "x"}, "events": [{}], "limit": 1, "run_ids": ["1"], "attempt": 1,
    "output": "x", "runs": [], "jobs": [], "documents": [{"name": "x"}],
}  # fmt: skip
PARTS = (
    "jobs", "runs", "agents", "incidents", "suggestions", "inbox", "keys", "audit", "quotas", "workflows",
)  # fmt: skip


def client_methods(client: object) -> Iterator[tuple[str, Any]]:
    for part in (None, *PARTS):
        owner = client if part is None else getattr(client, part, None)
        for name, method in inspect.getmembers(owner, inspect.iscoroutinefunction):
            if not name.startswith("_") and name not in ("close", "wait"):
                yield f"{part}.{name}", method


def _arguments(kind: object, method: Any) -> tuple[list[Any], dict[str, Any]]:
    needed = [
        each
        for each in inspect.signature(method).parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    ]
    known = GIVEN if kind is AsyncClient else {**GIVEN, "start": "x", "end": "x"}
    given = {each.name: known.get(each.name, "x") for each in needed}
    named = {each.name: given.pop(each.name) for each in needed if each.kind is each.KEYWORD_ONLY}
    return [*given.values()], named


@pytest.mark.parametrize("kind", [AsyncClient, RestClient])
@pytest.mark.parametrize("what", BODIES)
async def test_every_method_returns_or_raises_an_error_of_wakeful(kind: Any, what: str):
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(BODIES[what])}\r\n\r\n".encode()

    async def talk(connection: RawConnection) -> None:
        while True:
            await connection.request()
            await connection.send(head + BODIES[what])

    wrong, called = {}, 0
    async with raw_server(talk) as server, kind(f"http://127.0.0.1:{server.port}", "wk_x") as client:
        for name, method in client_methods(client):
            args, named = _arguments(kind, method)
            called += 1
            try:
                async with asyncio.timeout(PATIENCE):
                    await method(*args, **named)
            except WakefulError:
                pass
            except Exception as error:
                wrong[name] = repr(error)
    assert not wrong
    assert called > 50


#: responses that are cut off, or have another framing than they say
HEAD = b"HTTP/1.1 200 OK\r\n"
FAULTS = {
    "closed": b"",
    "garbage": b"\x00\xff\r\n\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "half a body": HEAD + b'Content-Length: 50\r\n\r\n{"nowMs": 1',
    "half a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{}",
    "no chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}",
    "not gzip": HEAD + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    "two lengths": HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    "a long header": HEAD + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
    "nothing": HEAD + b"Content-Length: 0\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    "elsewhere": b"HTTP/1.1 302 Found\r\nLocation: http://[::1\r\nContent-Length: 0\r\n\r\n",
    "a pause": HEAD,
}


@pytest.mark.parametrize("what", FAULTS)
async def test_a_response_that_is_cut_off_or_wrongly_framed_is_unavailable(what: str):
    async def talk(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(FAULTS[what])
        if what == "a pause":
            await connection.until_closed()

    async with (
        raw_server(talk) as server,
        RestClient(f"http://127.0.0.1:{server.port}", "wk_x", timeout=0.2) as client,
    ):
        for request in (
            client.get_status(),
            client.create_job("a", {"name": "x"}),
            client.delete_job("a", "x"),
        ):
            with pytest.raises(Unavailable):
                await request


async def test_a_server_of_an_earlier_version_checks_a_job_and_does_not_say_how_it_would_be():
    async def talk(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with (
        raw_server(talk) as server,
        RestClient(f"http://127.0.0.1:{server.port}", "wk_x", timeout=PATIENCE) as client,
    ):
        assert await client.check_job("a", {"name": "x"}) is None


#: calls of the MCP tool
CALLS: list[dict[str, str]] = [
    {"action": "add", "message": "x", "schedule": "every 5m"},
    {"action": "add", "name": "x", "message": "x", "schedule": "never"},
    *({"action": name, "jobId": "x"} for name in ("get", "pause", "resume", "remove", "run", "runs")),
    {"action": "update", "jobId": "x", "message": "y"},
    *({"action": name} for name in ("list", "runs", "status", "instances", "instance")),
    {"action": "signal", "signal": "go"},
]


@pytest.mark.parametrize("status", [b"", b'{"nowMs": 1800000000000, "tz": "UTC"}'], ids=["all", "the rest"])
@pytest.mark.parametrize("what", BODIES)
async def test_every_call_of_the_mcp_tool_has_a_result(what: str, status: bytes):
    """With the right status, its other responses are wrong."""

    async def talk(connection: RawConnection) -> None:
        while True:
            head, _ = await connection.request()
            body = status if status and b"/status" in head else BODIES[what]
            await connection.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    async with (
        raw_server(talk) as server,
        RestClient(f"http://127.0.0.1:{server.port}", "wk_x") as client,
        asyncio.timeout(PATIENCE),
    ):
        for given in CALLS:
            result = await call(RemoteScheduler(client), given)
            if not what.startswith("lists are"):
                assert result.is_error, given


@pytest.mark.parametrize(
    "stream",
    [
        b"id: x\n\n",
        b"id: 1\ndata: {\n\n",
        b"id: 1\ndata: [1]\n\n",
        b"id: 1\ndata: " + b"[" * 100_000 + b"\n\n",
        b"id: \xff\n\n",
        b"id: " + b"9" * 5000 + b"\n\n",
    ],
    ids=range(6),
)
async def test_an_event_that_cannot_be_read_is_unavailable(stream: bytes):
    async def chunks() -> AsyncIterator[bytes]:
        yield stream

    with pytest.raises(Unavailable):
        assert [each async for each in read_events(chunks())] == []


async def test_a_page_in_place_of_the_stream_is_unavailable():
    async def talk(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nid")

    async with raw_server(talk) as server, AsyncClient(f"http://127.0.0.1:{server.port}", "wk_x") as client:
        with pytest.raises(Unavailable, match="check the address"):
            await anext(client.events())
    assert server.accepted == 1


class _Streams(Connection):
    """Answers with one stream or error after another, the last one again and again."""

    def __init__(self, *streams: bytes | WakefulError) -> None:
        super().__init__("http://model", None)
        self.streams = [*streams]
        self.opened: list[float] = []

    def stream(self, path: str, *, query: Any) -> Any:
        loop, own = asyncio.get_running_loop(), self

        class Stream:
            async def __aenter__(self) -> Any:
                own.opened.append(loop.time())
                content = own.streams.pop(0) if len(own.streams) > 1 else own.streams[0]
                if isinstance(content, WakefulError):
                    raise content

                async def chunks() -> AsyncIterator[bytes]:
                    if content:
                        yield content

                return chunks()

            async def __aexit__(self, *error: object) -> None:
                pass

        return Stream()


@pytest.mark.parametrize("last", [b"", b": here\n", b"garbage\n\n", b"id: 1\ndata: garbage\n\n"])
def test_a_server_that_responds_and_closes_is_tried_less_and_less_often_until_patience_ends(last: bytes):
    connection = _Streams(b"id: 7\n\n", last)

    async def story() -> float:
        with pytest.raises(Unavailable):
            async for _ in events(connection, "/events", {}, None, 60.0):
                pass
        return asyncio.get_running_loop().time()

    assert 60 < run_virtually(story()) < 70
    assert len(connection.opened) < 22


def _too_many(retry_after_s: int | None) -> ResourceExhausted:
    error = ResourceExhausted("too many requests")
    error.retry_after_s = retry_after_s
    return error


@pytest.mark.parametrize("retry_after_s", [7, None, 0])
def test_a_stream_waits_as_the_server_asks_before_it_reconnects(retry_after_s: int | None):
    connection = _Streams(b"id: 7\n\n", _too_many(retry_after_s), b"id: 8\ndata: {}\n\n")

    async def story() -> None:
        stream = events(connection, "/events", {}, None, 60.0)
        await anext(stream)
        await stream.aclose()

    run_virtually(story())
    began, refused, again = connection.opened
    assert refused - began == pytest.approx(0.1)
    assert again - refused == pytest.approx(retry_after_s or 0.2)


def test_a_stream_does_not_wait_for_longer_than_its_patience():
    connection = _Streams(b"id: 7\n\n", _too_many(3600))

    async def story() -> float:
        with pytest.raises(ResourceExhausted):
            await anext(events(connection, "/events", {}, None, 60.0))
        return asyncio.get_running_loop().time()

    assert run_virtually(story()) < 1


async def test_a_refused_stream_knows_when_to_try_again():
    async def talk(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 429 Too Many\r\nRetry-After: 9\r\nContent-Length: 2\r\n\r\n{}")

    async with raw_server(talk) as server, AsyncClient(f"http://127.0.0.1:{server.port}", "wk_x") as client:
        with pytest.raises(ResourceExhausted) as refused:
            await anext(client.events())
    assert refused.value.retry_after_s == 9
    assert server.accepted == 1, "a server that was never reached is not retried"


async def test_a_request_waits_for_a_connection_as_long_as_for_a_response(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("wakeful.client.connection._CONNECT_TIMEOUT", 1.0)
    monkeypatch.setattr("aiohttp.client.TCPConnector", partial(aiohttp.TCPConnector, limit=1))

    async def talk(connection: RawConnection) -> None:
        while True:
            await connection.request()
            await asyncio.sleep(1.5)
            await connection.send(b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"keys":[]}')

    async with raw_server(talk) as server, AsyncClient(f"http://127.0.0.1:{server.port}", "wk_x") as client:
        found = await asyncio.gather(client.keys.list(), client.keys.list())
    assert [*found] == [[], []]


async def test_a_stream_waits_for_a_connection_while_many_requests_are_open(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("wakeful.client.connection._CONNECT_TIMEOUT", 1.0)
    monkeypatch.setattr("aiohttp.client.TCPConnector", partial(aiohttp.TCPConnector, limit=1))

    async def talk(connection: RawConnection) -> None:
        while True:
            head, _ = await connection.request()
            if b"/events" in head:
                await connection.send(_STREAM)
            else:
                await asyncio.sleep(1.5)
                await connection.send(b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"keys":[]}')

    async with raw_server(talk) as server, RestClient(f"http://127.0.0.1:{server.port}", "wk_x") as client:
        waiting = asyncio.create_task(client.list_keys())
        await asyncio.sleep(0)
        async with contextlib.aclosing(client.events(patience=0)) as events, asyncio.timeout(PATIENCE):
            assert (await anext(events))["seq"] == 7
        await waiting
