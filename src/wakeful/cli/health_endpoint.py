"""/healthz and /readyz of a process without the HTTP API."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

from aiohttp import web

from wakeful.errors import Unavailable


@contextlib.asynccontextmanager
async def serving_health(
    host: str, port: int, *, running: Callable[[], int], ready: Callable[[], bool]
) -> AsyncIterator[str]:
    """Serve /healthz and /readyz until the end of the block. Yields the URL."""

    async def healthz(request: web.Request) -> web.Response:
        return web.json_response({"ok": True, "running": running()})

    async def readyz(request: web.Request) -> web.Response:
        is_ready = ready()
        return web.json_response({"ready": is_ready}, status=200 if is_ready else 503)

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
