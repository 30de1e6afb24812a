"""The access to a cluster."""

from __future__ import annotations

import pytest

from wakeful.errors import InvalidArgument
from wakeful.remote.kubernetes.api import KubernetesError, load_access

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


async def test_without_a_cluster_the_error_says_what_to_do(tmp_path):
    with pytest.raises(InvalidArgument, match="give --kubeconfig"):
        await load_access(str(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("status", "transient"), [(0, True), (429, True), (503, True), (403, False), (409, False)]
)
def test_an_overload_or_an_outage_is_transient(status: int, transient: bool):
    assert KubernetesError(status, "Some", "text").is_transient is transient
