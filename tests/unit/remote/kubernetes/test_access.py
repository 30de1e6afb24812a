"""The access to a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.raw_server import RawConnection, raw_server
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


async def test_the_program_of_a_kubeconfig_renews_expired_credentials(tmp_path: Path):
    seen: list[str] = []

    async def talk(connection: RawConnection) -> None:
        while True:
            head, _ = await connection.request()
            seen.extend(
                line.split()[-1]
                for line in head.decode().lower().splitlines()
                if line.startswith("authorization:")
            )
            job = b'{"metadata":{"name":"a"}}'
            await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(job), job))

    program, number = tmp_path / "login", tmp_path / "number"
    program.write_text(
        f"#!/bin/sh\nset -e\nnumber=$(cat {number})\n"
        """echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": """
        """{"expirationTimestamp": "2020-01-01T00:00:00Z", "token": "'$number'"}}'\n"""
    )
    program.chmod(0o700)
    number.write_text("1")
    async with raw_server(talk) as server:
        file = tmp_path / "config"
        file.write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
            f"clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{server.port}'}}}}]\n"
            "users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, "
            f"command: {program}}}}}}}]\n"
            "contexts: [{name: here, context: {cluster: c, user: u}}]\n"
        )
        api = KubernetesApi(*await load_access(str(file)))
        try:
            await api.job("a")
            number.write_text("2")
            await api.job("a")
            number.unlink()
            with pytest.raises(KubernetesError, match="cannot be renewed") as raised:
                await api.job("a")
        finally:
            await api.close()
    assert seen == ["1", "2"]
    assert raised.value.is_transient


async def test_without_a_cluster_the_error_says_what_to_do(tmp_path):
    with pytest.raises(InvalidArgument, match="give --kubeconfig"):
        await load_access(str(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("status", "transient"), [(0, True), (401, True), (429, True), (503, True), (403, False), (409, False)]
)
def test_an_overload_or_an_outage_is_transient(status: int, transient: bool):
    assert KubernetesError(status, "Some", "text").is_transient is transient
