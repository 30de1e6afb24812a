"""Webhooks and network failures, with real sockets on 127.0.0.1."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.receiver import (
    OPEN,
    SECRET,
    Receiver,
    Secrets,
    answering,
    failed,
    launching,
    serving,
    to,
)
from tests.support.waiting import PATIENCE
from wakeful.launch.address_guard import GuardedResolver
from wakeful.launch.http.messages import MAX_INTERIM
from wakeful.launch.webhook import WebhookLauncher
from wakeful.run.outcome import Outcome, Succeeded
from wakeful.values.clock import SystemClock


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with serving(Receiver()) as receiver:
        yield receiver


@pytest.fixture
async def launcher() -> AsyncIterator[WebhookLauncher]:
    async with launching() as launcher:
        yield launcher


# --- failures ----------------------------------------------------------------------------------------


@asynccontextmanager
async def raw_server(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()
        await server.wait_closed()


async def test_a_refused_connection_is_a_retryable_failure(launcher: WebhookLauncher):
    with socket.socket() as taken:  # bound, so that no other process gets it, but not listening
        taken.bind(("127.0.0.1", 0))
        outcome = failed(await launcher.start(to(f"http://127.0.0.1:{taken.getsockname()[1]}/")))
    assert (outcome.permanent, outcome.reason) == (False, "network")
    assert "could not connect to 127.0.0.1" in outcome.error


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "closed before a response"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf", "cut off"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel", "cut off"),
        (b"this is not HTTP\r\n\r\n", ""),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n", ""),
    ],
)
async def test_a_broken_connection_is_a_retryable_failure(
    launcher: WebhookLauncher, answer: bytes, said: str
):
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)

    async with raw_server(talk) as url:
        outcome = failed(await launcher.start(to(url)))
    assert (outcome.permanent, outcome.reason) == (False, "network")
    assert said in outcome.error


@asynccontextmanager
async def flooding(interim: bytes, final: bytes, times: int | None) -> AsyncIterator[str]:
    """Start a receiver that sends `times` interim responses (None: endless), then a final one."""

    def serve() -> None:
        with suppress(OSError), listener.accept()[0] as connection:
            connection.recv(65_536)
            if times is None:
                while True:  # until the other side closes the connection
                    connection.sendall(interim * 1000)
            connection.sendall(interim * times + final)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        await asyncio.to_thread(thread.join)


@pytest.mark.parametrize("status", ["100 Continue", "102 Processing", "103 Early Hints"])
async def test_endless_interim_responses_fail_the_attempt(launcher: WebhookLauncher, status: str):
    async with asyncio.timeout(PATIENCE), flooding(f"HTTP/1.1 {status}\r\n\r\n".encode(), b"", None) as url:
        outcome = failed(await launcher.start(to(url)))
    assert (outcome.permanent, outcome.reason) == (False, "network")
    assert outcome.error == "the receiver sent more than 16 interim responses (1xx) and no final one"


async def test_a_few_interim_responses_are_accepted(launcher: WebhookLauncher):
    final = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone"
    async with flooding(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n", final, MAX_INTERIM) as url:
        assert await launcher.start(to(url)) == Succeeded("done", response_code=200)


async def test_a_connection_reset_is_a_retryable_failure(launcher: WebhookLauncher):
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    async with raw_server(talk) as url:
        assert not failed(await launcher.start(to(url))).permanent


async def test_cancelling_a_hanging_attempt_closes_its_connection(
    launcher: WebhookLauncher,
):
    asked, gone = asyncio.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        while await reader.read(1000):
            pass
        gone.set()

    async with raw_server(talk) as url:
        task = asyncio.create_task(launcher.start(to(url)))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(gone.wait(), PATIENCE)


async def test_a_hanging_host_does_not_block_others(receiver: Receiver):
    hung = Receiver()

    async def hang(request: web.BaseRequest) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    hung.answer = hang
    async with serving(hung), launching(per_host=1) as launcher:
        stuck = [asyncio.create_task(launcher.start(to(hung.url))) for _ in range(3)]
        assert isinstance(await launcher.start(to(receiver.url)), Succeeded)
        for task in stuck:
            task.cancel()
        await asyncio.wait(stuck)


async def test_as_many_runs_as_there_are_slots_are_sent_to_one_host_at_once():
    slots, arrived, slow = 120, 0, Receiver()
    all_arrived = asyncio.Event()

    async def wait_for_all(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal arrived
        arrived += 1
        if arrived == slots:
            all_arrived.set()
        await all_arrived.wait()
        return web.Response()

    slow.answer = wait_for_all
    async with serving(slow), launching(slots=slots) as launcher:
        outcomes = await asyncio.gather(*[launcher.start(to(slow.url)) for _ in range(slots)])
    assert all(isinstance(outcome, Succeeded) for outcome in outcomes)


async def test_connections_are_reused_between_runs(receiver: Receiver, launcher: WebhookLauncher):
    for _ in range(3):
        await launcher.start(to(receiver.url))
    transports = {id(request.transport) for request in receiver.requests}
    assert len(transports) == 1


# --- TLS ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a self-signed certificate for agent.example, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "agent.example")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("agent.example")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "agent.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


async def test_certificates_are_verified(certificate: Path):
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=str(certificate))

    async def post(trust: ssl.SSLContext | None, host: str) -> Outcome:
        resolver = GuardedResolver(OPEN, answering(["127.0.0.1"]))
        launcher = WebhookLauncher(
            Secrets(SECRET), OPEN, SystemClock(), lambda status: None, tls=trust, resolver=resolver
        )
        await launcher.open()
        try:
            return await launcher.start(to(f"https://{host}:{there.port}/"))
        finally:
            await launcher.close()

    async with serving(Receiver(), tls) as there:
        assert isinstance(await post(trusting, "agent.example"), Succeeded)
        for trust, host in ((None, "agent.example"), (trusting, "other.example")):
            outcome = failed(await post(trust, host))
            assert (outcome.permanent, outcome.reason) == (False, "network")
            assert f"certificate of {host} was not accepted" in outcome.error
        assert len(there.requests) == 1
