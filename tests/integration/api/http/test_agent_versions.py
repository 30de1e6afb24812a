"""A PUT of an agent replaces all fields, a PATCH some; ETags guard agents and workspaces."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.conftest import on_one_store
from tests.support.api_client import ApiClient
from wakeful import AsyncClient, FailedPrecondition

AGENT = "/agents/writer"


async def test_a_change_since_the_agent_was_read_is_refused(ask: ApiClient):
    created = await ask("PUT", AGENT, {"description": "one"}, headers={"If-None-Match": "*"})
    assert (created.status, created.headers["etag"]) == (201, '"1"')
    read = await ask("GET", AGENT)
    assert read.headers["etag"] == '"1"'
    await ask("PUT", AGENT, {"description": "two"})
    stale = await ask("PUT", AGENT, {"description": "three"}, headers={"If-Match": '"1"'})
    assert (stale.status, stale.code) == (412, "failed-precondition")
    assert "has changed meanwhile: it is at version 2 now" in stale.body["detail"]
    assert (await ask("GET", AGENT)).body["description"] == "two"
    changed = await ask("PUT", AGENT, {"description": "three"}, headers={"If-Match": '"2"'})
    assert (changed.status, changed.headers["etag"]) == (200, '"3"')


async def test_of_two_changes_at_once_one_is_refused(ask: ApiClient):
    await ask("PUT", AGENT, {})
    replies = await asyncio.gather(
        *(ask("PUT", AGENT, {"description": text}, headers={"If-Match": '"1"'}) for text in ("a", "b"))
    )
    assert sorted(reply.status for reply in replies) == [200, 412]


@on_one_store
async def test_create_only_and_any_version(ask: ApiClient):
    assert (await ask("PUT", AGENT, {}, headers={"If-Match": "*"})).status == 412
    await ask("PUT", AGENT, {})
    taken = await ask("PUT", AGENT, {"description": "x"}, headers={"If-None-Match": "*"})
    assert (taken.status, taken.code) == (412, "failed-precondition")
    assert (await ask("PUT", AGENT, {"description": "x"}, headers={"If-Match": "*"})).status == 200
    assert (await ask("PUT", AGENT, {}, headers={"If-None-Match": '"1"'})).status == 400
    assert (await ask("PUT", AGENT, {}, headers={"If-Match": "1"})).status == 400


async def test_a_patch_keeps_the_other_fields_and_obeys_the_etag(ask: ApiClient):
    assert (await ask("PATCH", AGENT, {"tz": "Asia/Tokyo"})).status == 404
    await ask("PUT", AGENT, {"description": "one", "target": {"kind": "pull"}})
    changed = await ask(
        "PATCH", AGENT, {"tz": "Asia/Tokyo", "description": None}, headers={"If-Match": '"1"'}
    )
    assert (changed.status, changed.headers["etag"]) == (200, '"2"')
    shown = {field: changed.body[field] for field in ("target", "tz", "description")}
    assert shown == {"target": {"kind": "pull"}, "tz": "Asia/Tokyo", "description": ""}
    assert (await ask("PATCH", AGENT, {"tz": None}, headers={"If-Match": '"1"'})).status == 412
    assert (await ask("PATCH", AGENT, {"active": None})).body["tz"] == "Asia/Tokyo"
    async with AsyncClient(ask.url, ask.key) as client:
        for agents in (client.agents, ask.app.agents):
            assert (await agents.update("writer", {"description": "two"})).description == "two"
            with pytest.raises(FailedPrecondition):
                await agents.update("writer", {"description": "three"}, if_version=1)
            assert (await agents.update("writer", {"description": None})).tz == "Asia/Tokyo"


async def test_of_two_changes_of_a_workspace_at_once_one_is_refused(ask: ApiClient):
    path = "/api/workspaces/acme"
    etags = [(await ask("PUT", path, {"description": text})).headers["etag"] for text in ("one", "two")]
    assert (await ask("GET", path)).headers["etag"] == etags[1] != etags[0]
    stale = await ask("PUT", path, {"description": "three"}, headers={"If-Match": etags[0]})
    assert (stale.status, stale.code) == (412, "failed-precondition")
    replies = await asyncio.gather(
        *(ask("PUT", path, {"description": text}, headers={"If-Match": etags[1]}) for text in ("a", "b"))
    )
    assert sorted(reply.status for reply in replies) == [200, 412]
    saved = next(reply for reply in replies if reply.status == 200)
    assert (await ask("GET", path)).body["description"] == saved.body["description"]
