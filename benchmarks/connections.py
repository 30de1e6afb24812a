"""What it saves to keep connections to PostgreSQL between calls (`store/postgres/kept_connections.py`).

    python -m benchmarks.connections
    python -m benchmarks.connections --requests 2000 --rounds 5 --json

Two servers on one database answer the same requests in turns: one keeps connections, the other takes one from
asyncpg's pool for each call and returns it after it. The CPU time is that of the server for each request, the
median of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any
from unittest.mock import patch

from benchmarks.bare.databases import fresh
from benchmarks.remote_workers import serving
from benchmarks.requests import JOBS, RUNS, WORK, calls, measure

REQUESTS, ROUNDS = 1_000, 5
#: The argument that starts a server which keeps no connections; those of `wakeful` follow it.
WITHOUT = "--without"


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of request, in ms of CPU time."""

    request: str
    kept: float
    not_kept: float

    @property
    def saved(self) -> float:
        """The part of the CPU time that is saved."""
        return 1 - self.kept / self.not_kept


def serve_without() -> None:
    """Run `wakeful` with the arguments that follow, without kept connections."""
    from wakeful.cli import main
    from wakeful.store.postgres.kept_connections import KeptConnections

    def start_return(
        self: KeptConnections, db: Any, *, failed: bool = False, began: bool = False
    ) -> asyncio.Task[None]:
        self._fresh.discard(db)
        return self._start_return(db, undo=failed and began)

    with patch.object(KeptConnections, "give_back", start_return):
        sys.argv = ["wakeful", *sys.argv[sys.argv.index(WITHOUT) + 1 :]]
        main()


async def measure_both(servers: list[tuple[str, str, int]], requests: int, rounds: int) -> list[Row]:
    """Measure requests to both servers, in turns."""
    spent: dict[str, tuple[list[float], list[float]]] = {}
    async with calls(*servers[0][:2]) as first, calls(*servers[1][:2]) as second:
        await first("POST", JOBS, {"name": "read", **WORK})
        run = await first("POST", f"{JOBS}/read/run", {})
        Send = Callable[[Callable[..., Awaitable[Any]]], Awaitable[Any]]
        kinds: dict[str, Send] = {
            "GET run": lambda call: call("GET", f"{RUNS}/{run['id']}"),
            "GET job": lambda call: call("GET", f"{JOBS}/read"),
            "POST run": lambda call: call("POST", f"{JOBS}/read/run", {}),
        }
        for _ in range(rounds):
            for name, send in kinds.items():
                times = spent.setdefault(name, ([], []))
                for number, call in enumerate((first, second)):
                    cpu_ms, _ = await measure(servers[number][2], requests, lambda _, c=call, s=send: s(c))  # type: ignore[misc]
                    times[number].append(cpu_ms)
    return [Row(name, *map(statistics.median, times)) for name, times in spent.items()]


def main() -> None:
    if WITHOUT in sys.argv:
        serve_without()
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    without = ("-m", "benchmarks.connections", WITHOUT)
    with (
        fresh("postgres") as database,
        serving(database) as kept,
        serving(database, without, kept[1]) as other,
    ):
        rows = asyncio.run(measure_both([kept, other], given.requests, given.rounds))
    if given.json:
        print(json.dumps([asdict(row) for row in rows]))
        return
    print(f"{'request':12}{'kept':>9}{'not kept':>10}{'saved':>8}")
    for row in rows:
        print(f"{row.request:12}{row.kept:6.3f} ms{row.not_kept:7.3f} ms{row.saved:8.1%}")


if __name__ == "__main__":
    main()
