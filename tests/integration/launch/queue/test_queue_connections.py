"""Connections to NATS with a password, a token, credentials files and TLS, each with a real server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.support.certificates import Authority
from tests.support.nats_credentials import write_jwt_server
from tests.support.nats_server import NatsServer
from tests.support.waiting import PATIENCE, eventually
from wakeful.launch.queue.connection import NatsConnection, NatsOptions


@contextlib.asynccontextmanager
async def _server(directory: Path, *options: str, jetstream: bool = True) -> AsyncIterator[str]:
    """Run a server with these options; yields its host and port."""
    server = NatsServer(directory / "nats", *options, jetstream=jetstream)
    await server.start()
    try:
        yield server.url.removeprefix("nats://")
    finally:
        await server.kill()


async def _accepted(url: str, **options: Any) -> None:
    """Connect, and check that the shown address has no credentials."""
    connection = NatsConnection(NatsOptions((url,), **options))
    await connection.open()
    try:
        assert (await connection.client(PATIENCE)).is_connected
        assert connection.server == url.rpartition("@")[2].rpartition("/")[2]
    finally:
        await connection.close()


async def _refused(url: str, cause: str, **options: Any) -> None:
    """Connect in vain; the error contains the cause, in lowercase."""
    connection = NatsConnection(NatsOptions((url,), **options))
    await connection.open()
    try:
        await eventually(lambda: cause in connection.error.lower())
        assert not connection.connected
    finally:
        await connection.close()


async def test_a_server_with_a_password_accepts_only_that(tmp_path: Path) -> None:
    async with _server(tmp_path, "--user", "me", "--pass", "hunter22") as address:
        await _accepted(f"nats://me:hunter22@{address}")
        await _refused(f"nats://me:nothing@{address}", "authorization")
        await _refused(f"nats://{address}", "authorization")


async def test_a_server_with_a_token_accepts_only_that(tmp_path: Path) -> None:
    async with _server(tmp_path, "--auth", "t0ken") as address:
        await _accepted(f"nats://t0ken@{address}")
        await _refused(f"nats://other@{address}", "authorization")


async def test_a_credentials_file_signs_in_by_jwt_and_that_of_another_operator_does_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "other").mkdir()
    config, credentials = write_jwt_server(tmp_path)
    _, others = write_jwt_server(tmp_path / "other")
    async with _server(tmp_path, "-c", str(config), jetstream=False) as address:
        await _accepted(f"nats://{address}", creds=str(credentials))
        await _refused(f"nats://{address}", "authorization", creds=str(others))
        await _refused(f"nats://{address}", "cannot be read", creds=str(tmp_path / "missing.creds"))


async def test_tls_requires_the_ca_of_the_server_and_the_certificate_of_the_client(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    certificate, key = authority.issue("server")
    own, own_key = map(str, authority.issue("client"))
    files = ("--tlscert", str(certificate), "--tlskey", str(key), "--tlscacert", str(authority.file))
    async with _server(tmp_path, "--tlsverify", *files) as address:
        ca = str(authority.file)
        for scheme in ("tls", "nats"):
            await _accepted(f"{scheme}://{address}", tls_ca=ca, tls_cert=own, tls_key=own_key)
        await _refused(f"tls://{address}", "certificate", tls_ca=ca)
        unknown = "certificate verify failed"
        await _refused(f"tls://{address}", unknown, tls_ca=str(other.file), tls_cert=own, tls_key=own_key)
        await _refused(f"tls://{address}", unknown)
