"""Lists of jobs filtered by label, through every interface."""

from __future__ import annotations

import pytest

from tests.integration.conftest import SELDOM, on_one_store
from tests.support.api_client import JOBS, ApiClient
from tests.support.rpc_client import calling
from wakeful.client import AsyncClient

_LABELS = {
    "a": {"team": "ops", "urgent": ""},
    "b": {"team": "ops"},
    "c": {"team": "web", 'it\'s "odd"': "50% of $.a"},
    "d": {},
}


async def create(ask: ApiClient) -> None:
    for name, labels in _LABELS.items():
        made = await ask("POST", JOBS, {"name": name, "schedule": SELDOM, "labels": labels})
        assert made.status == 201


async def names(ask: ApiClient, query: str, path: str = JOBS) -> list[str]:
    reply = await ask("GET", f"{path}?{query}")
    assert reply.status == 200, reply.body
    return [job["name"] for job in reply.body["jobs"]]


async def test_jobs_are_listed_by_their_labels(ask: ApiClient):
    await create(ask)
    for path in (JOBS, "/jobs"):
        assert await names(ask, "label=team=ops", path) == ["a", "b"]
        assert await names(ask, "label=team", path) == ["a", "b", "c"]
        assert await names(ask, "label=team=ops&label=urgent", path) == ["a"]
        assert await names(ask, "label=urgent=", path) == ["a"]
        assert await names(ask, "label=team=", path) == []
        assert await names(ask, "label=it%27s%20%22odd%22=50%25%20of%20$.a", path) == ["c"]
        assert await names(ask, "", path) == ["a", "b", "c", "d"]


async def test_a_filtered_list_is_paginated(ask: ApiClient):
    await create(ask)
    first = (await ask("GET", f"{JOBS}?label=team&limit=2")).body
    assert [job["name"] for job in first["jobs"]] == ["a", "b"]
    assert await names(ask, f"label=team&limit=2&cursor={first['cursor']}") == ["c"]
    other = await ask("GET", f"{JOBS}?label=urgent&limit=2&cursor={first['cursor']}")
    assert other.status == 422, "a cursor belongs to its list"


@pytest.mark.parametrize("label", ["", "=ops", f"{'x' * 64}=1", f"a={'x' * 256}"])
@on_one_store
async def test_an_invalid_label_is_refused(ask: ApiClient, label: str):
    refused = await ask("GET", f"{JOBS}?label={label}")
    assert (refused.status, refused.code) == (422, "invalid-argument")


@on_one_store
async def test_jobs_are_listed_by_label_through_rpc_the_client_and_python(ask: ApiClient):
    await create(ask)
    async with calling(ask) as call:
        found = await call("cron.list", label=["team=ops", "urgent"])
        assert [job["name"] for job in found["jobs"]] == ["a"]
        assert len((await call("cron.list", label="team"))["jobs"]) == 3
    async with AsyncClient(ask.url, ask.key) as client:
        assert [job.name for job in await client.jobs.list(labels={"team": "web"})] == ["c"]
        found = await client.jobs.list(labels=["team=ops", "urgent"], all_agents=True)
        assert [job.name for job in found] == ["a"]
    assert [job.name for job in await ask.app.jobs.list(labels={"team": "ops"})] == ["a", "b"]
