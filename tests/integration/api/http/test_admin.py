"""Workspaces, agents, keys, quotas, the audit and workflows over HTTP."""

from __future__ import annotations

import asyncio
import re

from tests.integration.conftest import SELDOM, on_one_store
from tests.support.api_client import HOME, JOBS, ApiClient


async def test_an_agent_is_created_updated_and_deleted(ask: ApiClient):
    path = f"{HOME}/agents/writer"
    made = await ask("PUT", path, {"tz": "Europe/Berlin", "target": {"kind": "pull"}})
    assert (made.status, made.headers["location"]) == (201, path)
    changed = await ask("PUT", path, {**made.body, "description": "writes"})
    assert (changed.status, changed.body["description"], changed.body["tz"]) == (
        200,
        "writes",
        "Europe/Berlin",
    )
    assert (await ask("GET", path)).body == changed.body
    names = [agent["name"] for agent in (await ask("GET", f"{HOME}/agents")).body["agents"]]
    assert names == ["default", "writer"]

    await ask("POST", f"{path}/jobs", {"name": "a", "schedule": SELDOM})
    assert (await ask("DELETE", path)).code == "failed-precondition"
    await ask("DELETE", f"{path}/jobs/a")
    assert (await ask("DELETE", path)).status == 204
    assert (await ask("GET", path)).code == "not-found"


async def test_a_new_workspace_has_its_own_jobs(ask: ApiClient):
    made = await ask("PUT", "/api/workspaces/acme", {"tz": "Asia/Tokyo"})
    assert (made.status, made.headers["location"]) == (201, "/api/workspaces/acme")
    assert (await ask("PUT", "/api/workspaces/acme", {"tz": "Asia/Tokyo"})).status == 200
    assert (await ask("GET", "/api/workspaces/acme")).body["tz"] == "Asia/Tokyo"
    names = [each["name"] for each in (await ask("GET", "/api/workspaces")).body["workspaces"]]
    assert names == ["acme", "default"]
    job = {"name": "a", "schedule": "0 9 * * *"}
    there = await ask("POST", "/api/workspaces/acme/agents/default/jobs", job)
    assert (there.status, there.body["tz"]) == (201, "Asia/Tokyo")
    assert (await ask("GET", f"{JOBS}/a")).status == 404
    refused: list[dict[str, object]] = [{"tz": "Mars"}, {"colour": 1}, {"tz": 1}]
    weights: list[object] = [0, 0.01, 101, "2", True, []]
    refused += [{"laneWeight": weight} for weight in weights]
    for name, document in (("Acme", {}), *(("b", document) for document in refused)):
        reply = await ask("PUT", f"/api/workspaces/{name}", document)
        assert (reply.status, reply.code) == (422, "invalid-argument"), name


async def test_of_two_creations_of_a_workspace_at_once_one_is_refused(ask: ApiClient):
    path, only_create = "/api/workspaces/acme", {"If-None-Match": "*"}
    replies = await asyncio.gather(
        *(ask("PUT", path, {"description": text}, headers=only_create) for text in ("a", "b"))
    )
    assert sorted(reply.status for reply in replies) == [201, 412]
    (made,) = (reply.body for reply in replies if reply.status == 201)
    assert (await ask("PUT", path, {}, headers=only_create)).status == 412
    assert (await ask("PUT", path, {}, headers={"If-None-Match": '"1"'})).status == 400
    assert (await ask("GET", path)).body["description"] == made["description"]


async def test_a_workspace_is_put_only_if_its_condition_holds(ask: ApiClient):
    path = "/api/workspaces/acme"
    absent = await ask("PUT", path, {}, headers={"If-Match": "*"})
    assert (absent.status, (await ask("GET", path)).status) == (412, 404)
    await ask("PUT", path, {"description": "first"})
    stale = await ask("PUT", path, {"description": "second"}, headers={"If-Match": '"3"'})
    assert (stale.status, (await ask("GET", path)).body["description"]) == (412, "first")
    assert (await ask("PUT", path, {}, headers={"If-Match": "*"})).status == 200


async def test_a_workspace_has_a_weight_in_lanes(ask: ApiClient):
    for document, weight in (({}, 1), ({"laneWeight": 2.5}, 2.5), ({"laneWeight": 3}, 3), ({}, 1)):
        assert (await ask("PUT", "/api/workspaces/acme", document)).body["laneWeight"] == weight
        assert (await ask("GET", "/api/workspaces/acme")).body["laneWeight"] == weight
    key = (await ask("POST", "/api/workspaces/acme/keys", {"name": "owner", "role": "admin"})).body["key"]
    reply = await ask.with_key(key)("PUT", "/api/workspaces/acme", {"laneWeight": 100})
    assert reply.code == "permission-denied", "a workspace does not weigh itself"


