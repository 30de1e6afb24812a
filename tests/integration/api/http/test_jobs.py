"""Jobs over HTTP: create, upsert, update, version checks and pagination."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, on_one_store
from tests.support.api_client import HOME, JOBS, ApiClient
from wakeful.api.http.paging import read_cursor, write_cursor
from wakeful.store.rows import JobChange

_WEBHOOK = {"kind": "webhook", "url": "http://127.0.0.1:9/hook"}
_NOTHING = {"kind": "function", "name": "nothing"}


async def test_the_lifecycle_of_a_job(ask: ApiClient):
    created = await ask("POST", JOBS, {"name": "digest", "schedule": "0 7 * * *", "target": _WEBHOOK})
    assert created.status == 201
    assert created.headers["location"] == f"{JOBS}/digest"
    assert created.headers["etag"] == '"1"'
    assert created.body["secret"].startswith("whsec_")
    assert created.body["explain"] == "At 07:00, every day (UTC)"

    read = await ask("GET", f"{JOBS}/digest")
    assert (read.status, read.headers["etag"]) == (200, '"1"')
    assert "secret" not in read.body
    assert len(read.body["nextTicks"]) == 5
    assert read.body["nextTicks"][0]["atMs"] == read.body["nextAtMs"]
    assert read.body["nextTicks"][0]["at"].endswith("T07:00:00.000+00:00")

    changed = await ask("PATCH", f"{JOBS}/digest", {"schedule": "0 8 * * *", "enabled": False})
    assert (changed.status, changed.headers["etag"]) == (200, '"2"')
    assert (changed.body["enabled"], changed.body["nextAt"]) == (False, None)

    resumed = await ask("POST", f"{JOBS}/digest/resume")
    assert resumed.body["enabled"]
    paused = await ask("POST", f"{JOBS}/digest/pause")
    assert (paused.body["enabled"], paused.body["disabledReason"]) == (False, "paused")

    rotated = await ask("POST", f"{JOBS}/digest/rotate-secret")
    assert rotated.body["secret"].startswith("whsec_")
    assert rotated.body["secret"] != created.body["secret"]

    gone = await ask("DELETE", f"{JOBS}/digest")
    assert (gone.status, gone.body) == (204, "")
    assert (await ask("GET", f"{JOBS}/digest")).code == "not-found"
    assert (await ask("DELETE", f"{JOBS}/digest")).code == "not-found"


async def test_a_duplicate_name_is_rejected(ask: ApiClient):
    job = {"name": "a", "schedule": SELDOM}
    assert (await ask("POST", JOBS, job)).status == 201
    reply = await ask("POST", JOBS, job)
    assert (reply.status, reply.code) == (409, "already-exists")


async def test_a_batch_creates_all_jobs_or_none(ask: ApiClient):
    documents = [{"name": f"job-{n}", "schedule": SELDOM, "target": _WEBHOOK} for n in range(3)]
    refused: list[dict[str, object]] = [
        {},
        {"jobs": []},
        {"jobs": {}},
        {"jobs": [*documents, 7]},
        {"jobs": [*documents, documents[0] | {"name": "x", "agentId": "other"}]},
        {"jobs": [*documents, {"name": "x", "schedule": "61 * * * *"}]},
        {"jobs": documents, "dryRun": True},
        {"jobs": [{"name": f"n{n}"} for n in range(1001)]},
    ]
    for wrong in refused:
        assert (await ask("POST", f"{JOBS}/bulk", wrong)).status == 422, wrong
    twice = await ask("POST", f"{JOBS}/bulk", {"jobs": [*documents, documents[1]]})
    assert (twice.status, twice.code) == (409, "already-exists")
    assert "'job-1'" in twice.body["detail"]
    member = await ask.new("member")
    assert (await member("POST", f"{JOBS}/bulk", {"jobs": documents})).status == 403
    await ask("PUT", "/quotas", {"bucket": "scheduler.liveJobs", "limit": 2})
    limited = await ask("POST", f"{JOBS}/bulk", {"jobs": documents})
    assert (limited.status, limited.code) == (429, "resource-exhausted"), limited.body
    assert (await ask("GET", JOBS)).body["jobs"] == []
    await ask("PUT", "/quotas", {"bucket": "scheduler.liveJobs", "limit": 3})
    done = await ask("POST", f"{JOBS}/bulk", {"jobs": documents})
    assert (done.status, [job["name"] for job in done.body["jobs"]]) == (201, ["job-0", "job-1", "job-2"])
    assert all(job["secret"].startswith("whsec_") for job in done.body["jobs"])


async def test_a_put_creates_then_updates(ask: ApiClient):
    job = {"schedule": SELDOM, "target": _WEBHOOK}
    first = await ask("PUT", f"{JOBS}/a", job)
    assert (first.status, first.headers["location"]) == (201, f"{JOBS}/a")
    await ask("POST", f"{JOBS}/a/pause")
    again = await ask("PUT", f"{JOBS}/a", {**job, "name": "a"})
    assert (again.status, again.headers["etag"]) == (200, '"2"')
    assert not again.body["enabled"]
    assert "location" not in again.headers
    other = await ask("PUT", f"{JOBS}/a", {**job, "name": "b"})
    assert (other.status, other.code) == (422, "invalid-argument")
    assert "PATCH" in other.body["detail"]


@on_one_store
async def test_a_put_with_if_none_match_only_creates(ask: ApiClient):
    job, only_new = {"schedule": SELDOM}, {"If-None-Match": "*"}
    assert (await ask("PUT", f"{JOBS}/a", job, headers=only_new)).status == 201
    reply = await ask("PUT", f"{JOBS}/a", job, headers=only_new)
    assert (reply.status, reply.code) == (412, "failed-precondition")
    assert (await ask("PUT", f"{JOBS}/a", job, headers={"If-None-Match": '"1"'})).status == 422


@on_one_store
async def test_a_change_to_a_stale_version_is_rejected(ask: ApiClient):
    await ask("POST", JOBS, {"name": "a", "schedule": SELDOM})
    await ask("PATCH", f"{JOBS}/a", {"description": "by somebody else"})
    stale = {"If-Match": '"1"'}
    for method, body in (("PATCH", {"description": "mine"}), ("PUT", {"schedule": SELDOM}), ("DELETE", None)):
        reply = await ask(method, f"{JOBS}/a", body, headers=stale)
        assert (reply.status, reply.code) == (412, "failed-precondition"), method
        assert "version 2" in reply.body["detail"]
    assert (await ask("GET", f"{JOBS}/a")).body["description"] == "by somebody else"

    fresh = await ask("PATCH", f"{JOBS}/a", {"description": "mine"}, headers={"If-Match": '"1", "2"'})
    assert (fresh.status, fresh.headers["etag"]) == (200, '"3"')
    whatever = await ask("PUT", f"{JOBS}/a", {"schedule": SELDOM}, headers={"If-Match": "*"})
    assert (whatever.status, whatever.body["description"]) == (200, "")
    assert (await ask("DELETE", f"{JOBS}/a", headers={"If-Match": '"4"'})).status == 204
    assert (await ask("PUT", f"{JOBS}/a", {"schedule": SELDOM}, headers={"If-Match": "*"})).status == 412
    assert (await ask("DELETE", f"{JOBS}/a", headers={"If-Match": "*"})).status == 404


async def test_a_dry_run_validates_and_changes_nothing(ask: ApiClient):
    hook = {"kind": "webhook", "url": "http://127.0.0.1:9/"}
    job, document = f"{JOBS}/a", {"schedule": SELDOM, "description": "first"}
    assert (await ask("PUT", job, document, dry_run="true")).status == 204
    assert (await ask("GET", job)).status == 404
    await ask("PUT", job, document)
    member = await ask.new("member")
    before = (await ask("GET", job)).body
    audited = (await ask("GET", "/audit")).body
    for changed in ({"description": "second"}, {"target": hook}, {"schedule": "@daily"}):
        assert (await ask("PUT", job, {**document, **changed}, dry_run="true")).status == 204
    for given, headers, status in (
        ({"schedule": "nope"}, {}, 422),
        ({**document, "target": hook, "lane": "nowhere"}, {}, 422),
        ({**document, "target": {"kind": "chat"}}, {}, 422),
        (document, {"If-Match": '"7"'}, 412),
        (document, {"If-None-Match": "*"}, 412),
    ):
        refused = await ask("PUT", job, given, headers=headers, dry_run="true")
        assert refused.status == status, given
    assert (await member("PUT", job, document, dry_run="true")).status == 403
    assert (await ask("GET", job)).body == before
    assert (await ask("GET", "/audit")).body == audited


@on_one_store
async def test_an_invalid_change_is_distinguished_from_a_stale_version(ask: ApiClient):
    await ask("POST", JOBS, {"name": "a", "schedule": "in 1h", "enabled": False})
    await ask("PATCH", f"{JOBS}/a", {"endAt": "2999-01-01T00:00"})
    job = await ask("GET", f"{JOBS}/a")
    await ask("PATCH", f"{JOBS}/a", {"maxRuns": 1})
    reply = await ask("PATCH", f"{JOBS}/a", {"name": "a-b-"}, headers={"If-Match": '"3"'})
    assert (reply.status, reply.code) == (422, "invalid-argument")
    assert job.headers["etag"] == '"2"'


async def test_one_of_many_concurrent_changes_to_one_version_succeeds(
    ask: ApiClient, monkeypatch: pytest.MonkeyPatch
):
    await ask("POST", JOBS, {"name": "a", "schedule": SELDOM})
    get, all_have_read, reads = ask.app.services.jobs.get, asyncio.Barrier(8), count(1)

    async def read_together(*given: Any) -> Any:
        job = await get(*given)
        if next(reads) <= all_have_read.parties:
            await all_have_read.wait()
        return job

    monkeypatch.setattr(ask.app.services.jobs, "get", read_together)
    replies = await asyncio.gather(
        *(
            ask("PATCH", f"{JOBS}/a", {"description": f"by {number}"}, headers={"If-Match": '"1"'})
            for number in range(8)
        )
    )
    assert sorted(reply.status for reply in replies) == [200] + [412] * 7
    assert (await ask("GET", f"{JOBS}/a")).headers["etag"] == '"2"'


async def test_a_job_changed_after_it_was_read_is_not_deleted(
    ask: ApiClient, monkeypatch: pytest.MonkeyPatch
):
    """A delete with If-Match compares the version in the transaction that deletes."""
    job, delete_job, edits = f"{JOBS}/a", ask.app.store.delete_job, []
    await ask("PUT", job, {"schedule": SELDOM})

    async def delete_after_an_edit(*given: Any, **named: Any) -> Any:
        edits.append((await ask("PATCH", job, {"description": "mine"})).status)
        return await delete_job(*given, **named)

    monkeypatch.setattr(ask.app.store, "delete_job", delete_after_an_edit)
    assert (await ask("DELETE", job, headers={"If-Match": '"1"'})).status == 412
    assert edits == [200]
    assert (await ask("GET", job)).body["description"] == "mine"


@on_one_store
async def test_a_get_with_a_matching_etag_is_answered_304(ask: ApiClient):
    await ask("POST", JOBS, {"name": "a", "schedule": SELDOM})
    for header in ('"1"', 'W/"1"', "*", '"7", "1"'):
        known = await ask("GET", f"{JOBS}/a", headers={"If-None-Match": header})
        assert (known.status, known.body, known.headers["etag"]) == (304, "", '"1"')
    assert (await ask("GET", f"{JOBS}/a", headers={"If-None-Match": '"2"'})).status == 200
    assert (await ask("GET", f"{JOBS}/a", headers={"If-None-Match": "1"})).status == 400


async def test_pagination_returns_every_job_once(ask: ApiClient):
    for agent in ("alpha", "beta"):
        for number in range(5):
            path = f"{HOME}/agents/{agent}/jobs"
            await ask("POST", path, {"name": f"job-{number}", "schedule": SELDOM})
    found: list[tuple[str, str]] = []
    cursor, pages = None, count(1)
    while cursor is not None or not found:
        page = await ask("GET", "/jobs", limit=3, **({"cursor": cursor} if cursor else {}))
        assert len(page.body["jobs"]) <= 3
        found += [(job["agentId"], job["name"]) for job in page.body["jobs"]]
        cursor = page.body["cursor"]
        next(pages)
    assert found == [(agent, f"job-{number}") for agent in ("alpha", "beta") for number in range(5)]
    assert next(pages) == 5
    assert (await ask("GET", "/jobs", limit=10)).body["cursor"] is None
    assert (await ask("GET", "/jobs", limit=1)).body["jobs"][0]["name"] == "job-0"


async def test_disabled_jobs_are_listed_only_on_request(ask: ApiClient):
    for name in ("a", "b"):
        await ask("POST", JOBS, {"name": name, "schedule": SELDOM, "enabled": name == "a"})
    for path in ("/jobs", JOBS):
        assert [job["name"] for job in (await ask("GET", path)).body["jobs"]] == ["a"]
        both = await ask("GET", path, include_disabled="true")
        assert [job["name"] for job in both.body["jobs"]] == ["a", "b"]
    assert (await ask("GET", "/jobs", agent="nobody")).code == "not-found"


async def test_a_forged_cursor_is_rejected_on_every_store(ask: ApiClient, monkeypatch: pytest.MonkeyPatch):
    scopes: list[Any] = []  # cursor scopes are public: they can be read in the source

    def noted(cursor: str, scope: Any, *kinds: type) -> Any:
        scopes.append(scope)
        return read_cursor(cursor, scope, *kinds)

    for module in ("job_lists", "paging", "admin"):
        monkeypatch.setattr(f"wakeful.api.http.{module}.read_cursor", noted)
    sessions = "/agents/default/sessions"
    forged: dict[str, list[Any]] = {
        "/jobs": [["default", "a\x00"], ["\x00", "a"], {"default": 0, "a": 0}],
        "/runs": [["\x00"], {"a": 0}],
        "/audit": [[2**63], [-1], [10**400]],
        "/subscriptions": [[2**63 - 1, "a"]],
        sessions: [["\x00"]],
    }
    for path, places in forged.items():
        assert (await ask("GET", path, cursor="another")).status == 422
        for place in places:
            cursor = write_cursor(place, scopes[-1])
            reply = await ask("GET", path, cursor=cursor)
            assert (reply.status, reply.code) == (422, "invalid-argument"), (path, place)


@on_one_store
async def test_a_modified_cursor_or_one_of_another_list_is_rejected(ask: ApiClient):
    for number in range(3):
        await ask("POST", JOBS, {"name": f"job-{number}", "schedule": SELDOM})
    cursor = (await ask("GET", "/jobs", limit=1)).body["cursor"]
    changed = cursor[:-2] + ("AA" if cursor[-2:] != "AA" else "BB")
    for path, given in (
        ("/jobs", changed),
        ("/jobs", cursor[3:]),
        ("/jobs", "A" * 2048),
        ("/jobs", "ä" * 10),
        ("/jobs", write_cursor([1], ["jobs"])),
        (JOBS, cursor),
        ("/runs", cursor),
        ("/audit", cursor),
        ("/dead-letters", cursor),
    ):
        reply = await ask("GET", path, limit=1, cursor=given)
        assert (reply.status, reply.code) == (422, "invalid-argument"), given
        assert "cursor: " in reply.body["detail"]
    assert (await ask("GET", "/jobs", limit=1, cursor=cursor, include_disabled="true")).status == 422
    assert (await ask("GET", "/jobs", limit=1, cursor=cursor)).body["jobs"][0]["name"] == "job-1"


@pytest.mark.parametrize("unreadable", [[0, 1, 2], [1], [2], [1, 2, 3, 4], [5]])
async def test_unreadable_jobs_do_not_hide_later_ones(ask: ApiClient, unreadable: list[int]):
    for number in range(6):
        schedule = f"{number} 0 29 2 *"
        await ask("POST", JOBS, {"name": f"job-{number}", "schedule": schedule, "target": _NOTHING})
    store = ask.app.store
    for number in unreadable:
        row = await store.job("default", "default", f"job-{number}")
        assert row is not None
        await store.change_job(row.id, lambda job: JobChange(job._replace(work='{"nonsense":1}')))
    readable = [f"job-{number}" for number in range(6) if number not in unreadable]
    for sort in ("name", "next"):
        page = (await ask("GET", "/jobs", limit=2, sort=sort)).body
        found = [job["name"] for job in page["jobs"]]
        while page["cursor"] is not None:
            page = (await ask("GET", "/jobs", limit=2, sort=sort, cursor=page["cursor"])).body
            found += [job["name"] for job in page["jobs"]]
        assert found == readable
    assert [job.name for job in await ask.app.jobs.list()] == readable


async def test_a_manual_run_takes_its_own_payload(ask: ApiClient):
    await ask("POST", JOBS, {"name": "a", "schedule": SELDOM, "target": _NOTHING})
    run = await ask("POST", f"{JOBS}/a/run", {"payload": {"to": "you"}})
    assert (run.status, run.headers["location"]) == (201, f"{HOME}/runs/{run.body['id']}")
    assert (run.body["trigger"], run.body["payload"]) == ("user", {"to": "you"})
    assert (await ask("POST", f"{JOBS}/a/run")).status == 201
    nothing_due = await ask("POST", f"{JOBS}/a/run", {"mode": "due"})
    assert (nothing_due.status, nothing_due.body) == (204, "")
    for body in ({"mode": "soon"}, {"mode": 1}, {"when": "now"}):
        assert (await ask("POST", f"{JOBS}/a/run", body)).status == 422


@pytest.mark.parametrize("start", ["2024-01-01T00:00", "2024-01-01T00:00:00Z", 1_704_067_200_000])
@on_one_store
async def test_a_backfill_creates_past_runs(ask: ApiClient, start: str | int):
    await ask("POST", JOBS, {"name": "a", "schedule": "0 12 * * *", "target": _NOTHING})
    reply = await ask("POST", f"{JOBS}/a/backfill", {"start": start, "end": "2024-01-03T23:59Z"})
    assert (reply.status, reply.body) == (200, {"count": 3})
    for body in ({}, {"start": start}, {"start": "then", "end": start}, {"start": True, "end": start}):
        assert (await ask("POST", f"{JOBS}/a/backfill", body)).status == 422
