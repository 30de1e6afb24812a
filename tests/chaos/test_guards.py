"""Each guard is removed once, to show that it is effective and that the checker reports its absence.

Each test runs twice: with the guard the fault has no effect, without it there are complaints.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.checker import Findings, check
from tests.chaos.jobs import Life, Plain, Rules, Stretch
from tests.chaos.launches import Launched, read_launches
from tests.chaos.records import ask, read_records, watch
from tests.chaos.work import LEAD_MS, build
from tests.support.postgres_server import fresh_database
from tests.support.waiting import epoch_ms
from wakeful import EngineConfig, Wakeful
from wakeful.job.start_rules import Capabilities
from wakeful.run.consequences import Consequences, consequences
from wakeful.run.outcome import Finished
from wakeful.store.port import Store
from wakeful.store.rows import BeatResult, TakenRun
from wakeful.values.clock import SteeredClock

#: Upper limit of every wait, in seconds.
PATIENCE = 120.0
LEASE_MS = 1_000
RARELY = Plain(every_ms=3_600_000)

with_and_without = pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])


class Stage:
    """A database, replicas in this process, and one job."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._replicas = 0
        self.url = fresh_database()

    async def replica(self, *, places: int = 30) -> Wakeful:
        self._replicas += 1
        config = EngineConfig(tick_ms=100, heartbeat_ms=100, lease_ms=LEASE_MS, lanes={"cron": places})
        app = build(self.url, self._folder / f"{self._replicas}.journal", config=config)
        return await self._stack.enter_async_context(app)

    async def create(self, app: Wakeful, schedule: Plain, rules: Rules) -> None:
        document = {"name": "job", "schedule": schedule.document(), **rules.document()}
        (saved,) = await app.jobs.create_many([document])
        made_ms = epoch_ms(saved.created_at)
        self.life = Life(saved.id, "job", rules, [Stretch(schedule, made_ms, made_ms)])

    def launches(self) -> list[Launched]:
        return read_launches(self._folder)

    async def ask(self, query: str) -> object:
        return await ask(self.url, query)

    async def end(self, app: Wakeful) -> Findings:
        """Pause the job, wait for its runs to end, and run the checker."""
        self.life.stretches[-1].end(epoch_ms((await app.jobs.pause("job")).updated_at))
        await until(lambda: self.ask("SELECT count(*) = 0 FROM live_runs"))
        await until(lambda: self._all_ended())
        records = await read_records(self.url)
        return check([self.life], records, self.launches(), lead_ms=LEAD_MS, lease_ms=LEASE_MS)

    async def _all_ended(self) -> bool:
        return all(launch.end is not None for launch in self.launches())


async def until(check: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await check():
            await asyncio.sleep(0.02)


@pytest.fixture
async def stage(tmp_path: Path):
    async with AsyncExitStack() as stack:
        stage = Stage(tmp_path, stack)
        await watch(stage.url)
        yield stage


@with_and_without
async def test_the_unique_index_prevents_a_tick_from_being_recorded_twice(
    stage: Stage, guarded: bool
) -> None:
    app = await stage.replica()
    await stage.create(app, Plain(every_ms=1000), Rules(overlap="allow"))
    await until(lambda: stage.ask("SELECT count(*) > 0 FROM runs"))
    if not guarded:
        await stage.ask("DROP INDEX runs_tick")
    await stage.ask("UPDATE cursors SET next_at = next_at - interval '1 s', wake_at = now()")
    await until(lambda: stage.ask("SELECT wake_at > now() FROM cursors"))
    found = await stage.end(app)
    assert bool(found.doubled) is not guarded
    assert found.complaints == found.doubled


@with_and_without
async def test_the_fence_prevents_a_worker_considered_dead_from_writing(
    stage: Stage, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = await stage.replica(places=1)
    monkeypatch.setattr(silent.store, "beat", _unrecorded_beat)
    if not guarded:
        finish = _unfenced(silent.store)

        async def finish_and_take(*outcomes: Any) -> tuple[set[str], list[TakenRun]]:
            return await finish(*outcomes[:3]), []

        monkeypatch.setattr(silent.store, "finish", finish)
        monkeypatch.setattr(silent.store, "finish_and_take", finish_and_take)
    await stage.create(silent, RARELY, Rules(ms=2000))
    await silent.jobs.run("job")
    await until(lambda: _soon(len(stage.launches()) == 1))
    other = await stage.replica()
    await until(lambda: _soon(len(stage.launches()) == 2))
    found = await stage.end(other)
    assert found.rescues >= 1, "more of them if the machine is busy"
    assert bool(found.complaints) is not guarded


@with_and_without
async def test_the_lease_prevents_the_rescue_of_runs_of_a_live_worker(stage: Stage, guarded: bool) -> None:
    app = await stage.replica()
    await stage.create(app, RARELY, Rules(ms=2000))
    await app.jobs.run("job")
    await until(lambda: stage.ask("SELECT count(*) > 10 FROM beats"))
    engine, now_ms = app._engine, app.store.clock.now_ms()
    assert engine is not None
    dead_before_ms = now_ms - LEASE_MS if guarded else now_ms + LEASE_MS
    await app.store.rescue(now_ms, dead_before_ms, 10, engine._rescuer._judge, consequences)
    found = await stage.end(app)
    assert found.rescues == (0 if guarded else 1)
    assert [complaint.rpartition(", ")[2] for complaint in found.complaints] == (
        [] if guarded else ["which was alive"]
    )


@with_and_without
async def test_the_database_clock_prevents_a_replica_with_a_fast_clock_from_launching_early(
    stage: Stage, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    steer = SteeredClock.steer
    if not guarded:
        monkeypatch.setattr(SteeredClock, "steer", lambda clock, now_us: steer(clock, now_us + 300_000_000))
    app = await stage.replica()
    await stage.create(app, Plain(every_ms=1000), Rules())
    await until(lambda: _soon(len(stage.launches()) > 0))
    found = await stage.end(app)
    # A clock that jumps can also make a live worker look dead.
    assert any(complaint.endswith("ms too early") for complaint in found.complaints) is not guarded
    assert bool(found.complaints) is not guarded


def _unfenced(store: Store) -> Callable[..., Awaitable[set[str]]]:
    """Return a `store.finish` without the fence on worker and attempt."""
    fenced = store.finish

    async def finish(_: str, finished: Sequence[Finished], consequences: Consequences) -> set[str]:
        for each in finished:
            run = await store.run(each.run_id)
            assert run is not None
            await fenced(run.worker or "", [each._replace(attempt=run.attempt)], consequences)
        return {each.run_id for each in finished}

    return finish


async def _unrecorded_beat(
    worker: str, now_ms: int, holding: Sequence[str], capabilities: Capabilities | None = None
) -> BeatResult:
    """Replacement of `store.beat` whose heartbeats do not reach the database."""
    return BeatResult(set())


async def _soon(true: bool) -> bool:
    return true
