"""Clients with a certificate, and a server that requires one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.conftest import NewApp, on_one_store
from tests.support.api_client import ApiClient, served
from tests.support.certificates import Authority
from tests.support.command_line import Machine
from wakeful import AsyncClient, InvalidArgument, Unavailable
from wakeful.settings import Settings


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
async def operator(new_app: NewApp, authority: Authority) -> AsyncIterator[ApiClient]:
    cert, key = authority.issue("server")
    settings = Settings(port=0, tls_cert=str(cert), tls_key=str(key), tls_client_ca=str(authority.file))
    app = new_app()
    async with app, served(app, settings) as operator:
        yield operator


@on_one_store
async def test_a_client_certificate_is_accepted(operator: ApiClient, authority: Authority):
    cert, key = map(str, authority.issue("client"))
    async with AsyncClient(
        operator.url, operator.key, cert=cert, cert_key=key, ca=str(authority.file)
    ) as client:
        assert (await client.status())["role"] == "admin"
    async with AsyncClient(operator.url, operator.key, ca=str(authority.file)) as client:
        with pytest.raises(Unavailable):
            await client.status()


@on_one_store
async def test_the_command_line_sends_a_certificate(
    operator: ApiClient, authority: Authority, tmp_path: Path
):
    cert, key = map(str, authority.issue("client"))
    both = tmp_path / "both.pem"
    both.write_text(Path(cert).read_text() + Path(key).read_text())  # noqa: ASYNC240
    machine = Machine(tmp_path, operator.url)
    given = {"WAKEFUL_KEY": str(operator.key)}

    def wakeful(*options: str, **environment: str) -> int:
        return machine.process("status", *options, **given, **environment).code

    calls = [
        ((("--cert", cert, "--key", key, "--ca", str(authority.file))), {}, 0),
        (("--cert", str(both), "--ca", str(authority.file)), {}, 0),
        (
            (),
            {
                "WAKEFUL_CLIENT_CERT": cert,
                "WAKEFUL_CLIENT_KEY": key,
                "WAKEFUL_CA_BUNDLE": str(authority.file),
            },
            0,
        ),
        (("--ca", str(authority.file)), {}, 7),
        (("--cert", cert, "--key", key), {}, 7),
    ]
    for options, environment, code in calls:
        assert await asyncio.to_thread(wakeful, *options, **environment) == code, options


def test_invalid_files_are_named(tmp_path: Path, authority: Authority):
    cert, key = map(str, authority.issue("client"))
    _, other = map(str, authority.issue("other"))
    machine = Machine(tmp_path, "https://127.0.0.1:1")
    for options, says in (
        (("--cert", str(tmp_path / "none.pem")), "none.pem' cannot be read"),
        (("--key", key), "has no certificate"),
        (("--cert", cert, "--key", other), "are not a PEM pair"),
        (("--ca", key), "holds no PEM certificate"),
        (("--key", "wk_" + 43 * "a"), "WAKEFUL_KEY"),
    ):
        said = machine.wakeful("status", *options)
        assert (said.code, says in said.err) == (2, True), said


async def test_the_client_names_an_invalid_file(authority: Authority, tmp_path: Path):
    async with AsyncClient("https://127.0.0.1:1", "wk_", cert=str(tmp_path / "none.pem")) as client:
        with pytest.raises(InvalidArgument, match="cannot be read"):
            await client.status()
