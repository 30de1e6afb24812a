"""Replicas on one database share the runs and start each run once."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.integration.conftest import SELDOM, STORES, NewApp
from tests.support.replica import another_process, entries
from tests.support.waiting import PATIENCE, epoch_ms, eventually, over, runs_of, soon, the_run_of
from wakeful import EngineConfig, Function, Launch, NotFound, Run, Wakeful

IDLE = EngineConfig(tick_ms=100, heartbeat_ms=200, lanes={})


class Work:
    """A function of several replicas that records its calls and returns when `let_go` is set."""

    def __init__(self, *apps: Wakeful, held: bool = False) -> None:
        self.let_go = asyncio.Event()
        if not held:
            self.let_go.set()
        self.calls: list[tuple[int, Launch]] = []
        self.at_once = 0
        self.most_at_once = 0
        for number, app in enumerate(apps):
            app.function("work")(self._of(number))

    def _of(self, number: int):
        async def work(run: Launch) -> None:
            self.calls.append((number, run))
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            await self.let_go.wait()
            await asyncio.sleep(0)
            self.at_once -= 1

        return work


async def _all_runs(app: Wakeful, names: list[str]) -> list[Run]:
    """Wait until these jobs have no more ticks and their runs have finished, and return the runs.

    Jobs that are paused would not do: a pause may cancel a tick while another replica starts it.
    """

    async def have_ended() -> bool:
        return not any([(await app.jobs.get(name)).enabled for name in names])

    await eventually(have_ended)
    return [await over(app, run.id) for name in names for run in await runs_of(app, name)]


async def test_every_tick_runs_once_on_two_replicas(new_app: NewApp):
    one, other = new_app(), new_app()
    work = Work(one, other)
    names = [f"job-{number}" for number in range(10)]
    async with one, other:
        for name in names:
            await one.jobs.create(
                name, schedule="every 1s", start_at=soon(), max_runs=3, target=Function("work")
            )
        runs = await _all_runs(one, names)
    ticks = Counter((run.job_id, epoch_ms(run.scheduled_at)) for run in runs)
    assert set(ticks.values()) == {1}
    calls = Counter(run.idempotency_key for _, run in work.calls)
    assert calls == Counter(run.idempotency_key for run in runs if run.state == "succeeded")
    assert {run.attempt for run in runs} <= {0, 1}


@pytest.mark.slow
async def test_every_tick_runs_once_in_two_processes(new_app: NewApp, database: str, tmp_path: Path):
    journal = tmp_path / "journal"
    names = [f"job-{number}" for number in range(5)]
    async with new_app(config=IDLE) as idle:
        with another_process(database, journal) as one, another_process(database, journal) as other:
            for name in names:
                await idle.jobs.create(name, schedule="every 1s", max_runs=4, target=Function("note"))
            runs = await _all_runs(idle, names)
            processes = {str(one.pid), str(other.pid)}
    written = Counter(key for _, key, _ in entries(journal))
    assert written == Counter(run.idempotency_key for run in runs if run.state == "succeeded")
    assert set(written.values()) == {1}
    assert {process for process, _, _ in entries(journal)} <= processes


async def test_runs_are_shared_between_replicas(new_app: NewApp):
    narrow = EngineConfig(tick_ms=20, heartbeat_ms=200, lanes={"cron": 2})
    one, other = new_app(config=narrow), new_app(config=narrow)
    work = Work(one, other, held=True)
    async with one, other:
        await one.jobs.create("job", schedule=SELDOM, target=Function("work"))
        runs = [await one.jobs.run("job") for _ in range(30)]
        await eventually(lambda: {number for number, _ in work.calls} == {0, 1})
        work.let_go.set()
        for run in runs:
            assert (await over(other, run.id)).state == "succeeded"
    assert Counter(run.id for _, run in work.calls) == Counter(run.id for run in runs)
    assert {number for number, _ in work.calls} == {0, 1}


async def test_backfilled_runs_are_serialized_in_order_across_replicas(new_app: NewApp):
    one, other = new_app(), new_app()
    work = Work(one, other)
    noon = datetime(2024, 6, 1, 12, tzinfo=UTC)
    async with one, other:
        await one.jobs.create("job", schedule="0 * * * *", target=Function("work"), enabled=False)
        assert await other.jobs.backfill("job", noon, noon + timedelta(hours=14)) == 15
        for run in await runs_of(one, "job"):
            assert (await over(one, run.id)).state == "succeeded"
    assert [run.scheduled_at for _, run in work.calls] == [noon + timedelta(hours=n) for n in range(15)]
    assert work.most_at_once == 1


async def test_a_tick_overlaps_a_run_of_another_replica(new_app: NewApp):
    one, other = new_app(), new_app()
    work = Work(one, other, held=True)
    async with one, other:
        await one.jobs.create("job", schedule="every 1s", start_at=soon(), target=Function("work"))

        async def skipped() -> bool:
            return any(run.state == "skipped" for run in await runs_of(one, "job"))

        await eventually(skipped)
        work.let_go.set()
        await eventually(lambda: len(work.calls) >= 2)
        await one.jobs.pause("job")
    assert work.most_at_once == 1


async def test_ticks_continue_when_a_replica_stops(new_app: NewApp):
    one, other = new_app(), new_app()
    work = Work(one, other)
    async with other:
        async with one:
            await one.jobs.create("job", schedule="every 1s", start_at=soon(), target=Function("work"))
            await eventually(lambda: work.calls)
        before = len(work.calls)
        await eventually(lambda: len(work.calls) >= before + 2)
        runs = [run for run in await runs_of(other, "job") if run.state != "skipped"]
    ticks = [epoch_ms(run.scheduled_at) for run in runs]
    assert len(set(ticks)) == len(ticks)
    assert {number for number, _ in work.calls[before:]} == {1}


async def test_a_job_change_on_one_replica_applies_to_the_other(new_app: NewApp):
    one, other = new_app(config=IDLE), new_app()
    work = Work(one, other)
    async with one, other:
        await one.jobs.create("job", schedule="every 1s", start_at=soon(), target=Function("work"))
        await eventually(lambda: work.calls)
        await one.jobs.delete("job")
        with pytest.raises(NotFound):
            await other.jobs.get("job")
        before = len(work.calls)
        await one.jobs.create("later", schedule="every 1s", target=Function("work"))
        later = [run for _, run in work.calls if run.job == "later"]
        await eventually(lambda: sum(run.job == "later" for _, run in work.calls) >= 3)
        assert not later
        # A tick that was recorded before the job was deleted may still run.
        assert sum(run.job == "job" for _, run in work.calls) <= before + 1
    assert {number for number, _ in work.calls} == {1}


@pytest.mark.parametrize("how", ["stop", "replace"])
async def test_a_run_ended_by_another_replica_is_cancelled_within_a_tick(new_app: NewApp, how: str):
    """The holder plans nothing and sends a heartbeat once an hour."""
    holder, other = (
        new_app(config=EngineConfig(tick_ms=100, heartbeat_ms=3_600_000, batch=0)),
        new_app(config=IDLE),
    )
    started, cancelled = asyncio.Event(), asyncio.Event()

    @holder.function()
    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with holder, other:
        await holder.jobs.create("job", schedule=SELDOM, target=Function("work"))
        run = await holder.jobs.run("job")
        async with asyncio.timeout(PATIENCE):
            await started.wait()
        if how == "stop":
            await other.runs.stop(run.id)
        else:
            await other.jobs.update(
                "job",
                overlap_policy="replace",
                schedule="every 1s",
                start_at=soon(),
                target=Function("absent"),
            )
        async with asyncio.timeout(PATIENCE):
            await cancelled.wait()
        assert (await other.runs.get(run.id)).state == "cancelled"


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("database", [each for each in STORES if each == "postgres"], indirect=True)
async def test_a_planning_pass_that_lost_a_deadlock_starts_only_what_it_writes(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch, slots: int
):
    import asyncpg

    from wakeful.store.postgres import insert_runs, planning

    insert = insert_runs.insert_runs
    lost: list[str] = []

    async def insert_after_a_deadlock(db, events, now_ms, runs):
        if runs and not lost:
            lost.extend(run.id for run in runs)
            raise asyncpg.DeadlockDetectedError("deadlock detected")
        return await insert(db, events, now_ms, runs)

    monkeypatch.setattr(planning, "insert_runs", insert_after_a_deadlock)
    app = new_app(config=EngineConfig(tick_ms=100, heartbeat_ms=200, lanes={"cron": slots}))
    work = Work(app)
    async with app:
        at = {"kind": "at", "atMs": soon(3_000)}
        await app.jobs.create("once", schedule=at, target=Function("work"), delete_after_run=False)
        run = await over(app, (await the_run_of(app, "once")).id)
        again = await over(app, (await app.jobs.run("once")).id)
    assert len(lost) == 1
    assert [launch.id for _, launch in work.calls] == [run.id, again.id]
