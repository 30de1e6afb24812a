"""Servers and workers that are restarted under load: every run is executed once, with a single attempt."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter

from tests.integration.conftest import SELDOM, NewApp
from tests.support.api_client import served
from tests.support.effort import FULL
from tests.support.waiting import PATIENCE, eventually
from wakeful import Run, Wakeful
from wakeful.remote import Worker, WorkerConfig
from wakeful.remote.reporter import ReconnectBackoff
from wakeful.settings import Settings
from wakeful.store.rows import RunFilter

CONFIG = WorkerConfig(wait_ms=1_000, timeout_s=10.0, drain_s=PATIENCE, backoff=ReconnectBackoff(0.01, 0.1))
RESTARTS = 60 if FULL else 6
#: Seconds between two runs, and until a worker stops: no multiple of each other, so it stops at any time.
EVERY_S = 0.02
WORKS_S = 0.17


class Workers:
    """Workers, one after the other, until `stop`."""

    def __init__(self, url: str, key: str | None) -> None:
        self._url, self._key = url, key
        self.executed: Counter[str] = Counter()
        self._stopping = asyncio.Event()
        self.restarts = 0

    async def _handle(self, run: Run) -> None:
        self.executed[run.id] += 1
        await asyncio.sleep(0.01)

    async def serve(self) -> None:
        while not self._stopping.is_set():
            # All have the same name, as those of one deployment may.
            worker = Worker(self._url, self._key, name="worker", concurrency=3, config=CONFIG)
            worker.handler(self._handle)
            asyncio.get_running_loop().call_later(WORKS_S + 0.01 * (self.restarts % 7), worker.stop)
            await worker.serve()
            self.restarts += 1

    def stop(self) -> None:
        self._stopping.set()


async def _serve(new_app: NewApp, port: int, until: asyncio.Event | None, seconds: float = 0.0) -> None:
    """Serve with a process of its own, until an event or for so long."""
    async with new_app() as app, served(app, Settings(port=port)):
        if until is None:
            await asyncio.sleep(seconds)
        else:
            await until.wait()


async def _add_runs(app: Wakeful, added: list[str]) -> None:
    while True:
        added.append((await app.jobs.run("digest")).id)
        await asyncio.sleep(EVERY_S)


async def _none_waits(app: Wakeful) -> bool:
    return not await app.store.runs(RunFilter("default", states=("pending", "retrying", "running")))


async def test_every_run_is_executed_once_while_servers_and_workers_restart(new_app: NewApp):
    added: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port: int = unused.getsockname()[1]
    async with new_app() as app, asyncio.timeout(2 * PATIENCE):
        target = {"kind": "pull"}
        await app.jobs.upsert(
            "digest", schedule=SELDOM, target=target, max_attempts=1, overlap_policy="allow"
        )
        workers = Workers(f"http://127.0.0.1:{port}", await app.services.auth.keys.first_key())
        working = [asyncio.create_task(workers.serve()) for _ in range(2)]
        adding = asyncio.create_task(_add_runs(app, added))
        for number in range(RESTARTS):
            await _serve(new_app, port, None, 0.3 + 0.05 * (number % 6))
        adding.cancel()
        await asyncio.wait({adding})
        done = asyncio.Event()
        serving = asyncio.create_task(_serve(new_app, port, done))
        await eventually(lambda: _none_waits(app))
        workers.stop()
        await asyncio.gather(*working)
        done.set()
        await serving
        runs = await app.store.runs(RunFilter("default", limit=100_000))
    assert Counter(run.state for run in runs) == {"succeeded": len(runs)}
    assert workers.executed == Counter(run.id for run in runs)
    assert len(runs) >= len(added) > 0
