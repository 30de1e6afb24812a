"""How the HTTP client reads responses, against a server that sends exact bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from yarl import URL

from tests.support.raw_server import RawConnection, RawServer, Talk, raw_server
from tests.support.receiver import OPEN
from tests.support.waiting import PATIENCE, eventually
from wakeful.launch.http.client import HttpClient
from wakeful.launch.http.connection import MAX_HEAD
from wakeful.launch.http.messages import HttpError, MalformedResponse, Response, ResponseCutOff

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    client = HttpClient(OPEN, connections=10, per_host=10)
    yield client
    await client.close()


async def post(client: HttpClient, server: RawServer, limit: int = 1_000) -> Response:
    async with asyncio.timeout(PATIENCE):
        return await client.request(
            "POST", URL(f"http://127.0.0.1:{server.port}/hook"), {"x": "y"}, b"{}", limit
        )


def always(*pieces: bytes, close: bool = False) -> Talk:
    """Answer every request with these pieces; with `close`, end the connection after the first."""

    async def talk(connection: RawConnection) -> None:
        while True:
            await connection.request()
            await connection.send(*pieces)
            if close:
                return

    return talk


def bytewise(response: bytes) -> tuple[bytes, ...]:
    return tuple(response[at : at + 1] for at in range(len(response)))


CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    b"3;name=value\r\nabc\r\n2\r\nde\r\n0\r\ntrailer: x\r\n\r\n"
)


@pytest.mark.parametrize(
    ("response", "body", "kept"),
    [
        pytest.param(OK, b"ok", True, id="length"),
        pytest.param(CHUNKED, b"abcde", True, id="chunked"),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", b"", True, id="no content"),
        pytest.param(b"HTTP/1.1 200 OK\r\nx-empty:\r\ncontent-length: 2\r\n\r\nok", b"ok", True, id="empty"),
        pytest.param(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + OK,
            b"ok",
            True,
            id="interim",
        ),
        pytest.param(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), b"ok", False, id="close"),
        pytest.param(OK.replace(b"1.1", b"1.0"), b"ok", False, id="1.0"),
        pytest.param(
            OK.replace(b"1.1", b"1.0").replace(b"\r\n\r\n", b"\r\nconnection: keep-alive\r\n\r\n"),
            b"ok",
            True,
            id="1.0 kept",
        ),
        pytest.param(OK + b"HTTP/1.1 200 OK\r\n", b"ok", False, id="too much"),
        pytest.param(OK + b"garbage", b"ok", False, id="garbage after it"),
        pytest.param(
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nabc",
            b"",
            False,
            id="upgrade",
        ),
    ],
)
async def test_a_response_ends_where_its_framing_says(
    client: HttpClient, response: bytes, body: bytes, kept: bool
):
    async with raw_server(always(response)) as server:
        for number in (1, 2, 3):
            received = await post(client, server)
            assert (received.body, received.header(b"trailer"), received.header(b"link")) == (
                body,
                None,
                None,
            )
            assert server.accepted == (1 if kept else number)


@pytest.mark.parametrize("response", [OK, CHUNKED], ids=["length", "chunked"])
async def test_a_response_may_arrive_byte_by_byte(client: HttpClient, response: bytes):
    async with raw_server(always(*bytewise(response))) as server:
        first, second = await post(client, server), await post(client, server)
        assert first.body == second.body == (b"ok" if response == OK else b"abcde")
        assert server.accepted == 1


async def test_a_body_without_length_lasts_until_the_connection_ends(client: HttpClient):
    async with raw_server(always(b"HTTP/1.1 200 OK\r\n\r\n", b"a", b"b", close=True)) as server:
        assert (await post(client, server)).body == b"ab"


@pytest.mark.parametrize(
    "response",
    [
        b"this is not HTTP\r\n\r\n",
        b"HTTP/1.1 two hundred\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: two\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\na b: c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 2 * MAX_HEAD + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"x%d: y\r\n" % n for n in range(MAX_HEAD // 8)) + b"\r\n",
        b"HTTP/1.1 200 " + b"y" * 2 * MAX_HEAD,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: " + b"y" * 8 * MAX_HEAD,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;" + b"y" * 8 * MAX_HEAD,
    ],
    ids=lambda response: response[:60].decode().split("\r\n")[-1] or "status",
)
async def test_a_malformed_or_too_large_head_fails_and_closes(client: HttpClient, response: bytes):
    closed = asyncio.Event()

    async def talk(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(response)
        await connection.until_closed()
        closed.set()

    async with raw_server(talk) as server:
        with pytest.raises(MalformedResponse, match="the response is not valid HTTP: "):
            await post(client, server)
        await asyncio.wait_for(closed.wait(), PATIENCE)


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
    ],
    ids=["length", "chunk", "no chunk"],
)
async def test_a_response_that_is_cut_off_fails(client: HttpClient, response: bytes):
    async with raw_server(always(response, close=True)) as server:
        with pytest.raises(ResponseCutOff):
            await post(client, server)


async def test_a_head_that_is_cut_off_is_no_response(client: HttpClient):
    async with raw_server(always(b"HTTP/1.1 200 OK\r\ncontent-le", close=True)) as server:
        with pytest.raises(HttpError, match="closed before a response arrived"):
            await post(client, server)


@pytest.mark.parametrize(
    "head",
    [b"content-length: 1000000", b"transfer-encoding: chunked", b"x: y"],
    ids=["length", "chunked", "until the end"],
)
async def test_a_body_is_read_up_to_the_limit_and_the_connection_closed(client: HttpClient, head: bytes):
    closed = asyncio.Event()

    async def talk(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n")
        await connection.send(b"8\r\n" * (head.endswith(b"chunked")) + b"12345678")
        await connection.until_closed()
        closed.set()

    async with raw_server(talk) as server:
        assert (await post(client, server, limit=5)).body == b"12345"
        await asyncio.wait_for(closed.wait(), PATIENCE)


async def test_a_body_of_exactly_the_limit_keeps_the_connection(client: HttpClient):
    async with raw_server(always(OK)) as server:
        for _ in range(2):
            assert (await post(client, server, limit=2)).body == b"ok"
        assert server.accepted == 1


async def test_headers_keep_their_names_order_and_repetitions(client: HttpClient):
    response = b"HTTP/1.1 200 OK\r\nX-One:  1 \r\nx-one: 2\r\nCONTENT-LENGTH: 0\r\nx-bytes: \xff\r\n\r\n"
    async with raw_server(always(response)) as server:
        received = await post(client, server)
    assert received.header(b"x-one") == "1"
    assert [name for name, _ in received.headers] == ["X-One", "x-one", "CONTENT-LENGTH", "x-bytes"]


async def test_data_on_an_unused_connection_closes_it(client: HttpClient):
    async def talk(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(OK)
        if server.accepted == 1:
            await responded.wait()
            await connection.send(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")
        await connection.until_closed()

    responded = asyncio.Event()
    async with raw_server(talk) as server:
        await post(client, server)
        (connection,) = client._connections
        responded.set()
        await eventually(lambda: not connection.reusable)
        assert (await post(client, server)).status == 200
        assert server.accepted == 2
