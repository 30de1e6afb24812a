"""Search over HTTP: jobs, agents and runs by what a person types."""

from __future__ import annotations

import pytest

from tests.integration.conftest import SELDOM, on_one_store
from tests.support.api_client import HOME, JOBS, ApiClient
from wakeful.service.search import id_range

_OPS = f"{HOME}/agents/ops/jobs"


async def test_jobs_agents_and_runs_are_found(ask: ApiClient):
    await ask("POST", JOBS, {"name": "ops-digest", "schedule": SELDOM})
    await ask("POST", _OPS, {"name": "backup", "schedule": SELDOM})
    await ask("POST", f"{_OPS}/backup/pause")
    run = (await ask("POST", f"{JOBS}/ops-digest/run")).body["id"]
    found = (await ask("GET", "/search", q="OPS")).body
    assert [(job["agentId"], job["name"], job["enabled"]) for job in found["jobs"]] == [
        ("default", "ops-digest", True),
        ("ops", "backup", False),
    ]
    assert (found["agents"], found["runs"]) == (["ops"], [])
    for typed in (run, run[:8], run[:20], run.replace("-", "")[:14]):
        runs = (await ask("GET", "/search", q=typed)).body["runs"]
        assert [(each["id"], each["job"]) for each in runs] == [(run, "ops-digest")]
    for typed in (run[:7], "ffffffff", f"{run}0", "%", "<script>"):
        assert (await ask("GET", "/search", q=typed)).body["runs"] == []


async def test_a_job_of_that_name_comes_before_others_that_have_the_text(ask: ApiClient):
    for number in range(9):
        await ask("POST", JOBS, {"name": f"backup-{number}", "schedule": SELDOM})
    await ask("POST", _OPS, {"name": "backup", "schedule": SELDOM})
    for typed in ("backup", "Ops/Backup"):
        found = (await ask("GET", "/search", q=typed)).body["jobs"]
        assert (found[0]["agentId"], found[0]["name"]) == ("ops", "backup")
        assert len({job["id"] for job in found}) == len(found) <= 8
    agent = await ask.new("agent", agent="default")
    for typed in ("backup", "ops/backup"):
        found = (await agent("GET", "/search", q=typed)).body["jobs"]
        assert all(job["agentId"] == "default" for job in found)


async def test_an_agent_finds_its_own_only(ask: ApiClient):
    await ask("POST", JOBS, {"name": "digest", "schedule": SELDOM})
    await ask("POST", _OPS, {"name": "digest-too", "schedule": SELDOM})
    run = (await ask("POST", f"{JOBS}/digest/run")).body["id"]
    ops = await ask.new("agent", agent="ops")
    found = (await ops("GET", "/search", q="digest")).body
    assert ([job["name"] for job in found["jobs"]], found["agents"]) == (["digest-too"], [])
    assert (await ops("GET", "/search", q="o")).body["agents"] == ["ops"]
    assert (await ops("GET", "/search", q=run)).body["runs"] == []


@on_one_store
async def test_a_long_text_is_refused(ask: ApiClient):
    assert (await ask("GET", "/search", q="x" * 300)).code == "invalid-argument"


@pytest.mark.parametrize("text", ["", "01a1e3b", "01a1e3b0x", "-01a1e3b0", "0" * 33])
def test_what_is_no_beginning_of_an_id_has_no_range(text: str):
    assert id_range(text) is None
