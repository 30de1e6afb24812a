"""Runs `wakeful worker --nats`: its signals and its health endpoint."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable

from wakeful.cli.health_endpoint import serving_health
from wakeful.errors import InvalidArgument
from wakeful.launch.function import FunctionLauncher
from wakeful.launch.queue.connection import NatsConnection, nats_options
from wakeful.launch.queue.worker import QueueWorker, WorkerOptions
from wakeful.settings import Settings


async def work_on_queue(
    settings: Settings,
    functions: FunctionLauncher,
    options: WorkerOptions,
    health: tuple[str, int] | None,
    started: Callable[[str | None], None],
) -> None:
    """Execute messages until SIGINT or SIGTERM. `started` gets the URL of the health endpoint, if any."""
    if not settings.nats_url:
        raise InvalidArgument("--nats: set WAKEFUL_NATS_URL, such as nats://127.0.0.1:4222")
    connection = NatsConnection(nats_options(settings), "wakeful-worker")
    worker = QueueWorker(connection, functions, options)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, worker.stop)
    if health is None:
        started(None)
        await worker.run()
        return
    async with serving_health(*health, running=lambda: worker.running, ready=lambda: worker.ready) as url:
        started(url)
        await worker.run()
