"""Revisions of jobs: which calls write one, who reads them, and restoring one."""

from __future__ import annotations

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.api_client import HOME, JOBS, ApiClient
from tests.support.suggestions import suggest
from wakeful import FailedPrecondition, NotFound, Webhook
from wakeful.service.auth.access import LOCAL

_WEBHOOK = {"kind": "webhook", "url": "http://127.0.0.1:9/hook", "headers": {"x-key": "secret-1"}}


async def test_an_edit_is_listed_with_its_author_and_both_values(ask: ApiClient) -> None:
    await ask("POST", JOBS, {"name": "digest", "schedule": "0 7 * * *", "target": {"kind": "echo"}})
    await ask("PATCH", f"{JOBS}/digest", {"schedule": "0 8 * * *", "payload": {"to": "me"}})
    reply = await ask("GET", f"{JOBS}/digest/revisions")
    assert reply.status == 200
    current, created = reply.body["revisions"]
    assert (current["revision"], created["revision"], created["changes"]) == (2, 1, [])
    assert current["by"].startswith("admin:")
    assert created["by"] == (await ask("GET", f"{JOBS}/digest")).body["createdBy"]
    assert {each["field"]: (each["before"], each["after"]) for each in current["changes"]} == {
        "schedule": (
            {"kind": "cron", "expr": "0 7 * * *", "tz": "UTC"},
            {"kind": "cron", "expr": "0 8 * * *", "tz": "UTC"},
        ),
        "payload": (None, {"to": "me"}),
    }
    assert (await ask("GET", f"{JOBS}/nothing/revisions")).code == "not-found"


async def test_a_pause_and_the_same_document_write_no_revision(ask: ApiClient) -> None:
    job = {"schedule": SELDOM, "target": {"kind": "echo"}}
    await ask("PUT", f"{JOBS}/digest", job)
    await ask("PUT", f"{JOBS}/digest", job)
    await ask("POST", f"{JOBS}/digest/pause")
    await ask("POST", f"{JOBS}/digest/resume")
    await ask("PATCH", f"{JOBS}/digest", {"enabled": False})
    await ask("PUT", f"{JOBS}/digest?dry_run=true", {**job, "payload": 1})
    assert len((await ask("GET", f"{JOBS}/digest/revisions")).body["revisions"]) == 1
    await ask("PUT", f"{JOBS}/digest", {**job, "payload": 1})
    (current, _) = (await ask("GET", f"{JOBS}/digest/revisions")).body["revisions"]
    assert current["revision"] == 5
    assert [each["field"] for each in current["changes"]] == ["payload"]


async def test_restoring_a_revision_is_an_edit_that_keeps_the_pause(ask: ApiClient) -> None:
    await ask("POST", JOBS, {"name": "digest", "schedule": "0 7 * * *", "target": {"kind": "echo"}})
    await ask("PATCH", f"{JOBS}/digest", {"schedule": "every 5m", "payload": 1, "timeoutMs": 5000})
    await ask("POST", f"{JOBS}/digest/pause")
    restored = await ask("POST", f"{JOBS}/digest/revisions/1/restore")
    assert restored.status == 200
    assert restored.body["schedule"] == {"kind": "cron", "expr": "0 7 * * *", "tz": "UTC"}
    assert (restored.body["payload"], restored.body["timeoutMs"]) == (None, None)
    assert not restored.body["enabled"]
    found = (await ask("GET", f"{JOBS}/digest/revisions")).body["revisions"]
    assert [each["revision"] for each in found] == [4, 2, 1]
    assert [each["field"] for each in found[0]["changes"]] == ["schedule", "timeoutMs", "payload"]
    missing = await ask("POST", f"{JOBS}/digest/revisions/3/restore")
    assert (missing.status, missing.code) == (404, "not-found")
    stale = await ask("POST", f"{JOBS}/digest/revisions/1/restore", headers={"If-Match": '"2"'})
    assert stale.status == 412


async def test_credentials_are_never_in_a_revision_and_cannot_be_restored(ask: ApiClient) -> None:
    await ask("POST", JOBS, {"name": "digest", "schedule": SELDOM, "target": _WEBHOOK})
    changed = {**_WEBHOOK, "headers": {"x-key": "secret-2"}}
    await ask("PATCH", f"{JOBS}/digest", {"target": changed})
    reply = await ask("GET", f"{JOBS}/digest/revisions")
    assert "secret-" not in str(reply.body)
    assert reply.body["revisions"][0]["changes"][0]["hidden"]
    await ask("PATCH", f"{JOBS}/digest", {"target": {"kind": "echo"}})
    refused = await ask("POST", f"{JOBS}/digest/revisions/1/restore")
    assert (refused.status, refused.code) == (409, "failed-precondition")
    assert "had credentials in its target" in refused.body["detail"]


async def test_a_member_reads_revisions_and_restores_none(ask: ApiClient) -> None:
    await ask("POST", JOBS, {"name": "digest", "schedule": SELDOM, "target": {"kind": "echo"}})
    await ask("PATCH", f"{JOBS}/digest", {"payload": 1})
    key = (await ask("POST", f"{HOME}/keys", {"role": "member"})).body["key"]
    member = {"authorization": f"Bearer {key}"}
    assert (await ask("GET", f"{JOBS}/digest/revisions", headers=member)).status == 200
    refused = await ask("POST", f"{JOBS}/digest/revisions/1/restore", headers=member)
    assert refused.status == 403


async def test_an_applied_suggestion_is_a_revision(new_app: NewApp) -> None:
    async with new_app() as app:
        await app.jobs.create("work", schedule=SELDOM, target=Webhook("https://example.com/hook"))
        suggestion = await suggest(app.store, "default", "work")
        await app.suggestions.apply(suggestion)
        assert [change.field for change in (await app.jobs.revisions("work"))[0].changes] == ["timeoutMs"]
        await app.suggestions.rollback(suggestion)
        found = await app.jobs.revisions("work")
    assert [(each.changes[0].before, each.changes[0].after) for each in found[:-1]] == [
        (60_000, None),
        (None, 60_000),
    ]


async def test_the_embedded_app_lists_and_restores(new_app: NewApp) -> None:
    async with new_app() as app:
        await app.jobs.create("digest", schedule=SELDOM, message="one")
        await app.jobs.update("digest", message="two")
        assert (await app.jobs.restore("digest", 1)).message == "one"
        assert [each.revision for each in await app.jobs.revisions("digest")] == [3, 2, 1]
        with pytest.raises(NotFound, match="has no revision 9"):
            await app.jobs.restore("digest", 9)
        with pytest.raises(FailedPrecondition, match="version 3"):
            await app.services.jobs.revisions.restore(LOCAL, "default", "default", "digest", 1, version=1)
