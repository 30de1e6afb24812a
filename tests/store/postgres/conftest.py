"""Fixtures for the PostgreSQL tests: a database and two stores on it, as two processes have them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support import postgres_server
from tests.support.factories import FalseClock
from wakeful.store.postgres import PostgresStore


@pytest.fixture
def url() -> str:
    """Return the URL of an empty database."""
    return postgres_server.fresh_database()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    """Yield a store on the database."""
    store = PostgresStore(url, clock=FalseClock())
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def other(url: str) -> AsyncIterator[PostgresStore]:
    """Yield a second store on the same database."""
    store = PostgresStore(url, clock=FalseClock())
    await store.open()
    yield store
    await store.close()
