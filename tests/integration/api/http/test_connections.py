"""Half-open and slow connections, and connections above the limit."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import HOME, JOBS, ApiClient, served
from tests.support.certificates import Authority
from tests.support.paths import ROOT
from tests.support.rpc_client import calling
from tests.support.sse_client import listening
from tests.support.waiting import PATIENCE, eventually
from wakeful.api.rpc.connection import TOO_MANY_CONNECTIONS
from wakeful.server import acceptor, http_protocol
from wakeful.service.auth.access import LOCAL, Principal
from wakeful.service.services import PAGES_AT_ONCE
from wakeful.settings import Settings
from wakeful.store.rows import JobFilter, JobRow, RunView
from wakeful.store.sql.driver import current_tenant

GET = b"GET /healthz HTTP/1.1\r\nhost: here\r\n"


class Client:
    """A raw connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def response(self) -> int:
        """Read the next response with its body; return the status."""
        async with asyncio.timeout(PATIENCE):
            head = await self._reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length")
            )
            await self._reader.readexactly(length)
        return int(head.split()[1])

    async def rest(self) -> bytes:
        """Read until the server closes the connection."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self._reader.read()
            except ConnectionResetError:
                return b""

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def connected(url: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
    address = urlsplit(url)
    client = Client(*await asyncio.open_connection(address.hostname, address.port, ssl=tls))
    try:
        yield client
    finally:
        client.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set short deadlines with frequent checks."""
    for name in ("HEADERS_S", "BODY_PART_S", "REQUEST_S", "RESPONSE_S", "CLOSE_S"):
        monkeypatch.setattr(http_protocol, name, 1.0)
    monkeypatch.setattr(acceptor, "_CHECK_S", 0.02)
    monkeypatch.setattr(acceptor, "_HANDSHAKE_S", 1.0)


# --- deadlines -----------------------------------------------------------------------------------------


@on_one_store
@pytest.mark.usefixtures("impatient")
async def test_a_connection_without_a_request_is_closed(ask: ApiClient):
    async with connected(ask.url) as client:
        assert await client.rest() == b""


@on_one_store
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("before", [b"", GET + b"\r\n"], ids=["the first request", "a later request"])
async def test_incomplete_headers_are_answered_408(ask: ApiClient, before: bytes):
    async with connected(ask.url) as client:
        if before:
            await client.send(before)
            assert await client.response() == 200
        await client.send(GET + b"x-slow: ")
        assert await client.response() == 408
        assert await client.rest() == b""


@on_one_store
@pytest.mark.usefixtures("impatient")
async def test_an_incomplete_body_is_answered_408_and_creates_nothing(ask: ApiClient):
    async with connected(ask.url) as client:
        await client.send(
            f"POST {JOBS} HTTP/1.1\r\nhost: here\r\nauthorization: Bearer {ask.key}\r\n"
            "content-length: 100\r\n\r\n{".encode()
        )
        assert await client.response() == 408
        assert await client.rest() == b""
    assert (await ask("GET", "/jobs")).body["jobs"] == []


@on_one_store
@pytest.mark.usefixtures("impatient")
async def test_a_refused_body_that_stops_in_the_middle_gets_no_second_response(ask: ApiClient):
    async with connected(ask.url) as client:
        await client.send(f"POST {JOBS} HTTP/1.1\r\nhost: here\r\ncontent-length: 9999999\r\n\r\n{{".encode())
        assert await client.response() in (401, 413)
        await client.send(b"more of the body")
        assert await client.rest() == b""


@on_one_store
@pytest.mark.usefixtures("impatient")
async def test_headers_sent_byte_by_byte_have_the_same_deadline(ask: ApiClient):
    async with connected(ask.url) as client:
        response = asyncio.create_task(client.response())
        await client.send(GET + b"x-slow: ")
        while not response.done():
            with suppress(ConnectionError):
                await client.send(b"a")
            await asyncio.sleep(0.05)
        assert await response == 408


@on_one_store
@pytest.mark.usefixtures("impatient")
async def test_a_slow_response_and_an_idle_connection_have_no_such_deadline(ask: ApiClient):
    async with connected(ask.url) as client:
        body = b'{"worker": "w", "waitMs": 2000}'
        claim = f"POST {HOME}/runs/claim HTTP/1.1\r\nhost: here\r\nauthorization: Bearer {ask.key}\r\n"
        await client.send(claim.encode() + b"content-length: %d\r\n\r\n" % len(body) + body)
        assert await client.response() == 200
        await asyncio.sleep(1.5)
        await client.send(GET + b"\r\n")
        assert await client.response() == 200


