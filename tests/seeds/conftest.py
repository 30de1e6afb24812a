"""A running server on each store, with a webhook receiver."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.integration.conftest import NewApp, database, new_app, receiver
from tests.support.agent_world import AgentWorld
from tests.support.api_client import ApiClient, served
from tests.support.gateway import AGENT
from tests.support.receiver import Receiver
from tests.support.rpc_client import Caller, calling

__all__ = ["database", "gateway", "new_app", "operator", "receiver", "world"]


@pytest.fixture
async def operator(new_app: NewApp) -> AsyncIterator[ApiClient]:
    """Start a server; return an HTTP client with its first key."""
    async with new_app() as app, served(app) as caller:
        yield caller


@pytest.fixture
def world(database: str) -> AgentWorld:
    """Return a database for processes with agent classes, and their clock."""
    return AgentWorld(database)


@pytest.fixture
async def gateway(operator: ApiClient, receiver: Receiver) -> AsyncIterator[Caller]:
    """Connect to the WebSocket of a gateway whose agents are woken by webhook."""
    target = {"kind": "webhook", "url": receiver.url}
    for agent in ("default", AGENT):
        reply = await operator("PUT", f"/agents/{agent}", {"target": target})
        assert reply.status in (200, 201), reply.body
    async with calling(operator) as call:
        yield call
