"""A bare HTTP server that reads rows: the floor of requests to the API.

    python -m benchmarks.bare.http_floor postgresql://…

It prints its URL, and serves until it is terminated. `/rows/2` reads one row with two statements.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import asyncpg
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_ROW = "SELECT id, name, agent, workspace FROM jobs WHERE name = {} LIMIT 1"
Read = Callable[[], Awaitable[list[object]]]


async def open_database(url: str) -> Read:
    """Return a function that reads one row."""
    if url.startswith("postgres"):
        pool = await asyncpg.create_pool(
            url, min_size=4, max_size=8, server_settings={"search_path": "wakeful"}
        )

        async def read() -> list[object]:
            (row,) = await pool.fetch(_ROW.format("$1"), "read")
            return [*row]

        return read
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), check_same_thread=False)
    thread = ThreadPoolExecutor(1)

    def fetch() -> list[object]:
        return [*connection.execute(_ROW.format("?"), ("read",)).fetchone()]

    async def read_in_thread() -> list[object]:
        return await asyncio.get_running_loop().run_in_executor(thread, fetch)

    return read_in_thread


@contextmanager
def bare_server(database: str) -> Iterator[tuple[str, int]]:
    """Start the bare server; yield its URL and its process id."""
    command = [sys.executable, "-m", "benchmarks.bare.http_floor", database]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip(), server.pid
    finally:
        server.terminate()
        server.wait()


async def main(url: str) -> None:
    """Serve until the process is terminated."""
    read = await open_database(url)

    async def rows(request: Request) -> Response:
        row: list[object] = []
        for _ in range(int(request.path_params["statements"])):
            row = await read()
        return Response(json.dumps([str(each) for each in row]), media_type="application/json")

    app = Starlette(routes=[Route("/rows/{statements}", rows)])
    config = uvicorn.Config(
        app, port=0, http="httptools", loop="asyncio", log_level="error", access_log=False
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    print(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", flush=True)
    await serving


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
