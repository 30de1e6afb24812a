"""Clients of replicas: one creates jobs, one is an executor. They record what was acknowledged.

They use the replicas in turn, and retry after an error, as a client behind a load balancer does.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.support.served_replica import ServedReplica

#: A leap day: these jobs do not run.
_SELDOM = "0 0 29 2 *"


class Traffic:
    """What was acknowledged, by these clients."""

    def __init__(self, replicas: Sequence[ServedReplica]) -> None:
        self.replicas = list(replicas)
        self.created: list[str] = []
        self.completed: list[str] = []
        self._turn = itertools.count()

    async def _request(self, path: str, body: object) -> tuple[int, Any]:
        replica = self.replicas[next(self._turn) % len(self.replicas)]
        status, said = await replica.request("POST", path, body)
        assert status in (0, 200, 201, 404, 409, 503), (path, status, said)
        return status, said

    async def create(self) -> None:
        """Create jobs, one after the other."""
        for number in itertools.count():
            name = f"created-{number}"
            status, _ = await self._request("/agents/default/jobs", {"name": name, "schedule": _SELDOM})
            if status == 201:
                self.created.append(name)
            await asyncio.sleep(0.05)

    async def execute(self) -> None:
        """Claim runs and complete them."""
        while True:
            status, said = await self._request("/runs/claim", {"worker": "w", "limit": 10, "waitMs": 200})
            for run in said["runs"] if status == 200 else ():
                outcome = {"attempt": run["attempt"], "status": "succeeded", "output": run["id"]}
                status, _ = await self._request(f"/runs/{run['id']}/complete", outcome)
                if status == 200:
                    self.completed.append(run["id"])
            await asyncio.sleep(0.05)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run both clients."""
        tasks = [asyncio.create_task(self.create()), asyncio.create_task(self.execute())]

        async def ended() -> None:
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, Exception):
                    raise result

        try:
            yield
        finally:
            await ended()


def uncovered(ticks: Sequence[tuple[int, int, int]], interval_ms: int) -> list[str]:
    """Return the gaps and duplicates in the ticks of a job: (first instant, last instant, number).

    >>> uncovered([(0, 0, 1), (1000, 3000, 3), (4000, 4000, 1)], 1000)
    []
    >>> uncovered([(0, 0, 1), (2000, 2000, 1), (2000, 2000, 1)], 1000)
    ['2000 instead of 1000', '2000 instead of 3000']
    """
    wrong = []
    expected = min(ticks)[0]
    for first, last, number in sorted(ticks):
        if first != expected:
            wrong.append(f"{first} instead of {expected}")
        if last - first != (number - 1) * interval_ms:
            wrong.append(f"{number} from {first} to {last}")
        expected = last + interval_ms
    return wrong
