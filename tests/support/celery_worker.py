"""A Celery worker in a process of its own, which can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]


class CeleryWorker:
    """A worker of `tests.support.celery_tasks`."""

    def __init__(
        self, redis: RedisServer, log: Path, *, acks_late: bool = False, queue: str = "celery"
    ) -> None:
        self._log = log
        environment = {
            **os.environ,
            "TEST_REDIS": redis.url,
            "TEST_REDIS_RESULTS": redis.url,
            "TEST_ACKS_LATE": "1" if acks_late else "0",
        }
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "celery", "-A", "tests.support.celery_tasks:app", "worker"),
                    *("--concurrency", "2", "--loglevel", "info", "-Q", queue, "-n", f"{queue}@tests"),
                    *("--without-gossip", "--without-mingle", "--without-heartbeat"),
                ],
                cwd=ROOT,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    async def ready(self) -> None:
        """Wait until it takes tasks."""

        def look() -> bool:
            assert self.process.poll() is None, self._log.read_text()
            return " ready." in self._log.read_text()

        await eventually(look)

    def kill(self) -> None:
        """Kill the worker and its children."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
