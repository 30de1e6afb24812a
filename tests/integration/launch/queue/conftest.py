"""A NATS server for each test, and apps that use it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import QUICK
from tests.support.nats_server import NatsServer
from wakeful import Wakeful
from wakeful.engine.engine import EngineConfig
from wakeful.job.policy import Backoff
from wakeful.launch.queue.connection import NatsConnection, NatsOptions
from wakeful.launch.queue.worker import QueueWorker, WorkerOptions
from wakeful.settings import Settings

NewQueueApp = Callable[..., Wakeful]


@pytest.fixture(autouse=True)
def _connect_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait only briefly between two attempts to connect."""
    monkeypatch.setattr("wakeful.launch.queue.connection._BACKOFF", Backoff(base_ms=50, max_ms=50))


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """Run a NATS server."""
    server = NatsServer(tmp_path / "nats")
    await server.start()
    yield server
    await server.kill()


@pytest.fixture
def queue_app(database: str, broker: NatsServer) -> NewQueueApp:
    """Return a function that creates apps on one database with the NATS server."""

    def make(*, config: EngineConfig = QUICK, **given: Any) -> Wakeful:
        settings = Settings(nats_url=(broker.url,), nats_subjects=("reports.>",), db=database)
        return Wakeful(database, config=config, settings=replace(settings, **given))

    return make


@contextlib.asynccontextmanager
async def working(broker: NatsServer, app: Wakeful, **options: Any) -> AsyncIterator[QueueWorker]:
    """Run a worker with the functions of an app; stop it at the end."""
    connection = NatsConnection(NatsOptions((broker.url,)), "worker")
    worker = QueueWorker(connection, app.functions, WorkerOptions(**options))
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await task
