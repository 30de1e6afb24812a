"""Run and delete several jobs: named ones, or those that a filter finds."""

from __future__ import annotations

import pytest

from tests.integration.conftest import SELDOM, on_one_store
from tests.support.api_client import HOME, JOBS, ApiClient
from wakeful.service.jobs import bulk_actions

_OPS = f"{HOME}/agents/ops/jobs"


async def some_jobs(ask: ApiClient) -> dict[str, str]:
    """Create default/a and ops/b, /c and /d, of which the last is paused; return their ids."""
    ids = {}
    for path, name in ((JOBS, "a"), (_OPS, "b"), (_OPS, "c"), (_OPS, "d")):
        made = await ask("POST", path, {"name": name, "schedule": SELDOM})
        ids[name] = str(made.body["id"])
    await ask("POST", f"{_OPS}/d/pause")
    return ids


async def left(ask: ApiClient) -> list[str]:
    return [job["name"] for job in (await ask("GET", "/jobs", include_disabled="true")).body["jobs"]]


@pytest.mark.parametrize(
    ("select", "run"),
    [
        ({"all": True}, ["a", "b", "c"]),
        ({"agent": "ops"}, ["b", "c"]),
        ({"q": "ops/c"}, ["c"]),
        ({"state": "paused"}, []),
        ({"jobs": ["ops/d", "a"]}, ["d", "a"]),
    ],
)
async def test_several_jobs_are_run_and_counted_before(
    ask: ApiClient, select: dict[str, object], run: list[str]
):
    await some_jobs(ask)
    counted = (await ask("POST", "/jobs/run", {**select, "dryRun": True})).body
    assert (counted["count"], [job["name"] for job in counted["jobs"]]) == (len(run), run)
    assert counted["runs"] == []
    assert (await ask("GET", "/runs")).body["runs"] == []

    done = await ask("POST", "/jobs/run", {**select, "payload": {"x": 1}})
    assert (done.status, done.body["count"], done.body["errors"]) == (200, len(run), [])
    assert [each["job"] for each in done.body["runs"]] == run
    assert {each["trigger"] for each in done.body["runs"]} <= {"user"}
    stored = {each["id"] for each in (await ask("GET", "/runs")).body["runs"]}
    assert stored == {each["id"] for each in done.body["runs"]}


async def test_a_run_of_several_that_are_not_due_starts_nothing(ask: ApiClient):
    await some_jobs(ask)
    done = (await ask("POST", "/jobs/run", {"agent": "ops", "mode": "due"})).body
    assert (done["count"], done["runs"], [job["name"] for job in done["notDue"]]) == (0, [], ["b", "c"])


async def test_several_jobs_are_deleted_and_counted_before(ask: ApiClient):
    await some_jobs(ask)
    counted = (await ask("POST", "/jobs/delete", {"agent": "ops", "dryRun": True})).body
    assert (counted["count"], await left(ask)) == (3, ["a", "b", "c", "d"])
    done = (await ask("POST", "/jobs/delete", {"agent": "ops"})).body
    assert ([job["name"] for job in done["jobs"]], done["errors"]) == (["b", "c", "d"], [])
    assert await left(ask) == ["a"]
    deleted = [row for row in (await ask("GET", "/audit")).body["entries"] if row["action"] == "job.delete"]
    assert {row["subject"] for row in deleted} == {"ops/b", "ops/c", "ops/d"}


async def test_a_job_that_cannot_be_deleted_does_not_stop_the_others(ask: ApiClient):
    await some_jobs(ask)
    agent = await ask.new("agent", agent="ops")
    await agent("POST", _OPS, {"name": "own", "schedule": SELDOM})
    done = (await agent("POST", "/jobs/delete", {"all": True})).body
    assert [job["name"] for job in done["jobs"]] == ["own"]
    assert {error["name"]: error["code"] for error in done["errors"]} == dict.fromkeys(
        "bcd", "permission-denied"
    )
    assert await left(ask) == ["a", "b", "c", "d"]


async def test_an_unknown_name_changes_nothing(ask: ApiClient):
    ids = await some_jobs(ask)
    for action in ("run", "delete"):
        reply = await ask("POST", f"/jobs/{action}", {"jobs": [ids["a"], "nothing", "ops/neither"]})
        assert (reply.status, reply.code) == (404, "not-found")
        assert "nothing" in reply.body["detail"]
        assert "neither" in reply.body["detail"]
    assert (await ask("GET", "/runs")).body["runs"] == []
    assert await left(ask) == ["a", "b", "c", "d"]


async def test_ids_of_another_agent_or_workspace_are_unknown(ask: ApiClient):
    ids = await some_jobs(ask)
    agent = await ask.new("agent", agent="ops")
    assert (await agent("POST", "/jobs/run", {"jobs": [ids["a"]]})).code == "not-found"
    await ask("PUT", "/api/workspaces/other", {})
    for action in ("run", "delete", "pause"):
        reply = await ask("POST", f"/api/workspaces/other/jobs/{action}", {"jobs": [ids["a"]]})
        assert reply.code == "not-found"


@on_one_store
@pytest.mark.parametrize("action", ["run", "delete"])
async def test_a_request_takes_a_limited_number_and_says_what_to_do(
    ask: ApiClient, action: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bulk_actions, "MAX_ACTIONS", 2)
    await some_jobs(ask)
    assert (await ask("POST", f"/jobs/{action}", {"all": True, "dryRun": True})).body["count"] >= 3
    reply = await ask("POST", f"/jobs/{action}", {"all": True})
    assert (reply.status, reply.code) == (422, "invalid-argument")
    assert "send their ids in several requests" in reply.body["detail"]
    assert await left(ask) == ["a", "b", "c", "d"]


@on_one_store
@pytest.mark.parametrize("action", ["pause", "resume", "run", "delete"])
async def test_a_selection_is_required(ask: ApiClient, action: str):
    for body in ({}, {"q": " "}, {"state": None}):
        assert (await ask("POST", f"/jobs/{action}", body)).code == "invalid-argument"
    both = await ask("POST", f"/jobs/{action}", {"jobs": ["a"], "q": "a"})
    assert both.code == "invalid-argument"
