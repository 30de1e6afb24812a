"""A running server on each store, with a webhook receiver."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.integration.conftest import NewApp, database, new_app, receiver
from tests.support.agent_world import AgentWorld
from tests.support.api_client import ApiClient, served

__all__ = ["database", "new_app", "operator", "receiver", "world"]


@pytest.fixture
async def operator(new_app: NewApp) -> AsyncIterator[ApiClient]:
    """Start a server; return an HTTP client with its first key."""
    async with new_app() as app, served(app) as caller:
        yield caller


@pytest.fixture
def world(database: str) -> AgentWorld:
    """Return a database for processes with agent classes, and their clock."""
    return AgentWorld(database)
