"""Fixtures for the store tests: a test that takes `store` or `database` runs on each database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.databases import Database, SqliteDatabase, lent_postgres
from tests.support.factories import NOW, FalseClock
from tests.support.instances import agent_class
from tests.support.notifications import NotificationRecorder
from wakeful.store.port import Store


@pytest_asyncio.fixture(params=["sqlite", "postgres"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """Yield an empty database, on which a test opens as many stores as it needs."""
    if request.param == "sqlite":
        made: Database = SqliteDatabase(tmp_path / "wakeful.db")
        yield made
        await made.close()
    else:
        with lent_postgres() as made:
            yield made
            await made.close()


@pytest_asyncio.fixture
async def store(database: Database) -> Store:
    """Return a store on an empty database."""
    return await database.connect()


@pytest_asyncio.fixture
async def classes(store: Store) -> None:
    """Register classes of the agents `report` and `other`."""
    for agent in ("report", "other"):
        await store.put_class(agent_class(agent=agent), NOW)


@pytest.fixture
def clock(database: Database) -> FalseClock:
    """Return the clock of the database's stores."""
    return database.clock


@pytest.fixture
def recorder(store: Store) -> NotificationRecorder:
    """Return a recorder of the store's notifications."""
    recorder = NotificationRecorder()
    store.listen(recorder)
    return recorder
