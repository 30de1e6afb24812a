"""A real Redis server and a real Celery worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from tests.support.celery_worker import CeleryWorker
from tests.support.redis_server import RedisServer
from wakeful import Wakeful
from wakeful.launch.celery import launcher
from wakeful.service.auth.access import LOCAL


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[RedisServer]:
    """Run a server for all tests."""
    server = RedisServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    """Run a server that the test may kill."""
    server = RedisServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def shared_worker(
    shared_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CeleryWorker]:
    """Run a worker for all tests."""
    worker = CeleryWorker(shared_redis, tmp_path_factory.mktemp("worker") / "worker.log")
    yield worker
    worker.kill()


@pytest.fixture
async def worker(shared_worker: CeleryWorker) -> CeleryWorker:
    """Wait for the worker of all tests."""
    await shared_worker.ready()
    return shared_worker


def celery_app(redis: RedisServer, *, results: bool = True, **conf: Any) -> Celery:
    """Return an app as a web application has it: with the tasks, at this server."""
    app = Celery("tests", broker=redis.url, backend=redis.url if results else None)
    app.conf.update(timezone="UTC", **conf)
    return app


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the runs of other replicas more often."""
    monkeypatch.setattr(launcher, "SWEEP_S", 0.2)


def lines(path: Path) -> list[str]:
    """Return the lines of a file that tasks write."""
    return path.read_text().splitlines() if path.exists() else []


async def celery_check(app: Wakeful) -> dict[str, Any]:
    """Return what the doctor finds about Celery."""
    checks: Any = (await app.services.admin.doctor.examine(LOCAL, "default"))["checks"]
    (check,) = [check for check in checks if check["name"] == "celery"]
    return dict(check)