@on_one_store
@pytest.mark.usefixtures("impatient")
async def test_a_connection_is_idle_after_a_body_that_was_refused_before_it_was_read(ask: ApiClient):
    async with connected(ask.url) as client:
        await client.send(f"POST {JOBS} HTTP/1.1\r\nhost: here\r\ncontent-length: 300000\r\n\r\n".encode())
        assert await client.response() == 413
        await client.send(b"x" * 300_000)
        await asyncio.sleep(1.5)
        await client.send(GET + b"\r\n")
        assert await client.response() == 200


@on_one_store
async def test_a_request_with_two_lengths_is_refused_and_nothing_after_it_is_read(ask: ApiClient):
    job = b'{"name": "hidden", "schedule": "%b"}' % SELDOM.encode()
    head = f"POST {JOBS} HTTP/1.1\r\nhost: here\r\nauthorization: Bearer {ask.key}\r\n".encode()
    hidden = head + b"content-length: %d\r\n\r\n%b" % (len(job), job)
    lengths = [b"content-length: 5\r\n", b"Transfer-Encoding: chunked\r\n"]
    for both in (b"".join(lengths), b"".join(reversed(lengths))):
        async with connected(ask.url) as client:
            await client.send(head + both + b"\r\n0\r\n\r\n" + hidden)
            received = await client.rest()
        assert received.startswith(b"HTTP/1.1 400"), received
        assert b"send only one" in received
        assert received.count(b"HTTP/1.1 ") == 1, received
    assert (await ask("GET", "/jobs")).body["jobs"] == []


