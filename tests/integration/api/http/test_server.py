"""The server: startup, startup errors, shutdown and TLS."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support import prefork
from tests.support.api_client import HOME, JOBS, served
from tests.support.certificates import Authority
from wakeful import InvalidArgument, Unavailable, Wakeful
from wakeful.server.serve import serve
from wakeful.settings import Settings, read_settings

_HERE = """
import asyncio, json, sys
from wakeful.server.serve import serve
from wakeful.settings import Settings

def started(url, app):
    async def tell():
        print(json.dumps([url, await app.services.auth.keys.first_key()]), flush=True)
    asyncio.get_running_loop().create_task(tell())

asyncio.run(serve(Settings(db=sys.argv[1], port=0), started=started))
print("stopped")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@on_one_store
async def test_a_signal_stops_the_server_after_pending_requests_are_answered(
    database: str, number: signal.Signals, tmp_path: Path
):
    (tmp_path / "program.py").write_text(_HERE)
    process = await asyncio.create_subprocess_exec(
        *prefork.command(str(tmp_path / "program.py"), database), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        url, key = json.loads(await process.stdout.readline())
        headers = {"Authorization": f"Bearer {key}"}
        async with aiohttp.ClientSession(url, headers=headers) as session:
            job = {"name": "a", "schedule": SELDOM}
            async with session.post(JOBS, json=job) as response:
                assert response.status == 201
            claim = {"worker": "w", "waitMs": 60_000}
            claiming = asyncio.create_task(_posted(session, f"{HOME}/runs/claim", claim))
            while (await _posted(session, f"{HOME}/runs/claim", {"worker": "other"}))[0] != 200:
                pass
            async with session.get(f"{HOME}/events") as stream, session.ws_connect("/ws") as rpc:
                process.send_signal(number)
                assert await claiming == (200, {"runs": []})
                await stream.read()  # to its regular end
                assert (await rpc.receive()).type is aiohttp.WSMsgType.CLOSE
        assert await process.stdout.read() == b"stopped\n"
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_port_in_use_is_reported_before_anything_starts(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = Settings(db=f"sqlite:///{tmp_path}/a.db", port=taken.getsockname()[1])
        with pytest.raises(Unavailable, match=r"cannot listen on .* port \d+"):
            await serve(settings)
    assert not (tmp_path / "a.db").exists()


async def test_an_invalid_host_is_reported(tmp_path: Path):
    with pytest.raises(InvalidArgument, match="WAKEFUL_HOST"):
        await serve(Settings(db=f"sqlite:///{tmp_path}/a.db", host="no such host", port=0))


async def test_the_server_listens_on_an_ipv6_address(tmp_path: Path):
    found: list[tuple[int, Any]] = []

    def started(url: str, app: Wakeful) -> None:
        assert url.startswith("http://[::1]:")
        asyncio.get_running_loop().create_task(look(url))

    async def look(url: str) -> None:
        async with aiohttp.ClientSession() as session, session.get(f"{url}/readyz") as response:
            found.append((response.status, await response.json()))
        serving.cancel()

    settings = Settings(db=f"sqlite:///{tmp_path}/a.db", host="::1", port=0)
    serving = asyncio.create_task(serve(settings, started=started))
    await asyncio.wait([serving])
    assert serving.cancelled()
    assert found == [(200, {"status": "ready"})]


@on_one_store
async def test_the_server_terminates_tls(new_app: NewApp, tmp_path: Path):
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    settings = Settings(port=0, tls_cert=str(cert), tls_key=str(key))
    app = new_app()
    async with app, served(app, settings) as ask:
        assert ask.url.startswith("https://")
        trusting = ssl.create_default_context(cafile=authority.file)
        async with ask.session.get(f"{ask.url}/healthz", ssl=trusting) as response:
            assert response.status == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await ask("GET", "/healthz")


@on_one_store
async def test_only_clients_with_a_certificate_of_the_client_ca_are_accepted(new_app: NewApp, tmp_path: Path):
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    cert, key = authority.issue("server")
    settings = Settings(port=0, tls_cert=str(cert), tls_key=str(key), tls_client_ca=str(authority.file))
    app = new_app()
    async with app, served(app, settings) as ask:
        for shown, gets_in in (
            (authority.issue("client"), True),
            (stranger.issue("other"), False),
            (None, False),
        ):
            context = ssl.create_default_context(cafile=authority.file)
            if shown is not None:
                context.load_cert_chain(*shown)
            try:
                async with ask.session.get(f"{ask.url}/healthz", ssl=context) as response:
                    assert (response.status, gets_in) == (200, True)
            except (aiohttp.ClientError, OSError):
                assert not gets_in


async def test_invalid_tls_settings_are_reported_before_anything_starts(tmp_path: Path):
    cert, key = Authority(tmp_path).issue("server")
    other = Authority(tmp_path, "other").issue("another")
    plain = Settings(db=f"sqlite:///{tmp_path}/a.db", port=0)
    changes: list[tuple[dict[str, Any], str]] = [
        ({"tls_cert": str(cert)}, "TLS_KEY"),
        ({"tls_key": str(key)}, "TLS_CERT"),
        ({"tls_client_ca": str(cert)}, "TLS_CLIENT_CA"),
        ({"tls_cert": str(cert), "tls_key": str(tmp_path / "none")}, "cannot be read"),
        ({"tls_cert": str(cert), "tls_key": str(other[1])}, "not a certificate and its key"),
    ]
    for change, says in changes:
        with pytest.raises(InvalidArgument, match=says):
            await serve(replace(plain, **change))
    assert not (tmp_path / "a.db").exists()


def test_an_invalid_port_is_rejected():
    with pytest.raises(InvalidArgument, match="WAKEFUL_PORT: 70000 is too large; the maximum is 65535"):
        read_settings({"WAKEFUL_PORT": "70000"})


@on_one_store
async def test_x_forwarded_for_is_used_only_from_trusted_proxies(new_app: NewApp):
    app = new_app()
    headers = {"X-Forwarded-For": "203.0.113.7"}
    async with app:
        for proxies, address in (((), "127.0.0.1"), (("127.0.0.1",), "203.0.113.7")):
            async with served(app, Settings(port=0, trusted_proxies=proxies)) as operator:
                ask = await operator.new("admin")
                await ask("PUT", f"{HOME}/agents/a-{len(proxies)}", {}, headers=headers)
                (entry,) = (await ask("GET", "/audit", limit=1)).body["entries"]
                assert entry["address"] == address


async def _posted(session: aiohttp.ClientSession, path: str, body: object) -> tuple[int, Any]:
    async with session.post(path, json=body) as response:
        return response.status, await response.json()
