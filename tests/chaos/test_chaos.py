"""A short chaos test in every test run; `make chaos` runs the long one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.databases import Database, PostgresDatabase, SqliteDatabase
from tests.chaos.world import World


@pytest.mark.parametrize("database", [PostgresDatabase, SqliteDatabase])
async def test_no_tick_is_lost_or_duplicated_while_replicas_are_killed_and_the_database_crashes(
    tmp_path: Path, database: Callable[[], Database]
) -> None:
    world = World(tmp_path, database, seed=1, jobs=200, pace=2)
    found = await world.go_through(12, crash_every=6)
    assert not found.complaints, "\n".join(found.complaints[:20])
    # The faults did happen: kills, crashes and rescues, and still many successes.
    assert world.tally.kills >= 3
    assert world.tally.crashes >= 1
    assert found.rescues >= 1
    assert found.states["succeeded"] >= 100
