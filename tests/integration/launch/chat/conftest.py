"""The stand-in for an endpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.chat_endpoint import ChatStandIn, chat_endpoint


@pytest.fixture
async def endpoint() -> AsyncIterator[ChatStandIn]:
    """Serve the stand-in."""
    async with chat_endpoint() as stand_in:
        yield stand_in
