"""A worker of NATS messages in a process of its own, which a test can kill.

    python -m tests.support.queue_worker nats://127.0.0.1:4222 DIRECTORY

Its function `work` writes a file when it starts, and does not end while the file `hold` exists.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from wakeful import Launch
from wakeful.launch.function import FunctionLauncher
from wakeful.launch.queue.connection import NatsConnection, NatsOptions
from wakeful.launch.queue.worker import QueueWorker, WorkerOptions


async def main(url: str, directory: Path) -> None:
    functions = FunctionLauncher()

    async def work(run: Launch) -> str:
        (directory / f"started-{os.getpid()}").touch()
        while (directory / "hold").exists():
            await asyncio.sleep(0.02)
        return f"by {os.getpid()}"

    functions.register("work", work)
    connection = NatsConnection(NatsOptions((url,)))
    await QueueWorker(connection, functions, WorkerOptions(ack_wait_s=2)).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
