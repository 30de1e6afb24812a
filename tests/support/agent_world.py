"""Processes with agent classes on one database, whose time a test moves."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from tests.support.movable_clock import MovableClock, store_with
from tests.support.waiting import eventually, over
from wakeful import Agent, EngineConfig, Signal, Wakeful
from wakeful.job.job import JobRecord
from wakeful.model import Run
from wakeful.service.auth.access import LOCAL

#: Monday, 05:51 in New York. A slow test does not reach 05:55 by itself.
START = datetime(2027, 3, 1, 10, 51, tzinfo=UTC)
#: The clock jumps while a process lives, so leases last longer than any jump.
CONFIG = EngineConfig(tick_ms=50, heartbeat_ms=200, lease_ms=10**12, retention_days=3650)


def utc(day: int, hour: int, minute: int = 0) -> datetime:
    """Return an instant in March 2027, when New York is five hours behind UTC."""
    return datetime(2027, 3, day, hour, minute, tzinfo=UTC)


class AgentWorld:
    """A database, a clock, and processes that share both."""

    def __init__(self, database: str) -> None:
        self.database = database
        self.clock = MovableClock()
        self.clock.move_to(START)

    def process(self, *classes: type[Agent], config: EngineConfig = CONFIG) -> Wakeful:
        """Return a process that has these classes."""
        app = Wakeful(store=store_with(self.database, self.clock), config=config, secret_key="k" * 32)
        for cls in classes:
            app.agent(cls)
        return app

    def move_to(self, when: datetime) -> None:
        """Move the clock to a moment after this instant, at which a tick is due."""
        self.clock.move_to(when + timedelta(milliseconds=60))


async def handled(app: Wakeful, agent: str, signal: Signal | str, instance: str = "default") -> Run:
    """Send a signal, and wait until its run is over."""
    return await over(app, (await app.agents.send(agent, instance, signal)).id)


async def schedules(app: Wakeful, agent: str, instance: str = "default") -> dict[tuple[str, str], JobRecord]:
    """Return the jobs of the schedules of an instance, by origin and id."""
    details = await app.services.agents.instances.get(LOCAL, "default", agent, instance)
    found: dict[tuple[str, str], JobRecord] = {}
    for job in details.schedules:
        assert job.schedule_key is not None
        found[job.schedule_key.origin, job.schedule_key.schedule_id] = job
    return found


async def runs_of(
    app: Wakeful, agent: str, signal: str | None = None, instance: str | None = None
) -> list[Run]:
    """Return the runs of an agent, oldest first; of one type of signals, and of one instance."""
    found = await app.runs.of(agent).list(limit=1000)
    return [
        run
        for run in reversed(found)
        if signal in (None, run.signal) and instance in (None, run.instance or "default")
    ]


async def ended(
    app: Wakeful, agent: str, signal: str, count: int = 1, instance: str | None = None
) -> list[Run]:
    """Wait until an agent has so many runs of this type, all of them finished. Returns them, oldest first."""

    async def look() -> list[Run]:
        runs = await runs_of(app, agent, signal, instance)
        done = [run for run in runs if run.finished_at is not None]
        return runs if len(done) >= count and len(done) == len(runs) else []

    return await eventually(look)


async def has_state(
    app: Wakeful, agent: str, check: Callable[[dict[str, object]], bool], instance: str = "default"
) -> dict[str, object]:
    """Wait until the state of an instance fulfils a condition, and return it."""

    async def look() -> dict[str, object] | None:
        state = await app.agents.state(agent, instance)
        return state if check(state) else None

    found = await eventually(look)
    assert found is not None
    return found
