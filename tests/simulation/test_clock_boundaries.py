"""Ticks, budgets, active hours and counts at the edges of days, months and hours, and a clock that is set.

Each case plans as the engine does, a lead ahead of the instant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.simulation.timeline import DAY, HOUR, MINUTE, NAME, Timeline
from tests.support.databases import Database, SqliteDatabase, postgres
from tests.support.effort import part

LEAD = 50
#: Where a day begins in UTC: an ordinary one, a month, a year, a leap day, and clock changes in Berlin.
MIDNIGHTS = [
    datetime(2027, 1, 15, tzinfo=UTC),
    datetime(2027, 2, 1, tzinfo=UTC),
    datetime(2028, 1, 1, tzinfo=UTC),
    datetime(2028, 2, 29, tzinfo=UTC),
    datetime(2027, 3, 28, tzinfo=UTC),
    datetime(2027, 10, 31, tzinfo=UTC),
]


def run_on(path: Path | None, story: Callable[[Database], Awaitable[None]]) -> None:
    """Run a story on SQLite, or without a path on PostgreSQL."""
    database: Database = postgres() if path is None else SqliteDatabase(path / "wakeful.db")

    async def told() -> None:
        try:
            await story(database)
        finally:
            await database.close()

    asyncio.run(told())


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


async def use_up_budget(database: Database, timeline: Timeline) -> None:
    """Record that the job has used its budget of today."""
    job, day = await timeline.job(), database.clock.ms // DAY
    values = f"({day}, 'default', 'default', '{job.id}', 'tokensPerDay', 1)"
    await database.execute(
        f"INSERT INTO budget_blocks (day, workspace, agent, job, cap, most) VALUES {values}"
    )
    timeline.budgets.invalidate()
    await timeline.budgets.refresh(database.clock.ms)


@pytest.mark.parametrize("midnight", part(MIDNIGHTS), ids=str)
@pytest.mark.parametrize("jitter_ms", [0, 5 * MINUTE])
def test_a_budget_of_yesterday_does_not_skip_a_tick_of_today(
    tmp_path: Path, midnight: datetime, jitter_ms: int
) -> None:
    async def story(database: Database) -> None:
        database.clock.ms = ms(midnight) - HOUR
        timeline = Timeline(database, await database.connect(), LEAD)
        await timeline.create(
            schedule="0 0 * * *", jitterMs=jitter_ms, overlapPolicy="allow", budget={"tokensPerDay": 100}
        )
        used: set[int] = set()
        for _ in range(4):
            job = await timeline.job()
            assert job.wake_ms is not None
            database.clock.ms = job.wake_ms - LEAD + 10  # ahead of its instant
            await timeline.plan()
            await timeline.check(planned=False)
            run = (await timeline.records())[-1]
            assert run.fire_ms == job.wake_ms
            day = job.wake_ms // DAY
            assert run.reason == ("budget" if day in used else None)
            database.clock.ms = job.wake_ms
            if day not in used:
                used.add(day)
                await use_up_budget(database, timeline)
            assert timeline.budgets.find("default", "default", job.id, (day + 1) * DAY - 1) is not None
            assert timeline.budgets.find("default", "default", job.id, (day + 1) * DAY) is None

    run_on(tmp_path, story)


@pytest.mark.parametrize("midnight", MIDNIGHTS[1:3], ids=str)
@pytest.mark.parametrize("on", ["sqlite", "postgres"])
def test_a_used_up_budget_holds_on_its_day_whichever_way_the_clock_is_set(
    tmp_path: Path, on: str, midnight: datetime
) -> None:
    async def story(database: Database) -> None:
        database.clock.ms = ms(midnight) - HOUR
        timeline = Timeline(database, await database.connect(), LEAD)
        await timeline.create(schedule="* * * * *", overlapPolicy="allow", budget={"tokensPerDay": 100})
        await use_up_budget(database, timeline)
        job, today = await timeline.job(), ms(midnight) // DAY - 1
        for by_ms in (30 * MINUTE, 2 * HOUR, -2 * HOUR, DAY, -2 * DAY, DAY, -20 * MINUTE, HOUR, -HOUR):
            database.clock.ms += by_ms
            now_ms = database.clock.ms
            await timeline.budgets.refresh(now_ms)
            blocked = timeline.budgets.find("default", "default", job.id, now_ms) is not None
            assert blocked == (now_ms // DAY == today), f"at {now_ms}"

    run_on(tmp_path if on == "sqlite" else None, story)


def test_a_tick_before_midnight_is_skipped_by_the_budget_of_its_day(tmp_path: Path) -> None:
    async def story(database: Database) -> None:
        midnight_ms = ms(MIDNIGHTS[0])
        database.clock.ms = midnight_ms - 3_500
        timeline = Timeline(database, await database.connect(), LEAD)
        await timeline.create(schedule={"kind": "cron", "expr": "* * * * * *"}, budget={"tokensPerDay": 1})
        await use_up_budget(database, timeline)
        # A late pass: ticks of both days at once.
        database.clock.ms = midnight_ms - 20
        await timeline.plan()
        database.clock.ms = midnight_ms
        await timeline.plan()
        assert [(run.scheduled_ms - midnight_ms, run.reason) for run in await timeline.records()] == [
            (-3_000, "budget"),
            (-2_000, "budget"),
            (-1_000, "budget"),
            (0, None),
        ]

    run_on(tmp_path, story)


@pytest.mark.parametrize("hours", part(["22:00-06:00", "08:00-22:00", "00:00-02:00"]))
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize(
    "eve", [datetime(2027, 3, 27, 20, tzinfo=UTC), datetime(2027, 10, 30, 20, tzinfo=UTC)]
)
def test_jitter_does_not_move_ticks_over_the_edge_of_the_active_hours(
    tmp_path: Path, hours: str, zone: str, eve: datetime
) -> None:
    async def story(database: Database) -> None:
        database.clock.ms = ms(eve)  # the clocks change in this night
        timeline = Timeline(database, await database.connect(), LEAD)
        await timeline.create(
            schedule="0 * * * *", tz=zone, jitterMs=20 * MINUTE, activeHours=hours, overlapPolicy="allow"
        )
        for _ in range(30):
            job = await timeline.job()
            assert job.wake_ms is not None
            database.clock.ms = job.wake_ms - LEAD + 10
            await timeline.plan()  # checks the hours of each run
            database.clock.ms = job.wake_ms
            await timeline.plan()
        reasons = {run.reason for run in await timeline.records()}
        assert reasons == {None, "outside_hours"}

    run_on(tmp_path, story)


@pytest.mark.parametrize("on", ["sqlite", "postgres"])
@pytest.mark.parametrize("operation", ["none", "pause", "edit"])
@pytest.mark.parametrize("back_ms", part([90_000, 500, 10 * MINUTE]))
def test_a_clock_that_is_set_back_repeats_no_tick(
    tmp_path: Path, on: str, operation: str, back_ms: int
) -> None:
    async def story(database: Database) -> None:
        database.clock.ms = ms(MIDNIGHTS[2]) - 5 * MINUTE - 10_000
        timeline = Timeline(database, await database.connect(), LEAD)
        await timeline.create(schedule="* * * * *", overlapPolicy="allow", maxRuns=20)
        for _ in range(6):
            database.clock.ms += MINUTE
            await timeline.plan()
        before = [run.scheduled_ms for run in await timeline.records()]
        if operation == "pause":
            await timeline.do("pause", NAME)
        database.clock.ms -= back_ms
        if operation == "pause":
            await timeline.do("resume", NAME)
        elif operation == "edit":
            await timeline.do("update", NAME, {"exclude": ["2027-02-02"]})
        for _ in range(14):
            database.clock.ms += MINUTE
            await timeline.plan(again=True)
        runs = await timeline.records()
        ticks = [run.scheduled_ms for run in runs]
        assert len(ticks) == len(set(ticks)), "a tick was planned twice"
        assert set(before) <= set(ticks)
        assert (await timeline.job()).run_count == len([run for run in runs if run.state != "missed"])
        assert ticks[-1] == database.clock.ms // MINUTE * MINUTE

    run_on(tmp_path if on == "sqlite" else None, story)


@pytest.mark.parametrize("midnight", part(MIDNIGHTS), ids=str)
def test_runs_are_counted_in_the_hour_and_on_the_day_of_their_end(tmp_path: Path, midnight: datetime) -> None:
    async def story(database: Database) -> None:
        database.clock.ms = ms(midnight) - 2_500
        store = await database.connect()
        timeline = Timeline(database, store, LEAD)
        await timeline.create(schedule={"kind": "cron", "expr": "* * * * * *"}, overlapPolicy="allow")
        await store.count_runs(database.clock.ms, 100)
        for _ in range(5):
            database.clock.ms += 1_000
            await timeline.plan()
            await timeline.finish()
        for _ in range(20):
            await store.count_runs(database.clock.ms + DAY, 100)
        job = await timeline.job()
        counted = {each.day: each.runs for each in await store.job_run_counts(job.id, ms(midnight) - DAY)}
        assert counted == {ms(midnight) // DAY - 1: 2, ms(midnight) // DAY: 3}

    run_on(tmp_path, story)
