"""Lists of jobs over HTTP: search, filters, order, pages and counts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.conftest import SELDOM, on_one_store
from tests.support.api_client import HOME, JOBS, ApiClient

_OPS = f"{HOME}/agents/ops/jobs"


async def some_jobs(ask: ApiClient) -> None:
    hook = {"kind": "webhook", "url": "http://127.0.0.1:9/hook"}
    for path, document in (
        (JOBS, {"name": "daily-report", "schedule": SELDOM, "target": hook}),
        (JOBS, {"name": "sync", "schedule": "every 2h", "labels": {"team": "<b>ops</b>"}}),
        (_OPS, {"name": "reporter", "schedule": "every 1h"}),
        (_OPS, {"name": "once", "schedule": "in 3h"}),
        (_OPS, {"name": "then", "after": "reporter"}),
        (_OPS, {"name": "by-hand", "schedule": SELDOM}),
    ):
        made = await ask("POST", path, document)
        assert made.status == 201, made.body
    await ask("POST", f"{_OPS}/by-hand/pause", {"note": "maintenance"})
    agent = await ask.new("agent", agent="ops")
    made = await agent("POST", _OPS, {"name": "own", "schedule": "every 4h"})
    assert made.status == 201, made.body


def names(body: dict[str, Any]) -> list[str]:
    return [f"{job['agentId']}/{job['name']}" for job in body["jobs"]]


_FOUND: list[tuple[dict[str, str], list[str]]] = [
    ({"q": "report"}, ["default/daily-report", "ops/reporter"]),
    ({"q": "OPS/re"}, ["ops/reporter"]),
    ({"q": "ps"}, ["ops/once", "ops/own", "ops/reporter", "ops/then"]),
    ({"q": "by-hand"}, []),
    ({"q": "by-hand", "include_disabled": "true"}, ["ops/by-hand"]),
    ({"state": "paused"}, ["ops/by-hand"]),
    ({"state": "failing"}, []),
    ({"schedule": "every"}, ["default/sync", "ops/own", "ops/reporter"]),
    ({"schedule": "after"}, ["ops/then"]),
    ({"schedule": "at"}, ["ops/once"]),
    ({"target": "webhook"}, ["default/daily-report"]),
    ({"creator": "agent"}, ["ops/own"]),
    ({"label": "team=<b>ops</b>"}, ["default/sync"]),
    ({"agent": "ops", "q": "o", "schedule": "every"}, ["ops/own", "ops/reporter"]),
    ({"sort": "next"}, ["ops/reporter", "default/sync", "ops/once", "ops/own", "default/daily-report"]),
    ({"sort": "next", "q": "report"}, ["ops/reporter", "default/daily-report"]),
    ({"q": ""}, ["default/daily-report", "default/sync", "ops/once", "ops/own", "ops/reporter", "ops/then"]),
]


async def test_jobs_are_searched_and_filtered(ask: ApiClient):
    await some_jobs(ask)
    for query, found in _FOUND:
        reply = await ask("GET", "/jobs", **query, count="true")  # type: ignore[arg-type]
        assert (reply.status, names(reply.body)) == (200, found), query
        assert reply.body["hasMore"] is False
        if "sort" not in query:
            assert reply.body["count"] == len(found)


async def test_created_by_finds_the_jobs_of_one_key(ask: ApiClient):
    await some_jobs(ask)
    by = (await ask("GET", f"{_OPS}/own")).body["createdBy"]
    assert names((await ask("GET", "/jobs", created_by=by)).body) == ["ops/own"]


@pytest.mark.parametrize("sort", ["name", "next"])
async def test_pages_of_a_filtered_list_have_each_job_once(ask: ApiClient, sort: str):
    await some_jobs(ask)
    whole = names((await ask("GET", "/jobs", q="o", sort=sort)).body)
    met: list[str] = []
    cursor = ""
    while True:
        position = f"&cursor={cursor}" if cursor else ""
        page = await ask("GET", f"/jobs?q=o&sort={sort}&limit=2{position}")
        assert page.status == 200, page.body
        met += names(page.body)
        cursor = page.body["cursor"]
        if not cursor:
            break
        other = await ask("GET", "/jobs", q="x", sort=sort, cursor=cursor)
        assert (other.status, other.code) == (422, "invalid-argument"), (
            "a cursor is valid for its filter only"
        )
    assert len(whole) >= 4
    assert met == whole


@on_one_store
@pytest.mark.parametrize(
    ("query", "why"),
    [
        ({"state": "asleep"}, "state: 'asleep' is not one of active, paused"),
        ({"creator": "robot"}, "creator: 'robot' is not one of person, agent"),
        ({"schedule": "moon"}, "schedule: 'moon' is not one of cron"),
        ({"sort": "cost"}, "sort"),
        ({"q": "x" * 300}, "q"),
    ],
)
async def test_an_unknown_value_is_refused(ask: ApiClient, query: dict[str, str], why: str):
    reply = await ask("GET", "/jobs", **query)  # type: ignore[arg-type]
    assert reply.code == "invalid-argument"
    assert why in reply.body["detail"]


async def test_an_agent_finds_only_its_own_jobs(ask: ApiClient):
    await some_jobs(ask)
    ops = await ask.new("agent", agent="ops")
    assert names((await ops("GET", "/jobs", q="report", count="true")).body) == ["ops/reporter"]
    assert (await ops("GET", "/jobs", q="report", count="true")).body["count"] == 1