async def test_a_key_is_created_used_listed_without_its_secret_and_revoked(ask: ApiClient):
    made = await ask("POST", "/keys", {"name": "ci", "role": "member"})
    assert made.status == 201
    assert re.fullmatch(r"wk_[\w-]{43}", made.body["key"])
    assert made.headers["location"] == f"{HOME}/keys/{made.body['id']}"
    assert made.headers["cache-control"] == "no-store"
    assert (await ask.with_key(made.body["key"])("GET", "/jobs")).status == 200
    keys = (await ask("GET", "/keys")).body["keys"]
    (shown,) = [key for key in keys if key["name"] == "ci"]
    assert "key" not in shown
    assert (shown["name"], shown["role"], shown["revokedAt"]) == ("ci", "member", None)
    assert (await ask("DELETE", f"/keys/{made.body['id']}")).status == 204
    for document in (
        {"name": "x"},
        {"name": "x", "role": "king"},
        {"name": "x", "role": "agent"},
        {"name": "x", "role": "member", "expiresAt": "yesterday"},
        {"name": "x", "role": "member", "expiresAt": "2020-01-01T00:00:00Z"},
        {"name": 7, "role": "member"},
    ):
        assert (await ask("POST", "/keys", document)).status == 422, document


async def test_quotas_are_set_and_listed(ask: ApiClient):
    reply = await ask("PUT", "/quotas", {"agent": "default", "bucket": "scheduler.liveJobs", "limit": 3})
    assert {"agent": "default", "bucket": "scheduler.liveJobs", "limit": 3, "used": 0} in reply.body["quotas"]
    assert (await ask("GET", "/quotas")).body == reply.body
    for document in (
        {},
        {"bucket": "coffee", "limit": 1},
        {"bucket": "scheduler.liveJobs"},
        {"bucket": "scheduler.liveJobs", "limit": -1},
        {"bucket": "scheduler.liveJobs", "limit": True},
        {"bucket": "scheduler.liveJobs", "limit": "3"},
        {"bucket": "scheduler.liveJobs", "limit": 10**20},
        {"bucket": "scheduler.liveJobs", "limit": 1, "agent": 1},
        {"bucket": "scheduler.liveJobs", "limit": 1, "agent": "No Slug"},
        {"bucket": "scheduler.liveJobs", "limit": 1, "agent": ""},
    ):
        assert (await ask("PUT", "/quotas", document)).status == 422, document
    limits = {row["agent"]: row["limit"] for row in (await ask("GET", "/quotas")).body["quotas"]}
    assert limits[None] is None, "an empty agent sets no limit for the workspace"


async def test_the_audit_log_is_paginated_and_verified(ask: ApiClient):
    for number in range(5):
        await ask("POST", JOBS, {"name": f"job-{number}", "schedule": SELDOM})
    found: list[str] = []
    cursor = None
    while cursor is not None or not found:
        page = (await ask("GET", "/audit", limit=2, **({"cursor": cursor} if cursor else {}))).body
        found += [entry["subject"] for entry in page["entries"] if entry["action"] == "job.create"]
        cursor = page["cursor"]
    assert found == [f"default/job-{number}" for number in reversed(range(5))]
    verified = (await ask("GET", "/audit/verify")).body
    assert (verified["ok"], verified["flaw"]) == (True, None)
    assert verified["count"] >= 5


async def test_a_verification_that_continues_finds_newest_entries_that_are_gone(ask: ApiClient):
    await ask("POST", JOBS, {"name": "a", "schedule": SELDOM})
    first = (await ask("GET", "/audit/verify", limit=100_000)).body
    assert (first["ok"], first["complete"]) == (True, True)
    count, noted = first["count"], first["hash"]

    async def continued(after: int, hash: str) -> str | None:
        found = (await ask("GET", "/audit/verify", after=after, hash=hash)).body
        flaw: str | None = found["flaw"]
        assert (found["ok"], found["complete"]) == (flaw is None, True)
        return flaw

    assert await continued(count, noted) is None
    assert await continued(count, "0" * 64) == f"entry {count} is not the one that was written last"
    assert await continued(count + 2, noted) == f"entries {count + 1} to {count + 2} are gone"
    await ask("POST", JOBS, {"name": "b", "schedule": SELDOM})
    assert await continued(count, noted) is None


async def test_a_workflow_version_is_immutable(ask: ApiClient):
    path = f"{HOME}/workflows/invoices/3"
    first = await ask("PUT", path, {"nodes": [1, 2]})
    assert (first.status, first.headers["location"]) == (201, path)
    assert (await ask("PUT", path, {"nodes": [1, 2]})).status == 200
    assert (await ask("PUT", path, {"nodes": []})).code == "already-exists"
    read = await ask("GET", path)
    assert (read.body["dag"], read.body["version"]) == ({"nodes": [1, 2]}, 3)
    assert (await ask("PUT", path, {})).status == 422


@on_one_store
async def test_status_and_slo_are_reported(ask: ApiClient):
    await ask("POST", JOBS, {"name": "a", "schedule": SELDOM})
    status = await ask("GET", "/status")
    assert (status.status, status.body["jobs"]["active"], status.body["engine"]) == (200, 1, True)
    assert (await ask("GET", "/slo")).status == 200
