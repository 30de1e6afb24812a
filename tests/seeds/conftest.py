"""A running server on each store, with a receiver of webhooks beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.integration.conftest import NewApp, database, new_app, receiver
from tests.support.api_client import ApiClient, served

__all__ = ["database", "new_app", "operator", "receiver"]


@pytest.fixture
async def operator(new_app: NewApp) -> AsyncIterator[ApiClient]:
    """Whoever started the server: asks it over HTTP, with the first key."""
    async with new_app() as app, served(app) as somebody:
        yield somebody
