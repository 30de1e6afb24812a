"""Wherever a job's name is accepted, its id is too."""

from __future__ import annotations

import pytest

from tests.integration.conftest import SELDOM, on_one_store
from tests.support.api_client import HOME, JOBS, ApiClient
from tests.support.rpc_client import calling
from wakeful import NotFound
from wakeful.client import AsyncClient

_WEBHOOK = {"kind": "webhook", "url": "http://127.0.0.1:9/"}


async def create(ask: ApiClient, name: str = "digest", agent: str = "default") -> str:
    made = await ask(
        "POST", f"{HOME}/agents/{agent}/jobs", {"name": name, "schedule": SELDOM, "target": _WEBHOOK}
    )
    assert made.status == 201
    return str(made.body["id"])


async def test_every_path_of_a_job_takes_its_id(ask: ApiClient):
    job_id = await create(ask)
    path = f"{JOBS}/{job_id}"

    assert (await ask("GET", path)).body["name"] == "digest"
    assert (await ask("PATCH", path, {"description": "one"})).body["description"] == "one"
    put = await ask("PUT", path, {"schedule": SELDOM, "target": _WEBHOOK, "description": "two"})
    assert (put.status, put.body["id"], put.body["name"]) == (200, job_id, "digest")
    named = await ask("PUT", path, {"name": "digest", "schedule": SELDOM, "target": _WEBHOOK})
    assert named.status == 200
    assert (await ask("PUT", path, {"name": "other", "schedule": SELDOM})).status == 422
    assert (await ask("POST", f"{path}/pause")).body["enabled"] is False
    assert (await ask("POST", f"{path}/resume")).body["enabled"] is True
    assert (await ask("POST", f"{path}/skip-next")).body["skipped"]["job"] == "digest"
    assert (await ask("POST", f"{path}/rotate-secret")).status == 200
    assert (await ask("POST", f"{path}/run")).body["job"] == "digest"
    assert (await ask("POST", f"{path}/backfill", {"start": 0, "end": 1})).body == {"count": 0}
    assert len((await ask("GET", f"{path}/runs")).body["runs"]) == 2
    assert (await ask("DELETE", path)).status == 204

    subjects = {entry["subject"] for entry in (await ask("GET", "/audit")).body["entries"]}
    assert "default/digest" in subjects
    assert not any(job_id in subject for subject in subjects), "the audit log has the name"
    assert [job["name"] for job in (await ask("GET", "/jobs")).body["jobs"]] == []


async def test_an_id_is_only_found_under_its_own_agent(ask: ApiClient):
    job_id = await create(ask, agent="ops")

    assert (await ask("GET", f"{JOBS}/{job_id}")).status == 404
    assert (await ask("GET", f"{HOME}/agents/ops/jobs/{job_id}")).status == 200
    assert (await ask("GET", f"/jobs/{job_id}")).body["agentId"] == "ops"


async def test_the_id_of_one_job_as_the_name_of_another_does_not_hide_it(ask: ApiClient):
    job_id = await create(ask)
    other = await ask("PUT", f"{HOME}/agents/ops/jobs/{job_id}", {"schedule": SELDOM})
    assert (other.status, other.body["name"]) == (201, job_id)
    await ask("PATCH", f"{JOBS}/{job_id}", {"description": "the first"})
    same = await ask("POST", JOBS, {"name": job_id, "schedule": SELDOM})
    assert same.status == 201

    assert (await ask("GET", f"{JOBS}/{job_id}")).body["description"] == "the first"
    assert (await ask("GET", f"{JOBS}/{same.body['id']}")).body["name"] == job_id


async def test_a_name_that_several_agents_have_lists_the_candidates(ask: ApiClient):
    await create(ask)
    assert (await ask("GET", "/jobs/digest")).body["agentId"] == "default"
    await create(ask, agent="ops")
    await create(ask, agent="writer")

    several = await ask("GET", "/jobs/digest")

    assert (several.status, several.code) == (409, "failed-precondition")
    assert "default/digest, ops/digest, writer/digest" in several.body["detail"]
    assert (await ask("GET", "/jobs/nope")).status == 404
    own = await ask.new("agent", agent="ops")
    assert (await own("GET", "/jobs/digest")).body["agentId"] == "ops", "it sees only its own"


@on_one_store
async def test_rpc_and_python_take_ids(ask: ApiClient):
    job_id = await create(ask)
    async with calling(ask) as call:
        assert (await call("cron.toggle", jobId=job_id, enabled=False))["job"]["enabled"] is False
        assert (await call("cron.run", jobId=job_id))["run"]["job"] == "digest"
        assert len((await call("cron.runs", jobId=job_id))["runs"]) == 1
    async with AsyncClient(ask.url, ask.key) as client:
        for jobs in (ask.app.jobs, client.jobs):
            assert (await jobs.get(job_id)).name == "digest"
            assert (await jobs.resume(job_id)).enabled
            assert not (await jobs.pause(job_id)).enabled
            assert (await jobs.update(job_id, description="x")).name == "digest"
            upserted = await jobs.upsert(job_id, schedule=SELDOM, webhook_url="http://127.0.0.1:9/")
            assert (upserted.id, upserted.name, upserted.created) == (job_id, "digest", False)
            assert (await jobs.run(job_id)).job == "digest"
            assert len(await jobs.runs(job_id)) >= 2
        await client.jobs.delete(job_id)
        with pytest.raises(NotFound, match=job_id):
            await ask.app.jobs.get(job_id)


async def test_an_agents_key_cannot_change_an_internal_job_by_its_id(ask: ApiClient):
    await create(ask, agent="ops")
    await ask("PUT", f"{HOME}/agents/ops", {"heartbeat": {"every": "30m"}})
    beat = (await ask("GET", "/jobs/heartbeat")).body["id"]
    own = await ask.new("agent", agent="ops")
    path = f"{HOME}/agents/ops/jobs/{beat}"

    assert (await own("GET", path)).status == 200
    for method, action in (("DELETE", ""), ("POST", "/pause"), ("POST", "/run")):
        assert (await own(method, path + action)).status == 403
    assert (await own("PUT", path, {"schedule": SELDOM})).status == 403
