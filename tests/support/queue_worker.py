"""A worker of NATS messages in a process of its own, which a test can kill.

    python queue_worker.py nats://127.0.0.1:4222 DIRECTORY NAME

Its function `work` writes a file when it starts, and does not end while the file `hold` exists.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from wakeful import Launch
from wakeful.launch.function import FunctionLauncher
from wakeful.launch.queue.connection import NatsConnection, NatsOptions
from wakeful.launch.queue.worker import QueueWorker, WorkerOptions


async def main(url: str, directory: Path, name: str) -> None:
    functions = FunctionLauncher()

    async def work(run: Launch) -> str:
        (directory / f"started-{name}").touch()
        while (directory / "hold").exists():
            await asyncio.sleep(0.02)
        return f"by {name}"

    functions.register("work", work)
    connection = NatsConnection(NatsOptions((url,)))
    await QueueWorker(connection, functions, WorkerOptions(ack_wait_s=2)).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
