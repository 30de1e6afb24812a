"""A running server on each store, with a webhook receiver."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.integration.conftest import NewApp, database, new_app, receiver
from tests.support.api_client import ApiClient, served

__all__ = ["database", "new_app", "operator", "receiver"]


@pytest.fixture
async def operator(new_app: NewApp) -> AsyncIterator[ApiClient]:
    """Start a server; return an HTTP client with its first key."""
    async with new_app() as app, served(app) as caller:
        yield caller
