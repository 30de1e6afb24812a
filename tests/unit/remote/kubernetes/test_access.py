"""The access to a cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.raw_server import RawConnection, RawServer, raw_server
from wakeful.errors import InvalidArgument
from wakeful.remote.kubernetes.api import KubernetesApi, KubernetesError, load_access

pytest.importorskip("kubernetes_asyncio")


async def test_the_access_of_a_kubeconfig_has_its_namespace(tmp_path):
    file = tmp_path / "config"
    file.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "users: [{name: u, user: {token: t}}]\n"
        "contexts: [{name: here, context: {cluster: c, user: u, namespace: batch}}]\n"
    )
    access = await load_access(str(file))
    assert (access.namespace, access.configuration.host) == ("batch", "http://127.0.0.1:1")


def kubeconfig(directory: Path, server: RawServer, user: str) -> str:
    file = directory / "config"
    file.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
        f"clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{server.port}'}}}}]\n"
        f"users: [{{name: u, user: {{{user}}}}}]\n"
        "contexts: [{name: here, context: {cluster: c, user: u}}]\n"
    )
    return str(file)


def login_program(directory: Path, token: Path, status: str = "") -> str:
    """Return the user of a kubeconfig whose token a program prints."""
    program = directory / "login"
    program.write_text(
        f"#!/bin/sh\nset -e\ntoken=$(cat {token})\n"
        """echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": """
        f"""{{{status}"token": "'$token'"}}}}'\n"""
    )
    program.chmod(0o700)
    return f"exec: {{apiVersion: client.authentication.k8s.io/v1, command: {program}}}"


class Tokens:
    """An API server that accepts one token."""

    def __init__(self, accepted: str) -> None:
        self.accepted = accepted
        self.seen: list[str] = []

    async def talk(self, connection: RawConnection) -> None:
        while True:
            head, _ = await connection.request()
            lines = head.decode().splitlines()
            (line,) = (each for each in lines if each.lower().startswith("authorization:"))
            self.seen.append(line.split()[-1])
            status = b"200 OK" if self.seen[-1] == self.accepted else b"401 Unauthorized"
            job = b'{"metadata":{"name":"a"}}'
            await connection.send(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(job), job))


async def test_the_program_of_a_kubeconfig_renews_expired_credentials(tmp_path: Path):
    tokens, token = Tokens("1"), tmp_path / "token"
    token.write_text("1")
    user = login_program(tmp_path, token, '"expirationTimestamp": "2020-01-01T00:00:00Z", ')
    async with raw_server(tokens.talk) as server:
        api = KubernetesApi(*await load_access(kubeconfig(tmp_path, server, user)))
        try:
            await api.job("a")
            tokens.accepted = "2"
            token.write_text("2")
            await api.job("a")
            token.unlink()
            with pytest.raises(KubernetesError, match="cannot be renewed") as raised:
                await api.job("a")
        finally:
            await api.close()
    assert tokens.seen == ["1", "2"]
    assert raised.value.is_transient


@pytest.mark.parametrize("expiry", [None, "", '"expirationTimestamp": "2999-01-01T00:00:00Z", '])
async def test_a_token_that_is_refused_is_read_again(tmp_path: Path, expiry: str | None):
    tokens, token = Tokens("1"), tmp_path / "token"
    token.write_text("1")
    user = f"tokenFile: {token}" if expiry is None else login_program(tmp_path, token, expiry)
    async with raw_server(tokens.talk) as server:
        api = KubernetesApi(*await load_access(kubeconfig(tmp_path, server, user)))
        try:
            await api.job("a")
            tokens.accepted = "2"
            token.write_text("2")
            refused = await asyncio.gather(api.job("a"), api.job("a"), return_exceptions=True)
            await api.job("a")
            await api.job("a")
        finally:
            await api.close()
    assert [isinstance(error, KubernetesError) and error.is_transient for error in refused] == [True, True]
    assert tokens.seen == ["1", "1", "1", "2", "2"]


async def test_without_a_cluster_the_error_says_what_to_do(tmp_path):
    with pytest.raises(InvalidArgument, match="give --kubeconfig"):
        await load_access(str(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("status", "transient"), [(0, True), (401, True), (429, True), (503, True), (403, False), (409, False)]
)
def test_an_overload_or_an_outage_is_transient(status: int, transient: bool):
    assert KubernetesError(status, "Some", "text").is_transient is transient