@on_one_store
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("expects", [True, False], ids=["100-continue", "a full buffer"])
async def test_waiting_for_the_server_does_not_count_against_the_client(
    ask: ApiClient, monkeypatch: pytest.MonkeyPatch, expects: bool
):
    """The app reads the body late: the server is slow here, not the client."""
    authenticate = ask.app.services.auth.keys.authenticate

    called = asyncio.Event()

    async def slowly(*given: str | None) -> Principal:
        await asyncio.sleep(1.5)
        called.set()
        return await authenticate(*given)

    monkeypatch.setattr(ask.app.services.auth.keys, "authenticate", slowly)
    body = b'{"name": "job", "schedule": "@yearly"}' + b" " * 150_000
    begin, end = (b"", body) if expects else (body[:-1], body[-1:])
    expect = "expect: 100-continue\r\n" if expects else ""
    async with connected(ask.url) as client:
        await client.send(
            f"POST {JOBS} HTTP/1.1\r\nhost: here\r\nauthorization: Bearer {ask.key}\r\n"
            f"{expect}content-length: {len(body)}\r\n\r\n".encode()
            + begin
        )
        async with asyncio.timeout(30):
            if expects:
                assert (await client._reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
            else:
                await called.wait()
        await asyncio.sleep(0.1)  # some checks of the deadlines
        await client.send(end)
        assert await client.response() == 201


@on_one_store
@pytest.mark.usefixtures("impatient")
async def test_an_event_stream_stays_open(ask: ApiClient):
    headers = {"Authorization": f"Bearer {ask.key}"}
    async with ask.session.get(f"{ask.url}{HOME}/events", headers=headers) as response:
        await asyncio.sleep(1.5)
        await ask("POST", JOBS, {"name": "job", "schedule": SELDOM})
        async with asyncio.timeout(PATIENCE):
            while b"job.changed" not in await response.content.readline():
                pass


@on_one_store
@pytest.mark.usefixtures("impatient")
async def test_a_client_that_reads_nothing_is_disconnected(ask: ApiClient):
    async with connected(ask.url) as client:
        request = b"GET /openapi.json HTTP/1.1\r\nhost: here\r\n\r\n"
        client._reader._transport.pause_reading()  # type: ignore[attr-defined]
        disconnected = False
        async with asyncio.timeout(PATIENCE):
            while not disconnected:
                try:
                    await client.send(100 * request)
                except ConnectionError:
                    disconnected = True


@on_one_store
@pytest.mark.usefixtures("impatient")
async def test_an_incomplete_tls_handshake_is_closed(new_app: NewApp, tmp_path: Path):
    cert, key = Authority(tmp_path).issue("server")
    app = new_app()
    settings = Settings(port=0, tls_cert=str(cert), tls_key=str(key))
    async with app, served(app, settings) as ask, connected(ask.url) as client:
        assert await client.rest() == b""


# --- the limit -----------------------------------------------------------------------------------------


@on_one_store
async def test_a_connection_above_the_limit_is_answered_503_until_another_closes(new_app: NewApp):
    app = new_app()
    async with app, served(app, Settings(port=0, max_http_connections=3)) as ask:
        idle = [connected(ask.url) for _ in range(3)]
        first, *_ = [await each.__aenter__() for each in idle]

        async def refused() -> bool:
            async with connected(ask.url) as client:
                await client.send(GET + b"\r\n")
                return (await client.rest()).startswith(b"HTTP/1.1 503 ")

        async def accepted() -> bool:
            async with connected(ask.url) as client:
                await client.send(GET + b"connection: close\r\n\r\n")
                return (await client.rest()).startswith(b"HTTP/1.1 200 ")

        assert await eventually(refused)
        first.close()
        assert await eventually(accepted)
        for each in idle[1:]:
            await each.__aexit__(None, None, None)


# --- a real server with few open files -------------------------------------------------------------------

_SERVER = """
import asyncio, json, resource, sys
soft, hard, db = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from wakeful import Wakeful
from wakeful.server import http_protocol
from wakeful.server.serve import serve
from wakeful.service.auth.access import Principal
from wakeful.settings import Settings

http_protocol.HEADERS_S = 2.0
settings = Settings(db=db, port=0)
app = Wakeful(db, settings=settings)
ran = 0

@app.every("1s")
async def tick():
    global ran
    ran += 1
    open("/dev/null").close()
    print(json.dumps({"ran": ran}), flush=True)

def started(url, app):
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    print(json.dumps({"url": url, "limit": limit}), flush=True)

asyncio.run(serve(settings, app=app, started=started))
"""


@pytest.mark.slow
@on_one_store
async def test_hundreds_of_half_open_connections_do_not_stop_the_scheduler(database: str, tmp_path: Path):
    log = tmp_path / "log"
    with log.open("w") as err:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _SERVER, "100", "256", database),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=err,
        )
    assert process.stdout is not None
    said = process.stdout

    async def ticks(count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while count:
                count -= "ran" in json.loads(await said.readline())

    held: list[asyncio.StreamWriter] = []
    try:
        line = json.loads(await said.readline())
        while "url" not in line:
            line = json.loads(await said.readline())
        assert line["limit"] == 256
        address = urlsplit(line["url"])
        for _ in range(600):
            _, writer = await asyncio.open_connection(address.hostname, address.port)
            held.append(writer)
        await ticks(3)

        async def healthy() -> bool:
            try:
                async with aiohttp.ClientSession() as session, session.get(f"{line['url']}/readyz") as answer:
                    return answer.status == 200
            except aiohttp.ClientError:
                return False

        assert await eventually(healthy)
        await ticks(1)
    finally:
        for writer in held:
            writer.close()
        process.terminate()
        async with asyncio.timeout(PATIENCE):
            await process.wait()
    assert process.returncode == 0
    assert log.read_text().count("Too many open files") <= 1


# --- limits of one workspace ---------------------------------------------------------------------------


@on_one_store
async def test_the_keys_of_one_workspace_leave_connections_and_requests_to_others(new_app: NewApp):
    limits = Settings(max_connections=6, max_connections_per_workspace=4, max_requests_per_workspace=6)
    app = new_app(settings=limits)
    async with app, served(app) as ask, AsyncExitStack() as stack:
        await app.services.agents.workspaces.put(LOCAL, "acme", {})
        keys = [await ask.new("member", "acme") for _ in range(3)]
        of_acme = "/api/workspaces/acme"
        for key in (keys[0], keys[1], keys[2]):
            await stack.enter_async_context(listening(key, of_acme))
        await stack.enter_async_context(calling(keys[0]))
        refused = await keys[1]("GET", f"{of_acme}/events")
        assert (refused.status, refused.code, refused.headers["retry-after"]) == (
            429,
            "resource-exhausted",
            "1",
        )
        assert "WAKEFUL_MAX_CONNECTIONS_PER_WORKSPACE" in refused.body["detail"]
        async with calling(keys[1]) as call:
            assert (await call.closed())[0] == TOO_MANY_CONNECTIONS
        claim = {"worker": "w", "waitMs": 20_000}
        waiting = [asyncio.create_task(key("POST", f"{of_acme}/runs/claim", claim)) for key in keys]
        await eventually(lambda: len(app.services.auth.open_uses) == 3 + 1 + 3)
        for key in keys:
            refused = await key("GET", f"{of_acme}/jobs")
            assert (refused.status, refused.code) == (429, "resource-exhausted")
            assert "WAKEFUL_MAX_REQUESTS_PER_WORKSPACE" in refused.body["detail"]
        member = await ask.new("member")
        for other in (ask, member):
            assert (await other("GET", "/jobs")).status == 200
            async with listening(other):
                pass
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)

        async def is_free() -> bool:
            return (await keys[0]("GET", f"{of_acme}/jobs")).status == 200

        await eventually(is_free)


