"""Random operations on a job over time: each tick has one record, whatever was asked in between."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.simulation.timeline import DAY, HOUR, MINUTE, NAME, Timeline
from tests.support.databases import Database, SqliteDatabase, postgres
from tests.support.effort import cases
from wakeful.values import ids

#: Before clock changes in Berlin, and the end of a year and of a leap February.
STARTS = [
    datetime(2027, 3, 27, 22, 59, 30, tzinfo=UTC),
    datetime(2027, 10, 30, 22, 59, 30, tzinfo=UTC),
    datetime(2027, 12, 31, 22, 30, tzinfo=UTC),
    datetime(2028, 2, 28, 23, 50, 0, 250_000, tzinfo=UTC),
]
BERLIN = "Europe/Berlin"


def _schedule(rng: Random, now_ms: int) -> object:
    return rng.choice(
        [
            {"kind": "cron", "expr": "*/10 * * * *"},
            {"kind": "cron", "expr": "0 * * * *"},
            {"kind": "cron", "expr": "30 2 * * *", "tz": BERLIN},
            {"kind": "cron", "expr": "0 9,21 * * *", "tz": BERLIN},
            {"kind": "every", "everyMs": 25 * MINUTE},
            {"kind": "every", "everyMs": 2 * HOUR},
            {"kind": "at", "atMs": _instant(rng, now_ms)},
        ]
    )


def _instant(rng: Random, now_ms: int) -> int:
    return now_ms + rng.choice([1_000, 5 * MINUTE, HOUR, 7 * HOUR, 3 * DAY]) + rng.randrange(0, 3) * 499


def _fields(rng: Random, now_ms: int, *, most: int) -> dict[str, object]:
    """Return a few fields that decide about ticks, at random."""
    today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
    choices: dict[str, list[Any]] = {
        "schedule": [_schedule(rng, now_ms)],
        "jitterMs": [0, 3 * MINUTE, 40 * MINUTE],
        "catchupPolicy": ["none", "latest", "fire_immediately", "spread"],
        "overlapPolicy": ["allow", "skip", "queue", "queue_one", "replace"],
        "maxRuns": [None, 1, 2, 5, 20],
        "misfireGraceMs": [1_000, 60_000, 30 * MINUTE],
        "catchupWindowMs": [HOUR, DAY],
        "startAt": [None, _instant(rng, now_ms)],
        "endAt": [None, _instant(rng, now_ms)],
        "exclude": [[], [str(today + timedelta(days=1))], ["sun"], ["cron:* 2-4 * * *"]],
        "activeHours": [None, "08:00-22:00", "22:00-06:00"],
        "dstGap": ["run_after", "skip"],
        "dstOverlap": ["first", "second", "both"],
    }
    names = rng.sample(sorted(choices), rng.randint(1, most))
    return {name: rng.choice(choices[name]) for name in names}


async def _pass_time(timeline: Timeline, rng: Random) -> None:
    """Move the clock: around the next tick, or by a while."""
    job, clock = await timeline.job(), timeline.clock
    near = [at for at in (job.next_ms, job.wake_ms) if at is not None]
    to_ms = clock.ms + rng.choice([0, 40, 5_000, 4 * MINUTE, HOUR, 5 * HOUR, DAY])
    if near and rng.random() < 0.6:
        to_ms = rng.choice(near) + rng.choice([-5_000, -40, -1, 0, 1, 700, 90_000])
    if to_ms - clock.ms < 9 * DAY:
        clock.ms = max(clock.ms, to_ms)


async def _change(timeline: Timeline, rng: Random) -> None:
    now_ms = timeline.clock.ms
    operations = "skip skip pause until resume resume edit edit upsert restore fail agent agent".split()
    match rng.choice(operations):
        case "fail":
            await timeline.plan()  # ticks that are due when a failure disables the job have no record
            await timeline.fail()
        case "agent":
            await timeline.set_active(rng.random() < 0.6)
        case "skip":
            await timeline.do("skip_next", NAME)
        case "pause":
            await timeline.do("pause", NAME)
        case "until":
            await timeline.do("pause", NAME, until=_instant(rng, now_ms))
        case "resume":
            await timeline.do("resume", NAME)
        case "edit":
            await timeline.do("update", NAME, _fields(rng, now_ms, most=2))
        case "upsert":
            given = {"name": NAME, "target": {"kind": "pull"}, "schedule": _schedule(rng, now_ms)}
            await timeline.do("upsert", given | _fields(rng, now_ms, most=3))
        case "restore":
            job = await timeline.job()
            await timeline.do("revisions.restore", NAME, rng.randint(1, job.version))


async def _live(database: Database, seed: int, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(seed)
    # Jitter depends on the id of the job.
    monkeypatch.setattr(ids, "_RANDOM", Random(seed))
    for name, value in (("_last_ms", 0), ("_count", 0), ("_prefix", "")):
        monkeypatch.setattr(ids, name, value)
    database.clock.ms = round(rng.choice(STARTS).timestamp() * 1000)
    timeline = Timeline(database, await database.connect(), lead_ms=rng.choice([0, 0, 50]))
    now_ms = database.clock.ms
    document = {"schedule": _schedule(rng, now_ms), **_fields(rng, now_ms, most=4)}
    document = {
        name: value
        for name, value in document.items()
        if name in ("schedule", "jitterMs", "maxRuns", "activeHours") or name.endswith("Policy")
    }
    await timeline.create(**document)
    for _ in range(steps):
        await _pass_time(timeline, rng)
        planned = rng.random() < 0.7  # else no replica is up
        if planned:
            await timeline.plan()
        await timeline.check(planned=planned)
        if rng.random() < 0.5:
            await _change(timeline, rng)
            await timeline.check(planned=False)
        if rng.random() < 0.3:
            await timeline.finish()
    await timeline.plan()
    await timeline.check(planned=True)


@pytest.mark.parametrize("seed", range(cases(60, 2_000)))
def test_each_tick_has_one_record_after_any_operations(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def live() -> None:
        database = SqliteDatabase(tmp_path / "wakeful.db")
        try:
            await _live(database, seed, 40, monkeypatch)
        finally:
            await database.close()

    asyncio.run(live())


@pytest.mark.parametrize("seed", range(cases(3, 100)))
def test_each_tick_has_one_record_in_postgres_too(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    database = postgres()

    async def live() -> None:
        try:
            await _live(database, 10_000 + seed, 30, monkeypatch)
        finally:
            await database.close()

    asyncio.run(live())


@pytest.mark.parametrize("operation", ["pause", "resume", "edit"])
def test_a_request_after_the_end_of_a_pause_finds_the_job_resumed(tmp_path: Path, operation: str) -> None:
    async def live() -> None:
        database = SqliteDatabase(tmp_path / "wakeful.db")
        try:
            timeline = Timeline(database, await database.connect())
            await timeline.create(schedule="0 * * * *")
            await timeline.do("pause", NAME, until=database.clock.ms + 90 * MINUTE)
            database.clock.ms += 4 * HOUR + 5 * MINUTE  # no replica is up
            if operation == "edit":
                await timeline.do("update", NAME, {"schedule": "*/10 * * * *"})
            else:
                await timeline.do(operation, NAME)
            await timeline.plan()
            await timeline.check(planned=True)
            assert (await timeline.job()).enabled == (operation != "pause"), "it stays paused"
            reason = {"pause": "paused", "resume": "downtime", "edit": "edited"}[operation]
            assert [(run.reason, run.covers) for run in await timeline.records()] == [(reason, 3)]
        finally:
            await database.close()

    asyncio.run(live())
