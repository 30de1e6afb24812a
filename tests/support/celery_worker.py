"""A Celery worker in a process of its own, which can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.support.celery_commands import celery_command
from tests.support.paths import ROOT
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually


class CeleryWorker:
    """A worker of `tests.support.celery_tasks`."""

    def __init__(self, redis: RedisServer, log: Path) -> None:
        self._log = log
        self._pid = log.with_suffix(".pid")
        environment = {
            **os.environ,
            "TEST_REDIS": redis.url,
            "TEST_REDIS_RESULTS": redis.url,
            "TEST_PID": str(self._pid),
        }
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                celery_command(
                    *("-A", "tests.support.celery_tasks:app", "worker", "--concurrency", "2"),
                    *("--loglevel", "info", "--without-gossip", "--without-mingle", "--without-heartbeat"),
                ),
                cwd=ROOT,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    async def ready(self) -> None:
        """Wait until it takes tasks."""

        def look() -> bool:
            assert self.process.poll() is None, self._log.read_text()
            return " ready." in self._log.read_text()

        await eventually(look)

    async def stop(self) -> None:
        """Let the worker finish its tasks and exit, as a deployment does."""
        os.kill(int(self._pid.read_text()), signal.SIGTERM)
        await eventually(lambda: self.process.poll() is not None)

    def kill(self) -> None:
        """Kill the worker and its children."""
        with suppress(ProcessLookupError, FileNotFoundError):
            os.killpg(int(self._pid.read_text()), signal.SIGKILL)
        self.process.kill()
        self.process.wait()
