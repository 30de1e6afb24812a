"""`wakeful executor kubernetes` as a process: its options, its health and its end."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest
import yaml

from tests.integration.conftest import on_one_store
from tests.integration.remote.test_kubernetes import ROLE, template, the_job
from tests.integration.remote.test_worker import start
from tests.support.api_client import ApiClient
from tests.support.command_line import Machine, first_json
from tests.support.kubernetes_api import KubernetesApi as ApiServer
from tests.support.waiting import PATIENCE, eventually, over

pytest.importorskip("kubernetes_asyncio")
pytestmark = on_one_store


def kubeconfig(file: Path, cluster: ApiServer) -> str:
    """Write the access to a cluster, and return the name of the file."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": cluster.url}}],
        "users": [{"name": "u", "user": {"token": cluster.token}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "batch"}}],
    }
    file.write_text(yaml.safe_dump(config))
    return str(file)


async def test_the_command_executes_runs_until_sigterm(ask: ApiClient, tmp_path: Path):
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump(template()))
    async with ApiServer("batch", permitted=ROLE) as cluster, aiohttp.ClientSession() as http:
        access = kubeconfig(tmp_path / "kubeconfig", cluster)
        process = Machine(tmp_path, ask.url).start(
            "executor", "kubernetes", "--template", str(job), "--kubeconfig", access, "--health", "0",
            "--host", "127.0.0.1", "--agents", "default, other", "--json", WAKEFUL_KEY=ask.key or "",
        )  # fmt: skip
        try:
            started = await asyncio.to_thread(first_json, process)
            assert (started["name"], started["namespace"]) == ("kubernetes", "batch")

            async def is_ready(expected: bool) -> bool:
                async with http.get(f"{started['url']}/readyz") as response:
                    assert (await response.json())["ready"] is (response.status == 200)
                    return (response.status == 200) is expected

            await eventually(lambda: is_ready(True))
            first = await start(ask, "first")
            cluster.finish_pod(await the_job(cluster, first), 0, log="done")
            assert (await over(ask.app, first)).output == "done"

            await cluster.stop()
            await eventually(lambda: is_ready(False))
            async with http.get(f"{started['url']}/healthz") as response:
                assert response.status == 200
            await cluster.start()
            await eventually(lambda: is_ready(True))

            second = await start(ask, "second")
            name = await the_job(cluster, second)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, PATIENCE) == 0
            assert cluster.job(name)["status"].get("active") == 1
            assert (await ask.app.runs.get(second)).state == "running"
        finally:
            process.kill()
            await asyncio.to_thread(process.communicate)
