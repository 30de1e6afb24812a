"""A proxy before the API server that answers something else: the request has failed, and is repeated."""

from __future__ import annotations

import pytest
from kubernetes_asyncio.client import Configuration

from tests.support.raw_server import RawConnection, raw_server
from wakeful.remote.kubernetes.api import KubernetesApi, KubernetesError

BODIES = [
    b"", b"<html>", b"null", b"[1]", b'"ok"', b'{"ok": true}', b'{"items": "x"}', b'{"items": [null]}',
    b'{"items": [{}]}', b'{"metadata": null}', b'{"metadata": {"name": 7}}', b"[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body[:30].decode())
async def test_a_wrong_response_is_a_transient_error(body: bytes):
    async def talk(connection: RawConnection) -> None:
        while True:
            await connection.request()
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(
                body
            )
            await connection.send(head + body)

    async with raw_server(talk) as server:
        api = KubernetesApi(Configuration(host=f"http://127.0.0.1:{server.port}"), "default")
        try:
            for request in (lambda: api.job("a"), lambda: api.create_job({}), lambda: api.pods("a")):
                with pytest.raises(KubernetesError) as raised:
                    await request()
                assert raised.value.is_transient
        finally:
            await api.close()
