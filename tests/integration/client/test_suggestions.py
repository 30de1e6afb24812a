"""Suggestions through the embedded app and both clients: the same methods, the same results."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.integration.conftest import on_one_store
from tests.support.api_client import ApiClient
from tests.support.suggestions import suggest
from wakeful import AsyncClient, Client, FailedPrecondition, NotFound, SuggestionStatus


async def _suggested(ask: ApiClient) -> str:
    await ask("PUT", "/agents/ada", {"evolution": "suggest"})
    await ask("POST", "/agents/ada/jobs", {"name": "work", "schedule": "@daily", "target": {"kind": "echo"}})
    return await suggest(ask.app.store, "ada", "work")


@on_one_store
async def test_the_async_client_and_the_app_return_the_same(ask: ApiClient) -> None:
    suggestion_id = await _suggested(ask)
    async with AsyncClient(ask.url, ask.key) as client:
        for own in (client, ask.app):
            (listed,) = await own.suggestions.list(statuses=["open"], agent="ada", job="work", limit=1)
            assert listed == await own.suggestions.get(suggestion_id)
            assert listed.status is SuggestionStatus.OPEN
            assert listed.change == {"timeoutMs": 60_000}
            assert listed.summary == "20 of 20 runs ended at the timeout of 30 seconds; allow 1 minute."
        applied = await client.suggestions.apply(suggestion_id)
        assert applied == await ask.app.suggestions.get(suggestion_id)
        assert applied.status is SuggestionStatus.APPLIED
        job = await client.jobs.of("ada").get("work")
        assert job.timeout == timedelta(minutes=1)
        with pytest.raises(FailedPrecondition):
            await client.suggestions.dismiss(suggestion_id)
        back = await client.suggestions.rollback(suggestion_id)
        assert back.status is SuggestionStatus.ROLLED_BACK
        assert (await client.jobs.of("ada").get("work")).timeout is None
        assert (await client.agents.get("ada")).evolution == "suggest"
        with pytest.raises(NotFound):
            await client.suggestions.get("01980000-0000-7000-8000-000000000000")


@on_one_store
async def test_the_blocking_client(ask: ApiClient) -> None:
    suggestion_id = await _suggested(ask)

    def decide() -> list[str]:
        with Client(ask.url, ask.key) as client:
            (listed,) = client.suggestions.list()
            assert client.suggestions.get(suggestion_id) == listed
            statuses = [listed.status.value, client.suggestions.dismiss(suggestion_id).status.value]
            with pytest.raises(FailedPrecondition):
                client.suggestions.apply(suggestion_id)
            with pytest.raises(FailedPrecondition):
                client.suggestions.rollback(suggestion_id)
            return statuses

    assert await asyncio.to_thread(decide) == ["open", "dismissed"]
