"""The proxy of the compose file in front of three real replicas on one PostgreSQL."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.integration.conftest import STORES
from tests.integration.docs.test_examples import free_port
from tests.support import prefork
from tests.support.command_line import Machine, first_json
from tests.support.paths import ROOT
from tests.support.tools import tool
from tests.support.waiting import PATIENCE

#: Any machine has these addresses. The proxy finds them by the name of the service, as in Docker's network.
REPLICAS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
KEY = "wk_" + "k" * 43

pytestmark = pytest.mark.skipif("postgres" not in STORES, reason="there is no PostgreSQL here")


@contextmanager
def replica(home: Path, address: str, port: int, database: str) -> Iterator[int]:
    """Run a replica at that address, and yield its process id."""
    own = home / address
    own.mkdir()
    settings = {
        "WAKEFUL_HOST": address,
        "WAKEFUL_PORT": str(port),
        "WAKEFUL_DB": database,
        "WAKEFUL_ADMIN_KEY": KEY,
        "WAKEFUL_SECRET_KEY": "a key for tests",
        "WAKEFUL_TRUSTED_PROXIES": "127.0.0.0/8",
    }
    with (own / "log").open("w") as log:
        process = subprocess.Popen(
            prefork.command("wakeful", "serve", "--wait-for-db", "--json"),
            env={**Machine(own).environment, **settings},
            cwd=own,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        yield first_json(process)["pid"]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        process.stdout.close()
        process.wait(PATIENCE)


@contextmanager
def proxy(home: Path, port: int, upstream_port: int) -> Iterator[str]:
    """Run Caddy with its file in `deploy/`, except for the ports, and with the addresses of the replicas."""
    caddy, bwrap = tool("caddy"), tool("bwrap")
    text = (ROOT / "deploy/docker/Caddyfile").read_text()
    assert text.count("\n:9253 {") == text.count("port 9253") == 1
    text = text.replace("\n:9253 {", f"\n:{port} {{").replace("port 9253", f"port {upstream_port}")
    (home / "Caddyfile").write_text(text)
    (home / "hosts").write_text("".join(f"{address} wakeful\n" for address in REPLICAS))
    box = [bwrap, "--die-with-parent", "--dev-bind", "/", "/", "--bind", str(home / "hosts"), "/etc/hosts"]
    command = [caddy, "run", "--config", str(home / "Caddyfile"), "--adapter", "caddyfile"]
    with (home / "caddy.log").open("w") as log:
        process = subprocess.Popen(
            [*box, *command],
            env={**os.environ, "HOME": str(home)},
            stderr=log,
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(PATIENCE)


def ask(url: str, method: str = "GET", document: object = None) -> tuple[int, Any]:
    body = None if document is None else json.dumps(document).encode()
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    try:
        with urlopen(Request(url, body, headers, method=method), timeout=30) as response:
            return response.status, json.load(response)
    except HTTPError as error:
        return error.code, error.read().decode()
    except (OSError, HTTPException) as error:
        return 0, str(error)


@pytest.mark.slow
def test_one_address_serves_three_replicas_and_survives_the_loss_of_one(tmp_path: Path):
    from tests.support.postgres_server import fresh_database

    port, upstream, database = free_port(), free_port(), fresh_database()
    with ExitStack() as stack:
        url = stack.enter_context(proxy(tmp_path, port, upstream))
        pids = [stack.enter_context(replica(tmp_path, each, upstream, database)) for each in REPLICAS]
        jobs = f"{url}/api/workspaces/default/agents/default/jobs"
        until = time.monotonic() + PATIENCE
        while ask(f"{url}/readyz")[0] != 200:
            assert time.monotonic() < until, (tmp_path / "caddy.log").read_text()
            time.sleep(0.1)
        assert ask(jobs, "POST", {"name": "digest", "schedule": "@daily"})[0] == 201
        for _ in range(30):
            status, found = ask(jobs)
            assert (status, [job["name"] for job in found["jobs"]]) == (200, ["digest"])
        served = {address: requests(f"http://{address}:{upstream}") for address in REPLICAS}
        assert all(served.values()), f"each replica serves requests: {served}"
        assert ask(f"{url}/api/workspaces/default/status")[1]["replicas"] == 3

        os.kill(pids[1], signal.SIGKILL)
        while listens(REPLICAS[1], upstream):
            time.sleep(0.01)
        assert Counter(ask(jobs)[0] for _ in range(30)) == {200: 30}


def listens(address: str, port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((address, port)) == 0


def requests(replica_url: str) -> int:
    """Return how many lists of jobs a replica has answered."""
    with urlopen(f"{replica_url}/metrics") as response:
        lines = response.read().decode().splitlines()
    return sum("/agents/{agent}/jobs" in line and 'method="GET"' in line for line in lines)
