"""A step of the engine that is cancelled or fails at any await returns its slots, runs, locks and checks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.databases import Database, SqliteDatabase, postgres
from tests.support.factories import NOW, SECOND, asked, asleep, job
from tests.support.interruptions import cancel_at_each_await, fail_at_each_call
from tests.support.waiting import PATIENCE
from wakeful.engine.engine import Engine, EngineConfig
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.loop import Loop
from wakeful.engine.metrics import Metrics
from wakeful.launch.function import FunctionLauncher
from wakeful.store.port import Store
from wakeful.store.rows import RunFilter

_LANES = {"cron": 2}
_CHECKED = '{"target":{"kind":"function","name":"digest"},"verify":{"kind":"function","name":"is-done"}}'
_DAILY = '{"schedule":{"everyMs":86400000,"kind":"every"}}'
_UNFINISHED = ("pending", "retrying", "running")


@pytest.fixture(params=["sqlite", "postgres"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    made: Database = SqliteDatabase(tmp_path / "wakeful.db") if request.param == "sqlite" else postgres()
    yield made
    await made.close()


class _Replica:
    """An engine whose loops step only when a test says so."""

    def __init__(self, database: Database, store: Store) -> None:
        self._database = database
        self.store = store
        functions = FunctionLauncher()
        functions.register("digest", self._digest)
        functions.register("is-done", lambda: True)
        self._launchers = LauncherRegistry([functions])
        self._engine = Engine(store, self._launchers, EngineConfig(lanes=_LANES), Metrics(), ())
        self._worker = self._engine._worker
        self._made = 0
        self._starts = 0
        self._lost: set[str] = set()

    async def open(self) -> None:
        await self._launchers.open()
        await self._engine._rescuer.heartbeat()

    async def _digest(self) -> None:
        self._starts += 1
        await asyncio.sleep(0)

    def loop(self, name: str) -> Loop:
        """Return a loop of the engine."""
        (found,) = (each for each in self._engine._loops if each.name == name)
        return found

    async def prepare(self) -> None:
        """Add a due job, runs that wait, and one to verify."""
        self._made += 1
        fields = {"policy": "{}", "timing": _DAILY}
        waits = asleep(f"waits-{self._made}", **fields)
        checked = asleep(f"checked-{self._made}", **fields, work=_CHECKED)
        await self.store.create_jobs([waits, checked])
        await self.store.add_runs([asked(checked, serial=False)])
        await self._finish_some()
        await self.store.add_runs([asked(waits, serial=False) for _ in range(6)])
        await self.store.create_jobs([job(f"due-{self._made}", **fields)])

    async def prepare_outcomes(self) -> None:
        """Do the same, with outcomes that are not written."""
        await self.prepare()
        await self.loop("dispatcher").step()
        await self._settled()

    async def _finish_some(self) -> None:
        """Run what is due."""
        await self.loop("dispatcher").step()
        await self._settled()
        await self.loop("completer").step()
        await self._settled()

    async def _settled(self) -> None:
        """Wait until no attempt and no check is running."""
        verifier = self._engine._verifier
        while self._worker._runners.tasks or self._worker._runners._ready or verifier._checks:
            await asyncio.sleep(0.001)

    async def check(self) -> None:
        """Check that this replica can do all the work, and then holds nothing."""
        async with asyncio.timeout(PATIENCE):
            while (
                await self.store.runs(RunFilter("default", states=_UNFINISHED))
                or (await self.store.next_wake_ms() or NOW) <= self._database.clock.ms
            ):
                await self.loop("planner").step()
                await self._finish_some()
                await self.loop("verifier").step()
                await self._settled()
        worker, slots = self._worker, self._worker._slots
        assert slots._free == slots.sizes
        assert slots.waiting() == []
        assert not any(slots._prefetching.values())
        assert worker.in_flight == {}
        assert not worker._claiming.locked()
        assert not worker.taking.locked()
        assert await self.store.runs(RunFilter("default", states=("failed",))) == []

    async def prepare_lost(self) -> None:
        """Add runs of two workers that have died, one of them with two runs, and one that no one claimed."""
        self._made += 1
        fields = {"policy": "{}", "timing": _DAILY}
        lost = asleep(f"lost-{self._made}", **fields, work=_CHECKED.partition(',"verify"')[0] + "}")
        await self.store.create_jobs([lost])
        runs = [asked(lost, serial=False) for _ in range(3)]
        self._lost = {run.id for run in runs}
        await self.store.add_runs(runs)
        capabilities = self._launchers.capabilities()
        now_ms, dead = self._database.clock.ms, f"dead-{self._made}"
        await self.store.take(now_ms, f"{dead}-alone", {"cron": 1}, capabilities)
        assert len(await self.store.take(now_ms, dead, {"cron": 5}, capabilities)) == 2
        for _ in range(4):  # others are not spared, because this replica has no outage
            self._database.clock.ms += 10 * SECOND
            await self._engine._rescuer.heartbeat()

    async def check_rescued(self) -> None:
        """Check that each of these runs was rescued once, and then succeeded."""
        self._database.clock.ms += 5 * SECOND
        async with asyncio.timeout(PATIENCE):
            await self.loop("rescuer").step()
            await self.check()
        runs = [await self.store.run(run_id) for run_id in self._lost]
        assert [(run.state, run.attempt) for run in runs if run is not None] == [("succeeded", 2)] * 3
        assert sorted(run.failed_attempts for run in runs if run is not None) == [0, 0, 1]

    async def check_after_leases(self) -> None:
        """Do the same when the leases of verifications have ended."""
        self._database.clock.ms += 120 * SECOND
        await self._engine._rescuer.heartbeat()
        await self.check()


@pytest.fixture
async def replica(database: Database) -> _Replica:
    replica = _Replica(database, await database.connect())
    await replica.open()
    return replica


@pytest.mark.parametrize("name", ["planner", "dispatcher", "completer", "verifier"])
@pytest.mark.parametrize("fault", ["cancelled", "failed"])
async def test_a_step_that_is_interrupted_returns_what_it_took(replica: _Replica, fault: str, name: str):
    step = replica.loop(name).step
    prepare = replica.prepare_outcomes if name == "completer" else replica.prepare
    if fault == "cancelled":
        assert await cancel_at_each_await(step, replica.check, prepare=prepare) >= 2
    else:
        check = replica.check_after_leases
        assert await fail_at_each_call(replica.store, step, check, prepare=prepare) >= 2


@pytest.mark.parametrize("fault", ["cancelled", "failed"])
async def test_a_rescue_that_is_interrupted_counts_no_loss_twice(replica: _Replica, fault: str):
    step, prepare, check = replica.loop("rescuer").step, replica.prepare_lost, replica.check_rescued
    if fault == "cancelled":
        assert await cancel_at_each_await(step, check, prepare=prepare) >= 2
    else:
        assert await fail_at_each_call(replica.store, step, check, prepare=prepare) >= 6


async def test_a_claim_that_becomes_uncertain_during_a_release_stays_so(
    replica: _Replica, monkeypatch: pytest.MonkeyPatch
):
    worker, release = replica._worker, replica.store.release

    async def release_while_the_lease_expires(*arguments: Any, **options: Any) -> int:
        released = await release(*arguments, **options)
        worker._drop_unstarted()
        return released

    monkeypatch.setattr(replica.store, "release", release_while_the_lease_expires)
    worker.uncertain_claims = 2
    await replica._engine._dispatcher._release_unknown()
    assert worker.uncertain_claims == 1


async def test_a_verifier_ends_although_the_database_does_not_respond(
    replica: _Replica, monkeypatch: pytest.MonkeyPatch
):
    """What it was checking is checked again after its lease."""
    await replica.prepare()
    writing = asyncio.Event()

    async def hang(*_: object, **__: object) -> bool:
        writing.set()
        await asyncio.Event().wait()
        return True

    for method in ("finish_verification", "postpone_verification"):
        monkeypatch.setattr(replica.store, method, hang)
    monkeypatch.setattr("wakeful.engine.verifier._GRACE_S", 0.05)
    running = asyncio.create_task(replica.loop("verifier").run())
    async with asyncio.timeout(PATIENCE):
        await writing.wait()
    running.cancel()
    await asyncio.wait({running}, timeout=PATIENCE / 4)
    assert running.cancelled()
