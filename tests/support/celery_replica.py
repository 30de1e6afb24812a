"""A replica that is killed when it has sent a task: `celery_replica.py DB REDIS`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from celery import Celery
from celery.signals import after_task_publish

from wakeful import EngineConfig, Wakeful


def _die(**_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def _main(database: str, redis: str) -> None:
    after_task_publish.connect(_die, weak=False)
    config = EngineConfig(tick_ms=100, heartbeat_ms=200)
    await Wakeful(
        database, celery=Celery("tests", broker=redis, backend=redis), config=config
    ).serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
