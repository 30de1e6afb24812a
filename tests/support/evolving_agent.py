"""An agent whose jobs have a recorded past, without an engine that adds to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

from tests.support.factories import tick
from tests.support.movable_clock import MovableClock, store_with
from tests.support.run_months import END, START, Recorded
from wakeful import Wakeful
from wakeful.service.auth.access import LOCAL
from wakeful.store.rows import JobRow
from wakeful.values.ids import first_id

Month = Callable[[], list[Recorded]]


class EvolvingAgent:
    """The agent `ada` with `evolution: suggest`, on a clock that the test moves."""

    def __init__(self, app: Wakeful, clock: MovableClock) -> None:
        self.app = app
        self.clock = clock
        self._runs = 0

    async def add(self, name: str = "work", schedule: object = "every 1h", **fields: object) -> JobRow:
        """Create a job."""
        document = {"name": name, "schedule": schedule, "target": {"kind": "echo"}, **fields}
        await self.app.services.jobs.create(LOCAL, "default", "ada", document)
        return await self.job(name)

    async def job(self, name: str = "work") -> JobRow:
        """Return a job of the agent."""
        found = await self.app.store.job("default", "ada", name)
        assert found is not None
        return found

    async def spend(self, month: Iterable[Recorded], days: int = 28) -> None:
        """Let these days pass, with the first days of a month of runs recorded."""
        shift = self.clock.now_ms() + 1_000 - START
        runs = [run for run in month if run.scheduled < START + days * (END - START) // 28]
        jobs = {name: await self.job(name) for name in {run.job for run in runs}}
        rows = []
        for run in runs:
            moved = replace(
                run,
                scheduled=run.scheduled + shift,
                fire=run.fire + shift,
                started=None if run.started is None else run.started + shift,
                finished=None if run.finished is None else run.finished + shift,
            )
            self._runs += 1
            rows.append(
                tick(
                    jobs[run.job], moved.scheduled, fire_ms=moved.fire, state=run.state, reason=run.reason,
                    id=f"{first_id(moved.scheduled)[:-12]}{self._runs:012x}", started_ms=moved.started,
                    finished_ms=moved.finished, attempt=run.attempt, due_ms=None, trigger=run.trigger,
                )
            )  # fmt: skip
        for first in range(0, len(rows), 5_000):
            await self.app.store.add_runs(rows[first : first + 5_000])
        self.clock.advance(timedelta(days=days))


@asynccontextmanager
async def evolving_agent(database: str) -> AsyncIterator[EvolvingAgent]:
    """Yield the agent on an empty database."""
    clock = MovableClock()
    app = Wakeful(store=store_with(database, clock), secret_key="a key for tests")
    await app.store.open()
    try:
        await app.services.agents.put(LOCAL, "default", "ada", {"evolution": "suggest"})
        yield EvolvingAgent(app, clock)
    finally:
        await app.store.close()
