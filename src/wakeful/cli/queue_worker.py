"""Runs `wakeful worker --nats`: its signals and its health endpoint."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable

from aiohttp import web

from wakeful.errors import InvalidArgument, Unavailable
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
    async with _serving(worker, *health) as url:
        started(url)
        await worker.run()


@contextlib.asynccontextmanager
async def _serving(worker: QueueWorker, host: str, port: int) -> AsyncIterator[str]:
    """Serve /healthz and /readyz while the worker runs. Yields the URL."""

    async def healthz(request: web.Request) -> web.Response:
        return web.json_response({"ok": True, "running": worker.running})

    async def readyz(request: web.Request) -> web.Response:
        return web.json_response({"ready": worker.ready}, status=200 if worker.ready else 503)

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise Unavailable(f"cannot listen on {host}:{port}: {error}") from error
        address = runner.addresses[0]
        yield f"http://{host}:{address[1]}"
    finally:
        await runner.cleanup()
