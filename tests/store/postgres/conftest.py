"""What the tests of PostgreSQL's own begin with: a database, and two processes on it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support import postgres_server
from tests.support.factories import FalseClock
from wakeful.store.postgres import PostgresStore


@pytest.fixture
def url() -> str:
    """The address of an empty database."""
    return postgres_server.fresh_database()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    """A process on it."""
    store = PostgresStore(url, clock=FalseClock())
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def other(url: str) -> AsyncIterator[PostgresStore]:
    """Another process on the same database."""
    store = PostgresStore(url, clock=FalseClock())
    await store.open()
    yield store
    await store.close()
