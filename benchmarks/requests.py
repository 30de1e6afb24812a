"""The CPU time that the server spends on one request, compared with a bare server in the same run.

    python -m benchmarks.requests
    python -m benchmarks.requests --store postgres --requests 2000 --json

A server (`wakeful serve`) answers requests of one client, on eight connections; then writes on as many as
`--writers` says, which are written together where they arrive together. The time is that of the
server's process, without the database and the client, divided by the number of requests. **bare** is a
Starlette app on uvicorn with httptools in a process of its own: it reads a row by its key from the same
database, with 0, 1 or 2 statements, and returns it as JSON. The ratio is that to one statement.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

import aiohttp

from benchmarks.bare.databases import STORES, fresh
from benchmarks.bare.http_floor import bare_server
from benchmarks.remote_workers import add_runs, cpu_s, serving

CONNECTIONS: Final = 8
WRITERS: Final = 32
HOME: Final = "/api/workspaces/default"
JOBS: Final = f"{HOME}/agents/default/jobs"
RUNS: Final = f"{HOME}/runs"


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of request."""

    store: str
    request: str
    cpu_ms: float
    #: as a ratio to the bare server with one statement
    ratio: float
    per_second: float


Send = Callable[[int], Awaitable[Any]]


async def measure(pid: int, requests: int, send: Send, connections: int = CONNECTIONS) -> tuple[float, float]:
    """Return the CPU time per request in ms, and the requests per second."""
    numbers = iter(range(requests))

    async def connection() -> None:
        for number in numbers:
            await send(number)

    began, before = time.perf_counter(), cpu_s(pid)
    await asyncio.gather(*(connection() for _ in range(connections)))
    return 1000 * (cpu_s(pid) - before) / requests, requests / (time.perf_counter() - began)


@contextlib.asynccontextmanager
async def calls(
    address: str, key: str, connections: int = CONNECTIONS
) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """Return a function that sends a request and returns the JSON of the response."""
    headers = {"Authorization": f"Bearer {key}"}
    connector = aiohttp.TCPConnector(limit=connections)
    async with aiohttp.ClientSession(address, headers=headers, connector=connector) as session:

        async def call(method: str, path: str, body: object = None) -> Any:
            async with session.request(method, path, json=body) as response:
                content = await response.read()
                response.raise_for_status()
                return json.loads(content) if content else None

        yield call


WORK: Final = {"schedule": "@yearly", "target": {"kind": "pull"}, "overlapPolicy": "allow"}


async def measure_server(store: str, address: str, key: str, pid: int, requests: int) -> list[Row]:
    """Measure the requests of programs and workers."""
    rows: list[Row] = []
    async with calls(address, key) as call:
        work = WORK

        async def add(name: str, send: Send, number: int = requests) -> None:
            rows.append(Row(store, name, *_rounded(await measure(pid, number, send))))

        await call("POST", JOBS, {"name": "read", **work})
        run = await call("POST", f"{JOBS}/read/run", {})
        await add("GET job", lambda _: call("GET", f"{JOBS}/read"))
        await add("GET run", lambda _: call("GET", f"{RUNS}/{run['id']}"))
        claim = {"worker": "bench", "agents": ["nobody"]}
        await add("claim, nothing there", lambda _: call("POST", f"{RUNS}/claim", claim))
        await add("POST job", lambda number: call("POST", JOBS, {"name": f"new-{number}", **work}))
        await add("POST run", lambda _: call("POST", f"{JOBS}/read/run", {}))
        await add_runs(address, key, requests)
        claimed: list[dict[str, Any]] = []

        async def claim_one(_: int) -> None:
            claimed.extend((await call("POST", f"{RUNS}/claim", {"worker": "bench"}))["runs"])

        async def complete(number: int) -> None:
            taken = claimed[number]
            report = {"attempt": taken["attempt"], "status": "succeeded", "output": "x"}
            await call("POST", f"{RUNS}/{taken['id']}/complete", report)

        async def heartbeat(number: int) -> None:
            taken = claimed[number]
            await call("POST", f"{RUNS}/{taken['id']}/heartbeat", {"attempt": taken["attempt"]})

        await add("claim of one", claim_one)
        await add("heartbeat of one", heartbeat, len(claimed))
        await add("complete one", complete, len(claimed))
    return rows


async def measure_writers(
    store: str, address: str, key: str, pid: int, requests: int, writers: int
) -> list[Row]:
    """Measure writes that many clients send at once."""
    rows: list[Row] = []
    async with calls(address, key, writers) as call:

        async def add(name: str, send: Send, number: int = requests) -> None:
            measured = await measure(pid, number, send, writers)
            rows.append(Row(store, f"{name}, {writers} at once", *_rounded(measured)))

        await add("POST job", lambda number: call("POST", JOBS, {"name": f"many-{number}", **WORK}))
        await add("POST run", lambda number: call("POST", f"{JOBS}/many-{number}/run", {}))
        claimed: list[dict[str, Any]] = []
        while len(claimed) < requests:
            worker = f"bench-{len(claimed)}"
            claimed += (await call("POST", f"{RUNS}/claim", {"worker": worker, "limit": 50}))["runs"]

        def about(number: int, what: str, more: dict[str, object]) -> Awaitable[Any]:
            run = claimed[number]
            return call("POST", f"{RUNS}/{run['id']}/{what}", {"attempt": run["attempt"], **more})

        await add("heartbeat", lambda number: about(number, "heartbeat", {}))
        done: dict[str, object] = {"status": "succeeded", "output": "x"}
        await add("complete", lambda number: about(number, "complete", done))
    return rows


def _rounded(measured: tuple[float, float]) -> tuple[float, float, float]:
    cpu_ms, per_second = measured
    return round(cpu_ms, 3), 0.0, round(per_second, 1)


async def measure_bare(store: str, address: str, pid: int, requests: int) -> list[Row]:
    """Measure the bare server with one and two statements."""
    async with calls(address, "none") as call:
        rows = []
        for statements in (0, 1, 2):
            name = f"bare, {statements} statements"
            measured = await measure(pid, requests, lambda _, n=statements: call("GET", f"/rows/{n}"))  # type: ignore[misc]
            rows.append(Row(store, name, *_rounded(measured)))
        return rows


def run(store: str, database: str, requests: int, writers: int) -> list[Row]:
    """Measure one store."""
    with serving(database) as (address, key, pid):
        rows = asyncio.run(measure_server(store, address, key, pid, requests))
        rows += asyncio.run(measure_writers(store, address, key, pid, requests, writers))
    with bare_server(database) as (address, pid):
        bare = asyncio.run(measure_bare(store, address, pid, requests))
    floor = bare[1].cpu_ms
    return [
        Row(each.store, each.request, each.cpu_ms, round(each.cpu_ms / floor, 2), each.per_second)
        for each in (*bare, *rows)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=STORES)
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--writers", type=int, default=WRITERS)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows: list[Row] = []
    for store in [given.store] if given.store else STORES:
        with fresh(store) as database:
            rows += run(store, database, given.requests, given.writers)
    if given.json:
        print(json.dumps([asdict(row) for row in rows]))
        return
    print(f"{'store':9} {'request':24} {'CPU ms':>7} {'ratio':>6} {'per s':>8}")
    for row in rows:
        print(f"{row.store:9} {row.request:24} {row.cpu_ms:7.3f} {row.ratio:6.2f} {row.per_second:8.1f}")


if __name__ == "__main__":
    main()