@on_one_store
async def test_a_request_that_ends_while_its_key_is_checked_is_counted_no_longer(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    app = new_app(settings=Settings(max_requests_per_workspace=1))
    async with app, served(app) as ask, listening(ask):
        await app.services.agents.workspaces.put(LOCAL, "acme", {})
        key = await ask.new("member", "acme")
        claim = {"worker": "w", "waitMs": 20_000}
        waiting = asyncio.create_task(key("POST", "/api/workspaces/acme/runs/claim", claim))
        await eventually(lambda: len(app.services.auth.open_uses) == 2)
        checked, over = asyncio.Event(), asyncio.Event()
        authenticate = app.services.auth.keys.authenticate

        async def slowly(bearer: str | None, *given: str | None) -> Principal:
            if bearer == key.key:
                checked.set()
                await over.wait()
            return await authenticate(bearer, *given)

        monkeypatch.setattr(app.services.auth.keys, "authenticate", slowly)
        app.services.auth.open_uses._suspect(None)
        async with asyncio.timeout(PATIENCE):
            await checked.wait()
        waiting.cancel()
        await eventually(lambda: len(app.services.auth.open_uses) == 1)
        over.set()
        for _ in range(3):
            assert (await key("GET", "/api/workspaces/acme/jobs")).status == 200


@on_one_store
async def test_what_a_request_calls_is_a_call_of_its_tenant(new_app: NewApp, monkeypatch: pytest.MonkeyPatch):
    """Others do not wait for it: see tests/store/test_tenants.py."""
    app = new_app()
    async with app, served(app) as ask:
        await app.services.agents.workspaces.put(LOCAL, "acme", {})
        key = await ask.new("admin", "acme")
        tenants, jobs = list[str | None](), app.store.jobs

        async def listed(only: JobFilter) -> list[JobRow]:
            tenants.append(current_tenant.get())
            return await jobs(only)

        monkeypatch.setattr(app.store, "jobs", listed)
        assert (await key("GET", "/api/workspaces/acme/jobs")).status == 200
        async with calling(key) as call:
            await call("cron.list")
        assert (await ask("GET", "/jobs")).status == 200
        assert tenants == ["acme", "acme", None]
        job = "/api/workspaces/acme/agents/default/jobs/a"
        assert (await key("PUT", job, {"schedule": SELDOM})).status == 201
        hook = (await key("POST", f"{job}/hook")).body["url"].rpartition("/")[2]
        add_runs = app.store.add_runs

        async def added(*args: Any, **given: Any) -> list[RunView]:
            tenants.append(current_tenant.get())
            return await add_runs(*args, **given)

        monkeypatch.setattr(app.store, "add_runs", added)
        assert (await ask.with_key(None)("POST", f"/hooks/{hook}")).status == 202
        assert tenants[3:] == ["acme"]


@on_one_store
async def test_lists_of_one_tenant_are_read_and_sent_a_few_at_a_time(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    """A page of 500 large runs takes a hundred megabytes, and a tenant can ask for a thousand at once."""
    app = new_app()
    async with app, served(app) as ask:
        member = await ask.new("member")
        listed, reading, most = app.services.runs.list, 0, 0

        async def count(*args: Any, **given: Any) -> list[RunView]:
            nonlocal reading, most
            reading += 1
            most = max(most, reading)
            await asyncio.sleep(0.01)
            try:
                return await listed(*args, **given)
            finally:
                reading -= 1

        monkeypatch.setattr(app.services.runs, "list", count)
        replies = await asyncio.gather(*(member("GET", "/runs") for _ in range(30)))
        assert {reply.status for reply in replies} == {200}
        assert most <= PAGES_AT_ONCE
        async with AsyncExitStack() as stack:
            calls = [await stack.enter_async_context(calling(member)) for _ in range(20)]
            most = 0
            await app.services.jobs.create(LOCAL, "default", "default", {"name": "a", "schedule": SELDOM})
            await asyncio.gather(*(call("cron.runs", jobId="a") for call in calls))
        assert most <= PAGES_AT_ONCE
