"""A Celery app for tests: its broker and result backend are in the environment."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery

app = Celery("tests", broker=os.environ.get("TEST_REDIS"), backend=os.environ.get("TEST_REDIS_RESULTS"))
app.conf.update(
    task_track_started=True,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
    timezone="Europe/Berlin",
)


def _append(path: str, line: str) -> None:
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


@app.task(name="tests.add")
def add(x: int, y: int, carry: int = 0) -> dict[str, int]:
    """Return a sum."""
    return {"sum": x + y + carry}


@app.task(name="tests.fail")
def fail(message: str) -> None:
    """Raise an error."""
    raise ValueError(message)


@app.task(name="tests.headers", bind=True)
def headers(self: Any) -> dict[str, Any]:
    """Return the id and the headers of the task."""
    return {"id": self.request.id, "headers": self.request.headers}


@app.task(name="tests.record", ignore_result=True)
def record(path: str) -> None:
    """Add a line to a file; the result is not kept."""
    _append(path, "done")


@app.task(name="tests.hold", bind=True)
def hold(self: Any, path: str) -> str:
    """Record the start in a file, and wait until the file `path.go` exists."""
    _append(path, f"{self.request.id} {os.getpid()}")
    while not Path(f"{path}.go").exists():
        time.sleep(0.02)
    return "held"
