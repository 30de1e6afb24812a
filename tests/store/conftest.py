"""One suite, every store: a test that takes `store` or `database` runs on each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.databases import Database, SqliteDatabase, postgres
from tests.support.factories import FalseClock
from tests.support.notifications import NotificationRecorder
from wakeful.store.port import Store


@pytest_asyncio.fixture(params=["sqlite", "postgres"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """An empty database, on which a test opens as many stores as it needs."""
    made: Database = SqliteDatabase(tmp_path / "wakeful.db") if request.param == "sqlite" else postgres()
    yield made
    await made.close()


@pytest_asyncio.fixture
async def store(database: Database) -> Store:
    """A store on an empty database."""
    return await database.connect()


@pytest.fixture
def clock(database: Database) -> FalseClock:
    """The clock of the database's stores."""
    return database.clock


@pytest.fixture
def ears(store: Store) -> NotificationRecorder:
    """Hears what the store announces."""
    ears = NotificationRecorder()
    store.listen(ears)
    return ears
