"""`wakeful serve --processes` on PostgreSQL, with an app whose functions wait until a test lets them go."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.support import prefork
from tests.support.command_line import Machine, first_json
from tests.support.waiting import PATIENCE, eventually

#: Short leases: runs of a killed process are taken over after a second.
APP = """
import asyncio, os
from pathlib import Path
from wakeful import Wakeful
from wakeful.engine.engine import EngineConfig

here = Path(__file__).parent
app = Wakeful(config=EngineConfig(lanes={"cron": 11, "one": 1}, heartbeat_ms=200, lease_ms=2_000))

def note(word, run):
    with (here / "calls").open("a") as file:
        file.write(f"{word} {os.getpid()} {run.idempotency_key} {run.attempt}\\n")

@app.function("work")
async def work(run):
    note("start", run)
    while not (here / "go").exists():
        await asyncio.sleep(0.01)
    note("end", run)
"""


class ManyProcesses:
    """A running server: the pids of its processes, requests to it, and what its functions have noted."""

    def __init__(self, home: Path, process: subprocess.Popen[str]) -> None:
        self.home = home
        self.process = process
        self.url = ""
        self.pid = 0
        self.key = ""

    @property
    def log(self) -> list[dict[str, Any]]:
        """Return the lines that all processes have logged so far."""
        return [json.loads(line) for line in (self.home / "log").read_text().splitlines()]

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the logged events of that name."""
        return [line for line in self.log if line["event"] == name]

    @property
    def pids(self) -> dict[int, int]:
        """Return the pids of the processes by number, the newest of each."""
        return {line["number"]: line["pid"] for line in self.events("process.started")}

    @property
    def calls(self) -> list[tuple[str, int, str, int]]:
        """Return what functions have noted: `start` or `end`, pid, idempotency key, attempt."""
        file = self.home / "calls"
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [(word, int(pid), key, int(attempt)) for word, pid, key, attempt in lines]

    def let_go(self) -> None:
        """Let the functions return."""
        (self.home / "go").touch()

    async def request(self, method: str, path: str, body: object = None) -> Any:
        """Return the response to a request over a connection of its own."""
        headers = {"authorization": f"Bearer {self.key}"}
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(method, self.url + path, json=body, headers=headers) as response,
        ):
            text = await response.text()
            assert response.status < 400, text
            return json.loads(text) if response.content_type.endswith("json") else text

    async def metrics(self) -> dict[str, float]:
        """Scrape /metrics once; return the values by their series."""
        text = await self.request("GET", "/metrics")
        lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        return {series: float(value) for series, value in lines}

    async def add_jobs(self, count: int, target: dict[str, Any]) -> None:
        """Create jobs that are due at once."""
        await asyncio.gather(*[self._add(number, target) for number in range(count)])

    async def _add(self, number: int, target: dict[str, Any]) -> None:
        job = {
            "name": f"job-{number}",
            "schedule": {"kind": "every", "every": "1h"},
            "target": target,
            "lane": "cron",
        }
        path = "/api/workspaces/default/agents/default/jobs"
        await self.request("POST", path, job)
        await self.request("POST", f"{path}/job-{number}/run")

    async def states(self) -> Counter[str]:
        """Return the number of runs by state."""
        runs = await self.request("GET", "/api/workspaces/default/runs?limit=500")
        return Counter(run["state"] for run in runs["runs"])

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        os.kill(self.pid, number)
        return await self.exit_code()

    async def exit_code(self) -> int:
        """Wait for the end of the server."""
        return await asyncio.to_thread(self.process.wait, PATIENCE)


@asynccontextmanager
async def many_processes(
    home: Path, database: str, *options: str, count: int = 3, app: str | None = APP, **environment: str
) -> AsyncIterator[ManyProcesses]:
    """Start a server with processes, and stop it at the end if it still runs."""
    arguments = ["serve", "--db", database, "--port", "0", "--processes", str(count), "--json"]
    if app is not None:
        (home / "own_app.py").write_text(app)
        arguments += ["--app", "own_app:app"]
    own = {"WAKEFUL_SECRET_KEY": "a key for tests", **environment}
    process = _start(home, [*arguments, "--log-format", "json", *options], own)
    server = ManyProcesses(home, process)
    try:
        started = await asyncio.to_thread(first_json, process)
        server.url, server.pid = started["url"], started["pid"]
        server.key = _read(Path(started["keyFile"]))
        yield server
    finally:
        if process.poll() is None:
            process.kill()  # the fork server kills the supervisor, and the processes follow
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _start(home: Path, arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    with (home / "log").open("w") as log:
        return subprocess.Popen(
            prefork.command("wakeful", *arguments),
            env={**Machine(home).environment, **environment},
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )


def _read(file: Path) -> str:
    return file.read_text().strip()


async def gone(pids: list[int]) -> None:
    """Wait until processes have ended."""
    from tests.support.programs import alive

    await eventually(lambda: not any(map(alive, pids)))
