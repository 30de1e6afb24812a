"""Replicas of two versions on one database: no tick is lost or doubled, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import STORES
from tests.support.served_replica import ServedReplica
from tests.support.traffic import Traffic, uncovered
from tests.support.versions import next_version, previous_version
from tests.support.waiting import eventually
from wakeful.store.migrations import load

EVERY_MS = 1_000
NEWEST = load("sqlite")[-1]
_IN_MS = {
    "sqlite": "{}",
    "postgres": "floor(extract(epoch FROM {}) * 1000)::bigint",
}
_SERVED = ["tick-a", "tick-b"]


@pytest.fixture(params=STORES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of a database without a schema."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/wakeful.db"
    from tests.support.postgres_server import empty_database

    return empty_database()


async def test_a_replica_of_the_previous_schema_continues_or_drains(database: str, tmp_path: Path) -> None:
    old_source = await asyncio.to_thread(previous_version, tmp_path / "old")
    await _upgrade(database, tmp_path, old_source, None, breaking=NEWEST.breaking)


@pytest.mark.parametrize("database", STORES[-1:], indirect=True)
async def test_a_replica_drains_after_a_breaking_migration(database: str, tmp_path: Path) -> None:
    sql = "UPDATE workspaces SET description = 'migrated'"
    new_source = await asyncio.to_thread(next_version, tmp_path / "new", sql)
    await _upgrade(database, tmp_path, None, new_source, breaking=True)


async def _upgrade(
    database: str, folder: Path, old_source: Path | None, new_source: Path | None, *, breaking: bool
) -> None:
    replicas = [await _started(folder / "home-old", database, old_source)]
    (old,) = replicas
    try:
        for name in _SERVED:
            schedule = {"kind": "every", "everyMs": EVERY_MS}
            target = {"kind": "pull"}
            document = {"name": name, "schedule": schedule, "target": target, "overlapPolicy": "allow"}
            assert (await old.request("POST", "/agents/default/jobs", document))[0] == 201
        traffic = Traffic(replicas)
        async with traffic.running():
            await eventually(_progress(traffic))
            new = await _started(folder / "home-new", database, new_source)
            replicas.append(new)
            new.key = old.key
            if breaking:
                traffic.replicas = [new]
                assert await old.exit_code() == 8, old.log
                assert "a newer version of Wakeful installed" in old.log
            else:
                traffic.replicas = [new, old]
                await eventually(_progress(traffic))
                assert await old.ready()
                await eventually(_progress(traffic))
                traffic.replicas = [new]
                assert await old.stop() == 0, old.log
            await eventually(_progress(traffic))
        assert await new.stop() == 0, new.log
    finally:
        for replica in replicas:
            replica.kill()
    for log in (replica.log for replica in replicas if not breaking):
        assert "Traceback" not in log, log
    await _check(database, traffic)


async def _started(home: Path, database: str, source: Path | None) -> ServedReplica:
    replica = ServedReplica(home, database, source=source)
    try:
        return await replica.started()
    except BaseException:
        replica.kill()
        raise


def _progress(traffic: Traffic) -> Callable[[], bool]:
    """Return a check that more jobs were created and more ticks were executed since this call."""
    created, completed = len(traffic.created), len(traffic.completed)
    return lambda: len(traffic.created) > created + 10 and len(traffic.completed) > completed + 3


async def _check(database: str, traffic: Traffic) -> None:
    jobs = {row[0] for row in await _rows(database, "SELECT name FROM jobs")}
    assert set(traffic.created) - jobs == set(), "created jobs that are lost"
    done = {str(row[0]) for row in await _rows(database, "SELECT id FROM runs WHERE state = 'succeeded'")}
    assert set(traffic.completed) - done == set(), "completions that are lost"
    in_ms = _IN_MS["sqlite" if database.startswith("sqlite") else "postgres"]
    instants = in_ms.format("scheduled_at"), in_ms.format("coalesce(until_at, scheduled_at)")
    ticks = await _rows(
        database, f"SELECT job_name, {', '.join(instants)}, covers FROM runs WHERE trigger = 'schedule'"
    )
    assert {row[0] for row in ticks} == set(_SERVED)
    for name in _SERVED:
        assert uncovered([(row[1], row[2], row[3]) for row in ticks if row[0] == name], EVERY_MS) == [], name


async def _rows(database: str, query: str) -> list[tuple[Any, ...]]:
    if database.startswith("sqlite"):
        return await asyncio.to_thread(_sqlite_rows, database.removeprefix("sqlite:///"), query)
    import asyncpg

    connection = await asyncpg.connect(database)
    try:
        return [tuple(row) for row in await connection.fetch(query)]
    finally:
        await connection.close()


def _sqlite_rows(path: str, query: str) -> list[tuple[Any, ...]]:
    db = sqlite3.connect(path, timeout=60)
    try:
        return db.execute(query).fetchall()
    finally:
        db.close()
