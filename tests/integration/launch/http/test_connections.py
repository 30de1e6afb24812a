"""Which connections the HTTP client opens, keeps and closes, against real sockets."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
from yarl import URL

from tests.support.certificates import Authority
from tests.support.raw_server import RawConnection, raw_server
from tests.support.receiver import OPEN
from tests.support.waiting import PATIENCE, eventually
from wakeful.launch.address_guard import AddressGuard, AddressInfo, AddressRefused, GuardedResolver
from wakeful.launch.http import client as client_module
from wakeful.launch.http.client import HttpClient
from wakeful.launch.http.messages import HttpError, Response, UrlOrigin

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@asynccontextmanager
async def new_client(
    guard: AddressGuard = OPEN,
    resolver: GuardedResolver | None = None,
    *,
    connections: int = 10,
    per_host: int = 10,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[HttpClient]:
    client = HttpClient(guard, connections=connections, per_host=per_host, tls=tls, resolver=resolver)
    yield client
    await client.close()


async def send(client: HttpClient, url: str, method: str = "POST") -> Response:
    async with asyncio.timeout(PATIENCE):
        return await client.request(method, URL(url), {}, b"{}" if method == "POST" else None, 1_000)


async def respond(connection: RawConnection) -> None:
    while True:
        await connection.request()
        await connection.send(OK)


# --- unused connections ------------------------------------------------------------------------------


@contextmanager
def threaded_server(reads_after_the_first: bool) -> Iterator[tuple[str, threading.Event, list[bytes]]]:
    """Start a server in a thread that closes its first connection after one response.

    It closes before the second request arrives, or after it has read it. The event is set when it has closed
    the connection, so that a test can wait without running the event loop.
    """
    closed, requests = threading.Event(), list[bytes]()

    def serve() -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            requests.append(connection.recv(65_536))
            connection.sendall(OK)
            if reads_after_the_first:
                requests.append(connection.recv(65_536))
            connection.close()
            closed.set()
            while True:
                connection, _ = listener.accept()
                with connection:
                    requests.append(connection.recv(65_536))
                    connection.sendall(OK)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/", closed, requests
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE)


async def test_a_connection_that_was_closed_while_it_was_unused_is_not_used():
    async with new_client() as client:
        with threaded_server(reads_after_the_first=False) as (url, closed, requests):
            await send(client, url)
            # Block the event loop: the client must not notice that the connection was closed.
            assert closed.wait(PATIENCE)
            assert (await send(client, url)).status == 200
    assert len(requests) == 2


async def test_a_request_that_was_received_is_not_sent_again():
    async with new_client() as client:
        with threaded_server(reads_after_the_first=True) as (url, _, requests):
            await send(client, url)
            with pytest.raises(HttpError, match="closed before a response arrived"):
                await send(client, url)
            assert len(requests) == 2


async def test_a_get_is_sent_again_in_any_case():
    async with new_client() as client:
        with threaded_server(reads_after_the_first=True) as (url, _, requests):
            await send(client, url)
            assert (await send(client, url, "GET")).status == 200
            assert len(requests) == 3


async def test_a_request_on_a_new_connection_is_not_sent_again():
    async def talk(connection: RawConnection) -> None:
        await connection.request()

    async with raw_server(talk) as server, new_client() as client:
        for method in ("POST", "GET"):
            with pytest.raises(HttpError, match="closed before a response arrived"):
                await send(client, f"http://127.0.0.1:{server.port}/", method)
        assert server.accepted == 2


async def test_a_half_closed_connection_is_not_used_again():
    async def talk(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(OK)
        connection.writer.write_eof()
        await connection.until_closed()

    async with raw_server(talk) as server, new_client() as client:
        for number in (1, 2, 3):
            assert (await send(client, f"http://127.0.0.1:{server.port}/")).status == 200
            await eventually(lambda: not client._connections)
            assert server.accepted == number


async def test_unused_connections_are_closed_after_a_while(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_module, "KEEP_ALIVE_S", 0.01)
    async with raw_server(respond) as server, new_client() as client:
        await send(client, f"http://127.0.0.1:{server.port}/")
        await eventually(lambda: not client._connections)
        assert client._hosts == {}
        assert client._idle == 0


async def test_few_unused_connections_are_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_module, "MAX_IDLE", 2)
    async with raw_server(respond) as server, new_client() as client:
        await asyncio.gather(*[send(client, f"http://127.0.0.1:{server.port}/") for _ in range(5)])
        await eventually(lambda: len(client._connections) <= 2)


async def test_a_response_before_the_request_was_read_closes_the_connection():
    async def talk(connection: RawConnection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        await connection.send(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n")
        await connection.until_closed()

    async with raw_server(talk) as server, new_client() as client, asyncio.timeout(PATIENCE):
        url = URL(f"http://127.0.0.1:{server.port}/")
        response = await client.request("POST", url, {}, b"x" * 50_000_000, 100)
        assert response.status == 413
        await eventually(lambda: not client._connections)


# --- limits, cancellation ----------------------------------------------------------------------------


@pytest.mark.parametrize(("connections", "per_host"), [(2, 10), (10, 2)])
async def test_at_most_so_many_requests_are_active(connections: int, per_host: int):
    active, most, go_on = 0, 0, asyncio.Event()

    async def talk(connection: RawConnection) -> None:
        nonlocal active, most
        while True:
            await connection.request()
            active += 1
            most = max(most, active)
            await go_on.wait()
            active -= 1
            await connection.send(OK)

    async with raw_server(talk) as server, new_client(connections=connections, per_host=per_host) as client:
        tasks = [
            asyncio.create_task(send(client, f"http://127.0.0.1:{server.port}/{number}"))
            for number in range(9)
        ]
        await eventually(lambda: active == 2)
        for task in (tasks[1], tasks[5], tasks[8]):  # one is active, two wait
            task.cancel()
        go_on.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(result, Response) for result in results) == 6
        assert client._active == 0
        assert client._queues == {}
    assert most <= 3  # the server may still count the cancelled one


async def test_a_request_behind_a_cancelled_one_gets_its_turn():
    origin = UrlOrigin(False, "127.0.0.1", 80)
    async with new_client(connections=1) as client:
        host = await client._enter(origin)
        waiting = asyncio.create_task(client._enter(origin))
        await asyncio.sleep(0)
        waiting.cancel()  # it still is in the queue
        client._leave(host)
        async with asyncio.timeout(PATIENCE):
            client._leave(await client._enter(origin))
        assert client._hosts == {}


async def test_a_request_that_waits_while_the_client_closes_is_not_sent():
    async def talk(connection: RawConnection) -> None:
        requests.append(await connection.request())
        await connection.until_closed()

    requests: list[object] = []
    async with raw_server(talk) as server:
        async with new_client(connections=1) as client:
            url = f"http://127.0.0.1:{server.port}/"
            sent, waiting = (asyncio.create_task(send(client, url)) for _ in range(2))
            await eventually(lambda: requests)
        for task in (sent, waiting):
            with pytest.raises(HttpError, match="closed"):
                await task
        assert len(requests) == 1
        assert client._connections == set()


async def test_a_slow_response_is_cancelled_by_a_timeout_which_closes_the_connection():
    closed = asyncio.Event()

    async def talk(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart")
        began.set()
        await connection.until_closed()
        closed.set()

    began = asyncio.Event()
    async with raw_server(talk) as server, new_client() as client:

        async def until_it_began() -> None:
            async with asyncio.timeout(None) as limit:
                task = asyncio.create_task(began.wait())
                task.add_done_callback(lambda _: limit.reschedule(0))
                await send(client, f"http://127.0.0.1:{server.port}/")

        with pytest.raises(TimeoutError):
            await until_it_began()
        await asyncio.wait_for(closed.wait(), PATIENCE)
        assert client._active == 0


async def test_a_lookup_is_shared_and_survives_the_cancellation_of_one_request():
    lookups, found = 0, threading.Event()

    def lookup(host: str, port: int, **hints: object) -> list[AddressInfo]:
        nonlocal lookups
        lookups += 1
        found.wait(PATIENCE)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    async with raw_server(respond) as server, new_client(resolver=GuardedResolver(OPEN, lookup)) as client:
        url = f"http://agent.example:{server.port}/"
        first, second = (asyncio.create_task(send(client, url)) for _ in range(2))
        await eventually(lambda: lookups)
        first.cancel()
        await asyncio.wait([first])
        found.set()
        assert (await second).status == 200
    assert lookups == 1


# --- addresses and TLS -------------------------------------------------------------------------------


async def test_ipv6_addresses_are_reached_and_guarded():
    try:
        async with raw_server(respond, host="::1") as server:
            url = f"http://[::1]:{server.port}/"
            async with new_client() as client:
                assert (await send(client, url)).status == 200
            async with new_client(AddressGuard()) as client:
                with pytest.raises(AddressRefused, match="loopback"):
                    await send(client, url)
            assert server.accepted == 1
    except OSError as error:
        if not isinstance(error, AddressRefused):
            pytest.skip(f"no IPv6 here: {error}")
        raise


async def test_the_next_address_is_tried_if_the_first_refuses():
    def lookup(host: str, port: int, **hints: object) -> list[AddressInfo]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in ("127.0.0.2", "127.0.0.1")
        ]

    async with raw_server(respond) as server, new_client(resolver=GuardedResolver(OPEN, lookup)) as client:
        assert (await send(client, f"http://agent.example:{server.port}/")).status == 200


async def test_each_address_that_refuses_is_tried_once(monkeypatch: pytest.MonkeyPatch):
    tried: list[object] = []
    new_socket = AddressGuard.socket

    def count(guard: AddressGuard, info: AddressInfo) -> socket.socket:
        tried.append(info[4][0])
        return new_socket(guard, info)

    def lookup(host: str, port: int, **hints: object) -> list[AddressInfo]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{n}", port)) for n in range(1, 9)]

    monkeypatch.setattr(AddressGuard, "socket", count)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        async with new_client(resolver=GuardedResolver(OPEN, lookup)) as client:
            with pytest.raises(HttpError, match="could not connect"):
                await send(client, f"http://agent.example:{taken.getsockname()[1]}/")
    assert len(tried) == 8


async def test_tls_certificates_are_verified_and_connections_kept(tmp_path: Path):
    authority = Authority(tmp_path)
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(*authority.issue("agent"))
    trusting = ssl.create_default_context(cafile=str(authority.file))
    async with raw_server(respond, served) as server:
        url = f"https://127.0.0.1:{server.port}/"
        async with new_client(tls=trusting) as client:
            for _ in range(2):
                assert (await send(client, url)).body == b"ok"
            assert server.accepted == 1
        async with new_client() as client:  # with the authorities of the system
            with pytest.raises(HttpError, match=r"certificate of 127\.0\.0\.1 was not accepted: .*verify"):
                await send(client, url)
        async with new_client(tls=trusting, resolver=GuardedResolver(OPEN, _here)) as client:
            with pytest.raises(HttpError, match=r"certificate of other\.example was not accepted"):
                await send(client, f"https://other.example:{server.port}/")


async def test_a_server_without_tls_is_a_failure_to_connect():
    async def talk(connection: RawConnection) -> None:
        await connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await connection.until_closed()

    async with raw_server(talk) as server, new_client() as client:
        with pytest.raises(HttpError, match=r"could not connect to 127\.0\.0\.1"):
            await send(client, f"https://127.0.0.1:{server.port}/")


def _here(host: str, port: int, **hints: object) -> list[AddressInfo]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]
