"""A request with an `Idempotency-Key` is executed once, on any number of retries and replicas."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.agents import counter
from tests.support.api_client import HOME, JOBS, ApiClient, served
from tests.support.openapi import openapi_document
from wakeful.errors import Unavailable
from wakeful.store.idempotency import ABANDONED_MS
from wakeful.values.clock import Clock

_JOB = {"name": "a", "schedule": SELDOM, "target": {"kind": "webhook", "url": "http://127.0.0.1:9/"}}
_KEY = {"Idempotency-Key": "the first of May"}


async def test_a_repeated_request_gets_the_same_response(ask: ApiClient):
    first = await ask("POST", JOBS, _JOB, headers=_KEY)
    again = await ask("POST", JOBS, _JOB, headers=_KEY)
    assert (first.status, again.status) == (201, 201)
    assert first.body == again.body
    assert again.body["secret"].startswith("whsec_")
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    for header in ("location", "etag", "content-type"):
        assert first.headers[header] == again.headers[header]


async def test_a_different_request_with_the_same_key_is_rejected(ask: ApiClient):
    await ask("POST", JOBS, _JOB, headers=_KEY)
    for path, body in (
        (JOBS, {**_JOB, "name": "b"}),
        (f"{HOME}/agents/other/jobs", _JOB),
        (f"{JOBS}/a/run", {}),
    ):
        reply = await ask("POST", path, body, headers=_KEY)
        assert (reply.status, reply.code) == (422, "invalid-argument")
        assert "another request" in reply.body["detail"]


async def test_a_rejected_request_leaves_its_key_free(ask: ApiClient):
    assert (await ask("POST", f"{JOBS}/a/run", headers=_KEY)).status == 404
    await ask("POST", JOBS, _JOB)
    run = await ask("POST", f"{JOBS}/a/run", headers=_KEY)
    assert (run.status, "idempotency-replayed" in run.headers) == (201, False)


async def test_concurrent_requests_execute_once_and_get_the_same_response(ask: ApiClient):
    await ask("POST", JOBS, _JOB)
    replies = await asyncio.gather(*(ask("POST", f"{JOBS}/a/run", headers=_KEY) for _ in range(10)))
    assert {reply.status for reply in replies} == {201}
    assert len({reply.body["id"] for reply in replies}) == 1
    assert sum("idempotency-replayed" not in reply.headers for reply in replies) == 1
    assert len((await ask("GET", f"{JOBS}/a/runs")).body["runs"]) == 1


async def test_concurrent_requests_on_two_replicas_execute_once(new_app: NewApp):
    one, other = new_app(), new_app()
    async with one, other, served(one) as ask, served(other) as elsewhere:
        there = elsewhere.with_key(ask.key)
        await ask("POST", JOBS, _JOB)
        replies = await asyncio.gather(
            *((ask, there)[number % 2]("POST", f"{JOBS}/a/run", headers=_KEY) for number in range(8))
        )
        assert {reply.status for reply in replies} == {201}
        assert len({reply.body["id"] for reply in replies}) == 1


@on_one_store
async def test_keys_are_scoped_to_the_principal(ask: ApiClient):
    await ask("POST", JOBS, _JOB)
    member = await ask.new("member")
    mine = await ask("POST", f"{JOBS}/a/run", headers=_KEY)
    theirs = await member("POST", f"{JOBS}/a/run", {"mode": "force"}, headers=_KEY)
    assert (mine.status, theirs.status) == (201, 201)
    assert mine.body["id"] != theirs.body["id"]


@on_one_store
async def test_a_stored_secret_is_encrypted(ask: ApiClient, database: str):
    reply = await ask("POST", JOBS, _JOB, headers=_KEY)
    many = await ask(
        "POST", f"{JOBS}/bulk", {"jobs": [{**_JOB, "name": "b"}]}, headers={"Idempotency-Key": "2"}
    )
    with closing(sqlite3.connect(database.removeprefix("sqlite:///"))) as db:
        stored = db.execute("SELECT status, body FROM idempotency_keys").fetchall()
    assert [status for status, _ in stored] == [201, 201]
    for _, body in stored:
        assert "whsec_" not in body
    assert reply.body["secret"].startswith("whsec_")
    assert many.body["jobs"][0]["secret"].startswith("whsec_")


@on_one_store
async def test_new_keys_and_trigger_urls_are_stored_encrypted_too(ask: ApiClient, database: str):
    await ask("POST", JOBS, _JOB)
    key = await ask("POST", "/keys", {"role": "member"}, headers=_KEY)
    hook = await ask("POST", f"{JOBS}/a/hook", headers={"Idempotency-Key": "2"})
    with closing(sqlite3.connect(database.removeprefix("sqlite:///"))) as db:
        stored = str(db.execute("SELECT body FROM idempotency_keys").fetchall())
    assert key.body["key"] not in stored
    assert hook.body["url"].rpartition("/")[2] not in stored
    again = await ask("POST", "/keys", {"role": "member"}, headers=_KEY)
    assert (again.body, again.headers["cache-control"]) == (key.body, "no-store")


@on_one_store
async def test_a_response_without_a_body_is_stored(ask: ApiClient):
    await ask("POST", JOBS, _JOB)
    for replayed in (False, True):
        reply = await ask("POST", f"{JOBS}/a/run", {"mode": "due"}, headers=_KEY)
        assert (reply.status, reply.body) == (204, "")
        assert ("idempotency-replayed" in reply.headers) is replayed


class _SetClock:
    """A clock that is one hour ahead of another, or so many."""

    def __init__(self, clock: Clock, hours: int = 1) -> None:
        self._clock, self._hours = clock, hours

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._hours * 3_600_000


@on_one_store
async def test_a_retry_gets_the_stored_response_even_if_it_would_be_rejected_now(
    ask: ApiClient, monkeypatch: pytest.MonkeyPatch
):
    at_ms = ask.app.store.clock.now_ms() + 1_800_000
    once = {**_JOB, "schedule": {"kind": "at", "atMs": at_ms}, "enabled": False}
    first = await ask("POST", JOBS, once, headers=_KEY)
    assert first.status == 201
    monkeypatch.setattr(ask.app.store, "clock", _SetClock(ask.app.store.clock))
    assert (await ask("POST", JOBS, {**once, "name": "b"})).status == 422
    again = await ask("POST", JOBS, once, headers=_KEY)
    assert (again.status, again.body) == (201, first.body)


@on_one_store
async def test_a_key_is_the_same_with_quotes_as_a_structured_string(ask: ApiClient):
    await ask("POST", JOBS, _JOB)
    hook = (await ask("POST", f"{JOBS}/a/hook")).body["url"].rpartition("/")[2]
    calls = [(f"{JOBS}/a/run", 201), (f"/hooks/{hook}", 202), (f"{JOBS}/a/pause", 200)]
    for number, (path, status) in enumerate(calls):
        for plain, quoted in (("draft", '"draft"'), ('17 "a" \\b', r'"17 \"a\" \\b"')):
            first = await ask("POST", path, headers={"Idempotency-Key": f"{plain}{number}"})
            key = f'{quoted[:-1]}{number}"'
            again = await ask("POST", path, headers={"Idempotency-Key": key})
            assert (first.status, again.status) == (status, status), (path, key)
            assert again.body == first.body
            assert "idempotency-replayed" not in first.headers
            assert again.headers["idempotency-replayed"] == "true"


@on_one_store
@pytest.mark.parametrize("key", ["", '""', " ", "x" * 256, "schlüssel"])
async def test_an_invalid_key_is_rejected(ask: ApiClient, key: str):
    reply = await ask("POST", JOBS, _JOB, headers={"Idempotency-Key": key})
    assert (reply.status, reply.code) == (400, "invalid-argument")


@on_one_store
async def test_a_keyed_request_to_another_workspace_is_not_found(ask: ApiClient):
    stranger = await ask.new("admin", "default")
    reply = await stranger("POST", "/api/workspaces/acme/agents/default/jobs", _JOB, headers=_KEY)
    assert (reply.status, reply.code) == (404, "not-found")


# --- every operation --------------------------------------------------------------------------------------

#: Operations without a key, and why.
_WITHOUT_KEY = {
    "/runs/claim": "is never replayed: its response is work for one executor; `release` undoes it",
    "/runs/release": "is fenced by the attempt: again, it changes nothing",
    "/runs/heartbeat": "is fenced by the attempt, and meant to be repeated",
    "/runs/{run_id}/heartbeat": "is fenced by the attempt, and meant to be repeated",
    "/schedules/preview": "changes nothing",
    "/agents/{agent}/jobs/test-target": "changes nothing here",
    "/agents/{agent}/jobs/snippets": "changes nothing",
    "/channels/{channel}/test": "changes nothing here",
    "/hooks/events/{source}": "has the key of its event",
    "/api/sign-in-links": "belongs to no workspace; a link that nobody opens expires in five minutes",
}


def test_every_post_takes_a_key_or_is_known_not_to():
    without = {
        path.removeprefix("/api/workspaces/{workspace}")
        for path, item in openapi_document()["paths"].items()
        if "post" in item
        and not any(each["name"].lower() == "idempotency-key" for each in item["post"].get("parameters", ()))
    }
    assert without == set(_WITHOUT_KEY)


_CALLS: dict[str, object] = {
    f"{JOBS}/pause/pause": {},
    f"{JOBS}/resume/resume": None,
    f"{JOBS}/skip/skip-next": None,
    f"{JOBS}/rotate/rotate-secret": None,
    f"{JOBS}/hook/hook": None,
    f"{JOBS}/restore/revisions/1/restore": None,
    "/agents/hooked/rotate-secret": None,
    f"{JOBS}/bulk": {"jobs": [{**_JOB, "name": "batch-1"}, {**_JOB, "name": "batch-2"}]},
    "/keys": {"role": "member"},
    "/jobs/pause": {"jobs": ["pause-1", "pause-2"]},
    "/jobs/resume": {"jobs": ["resume-1"]},
    "/jobs/run": {"jobs": ["run-1", "run-2"]},
    "/jobs/delete": {"jobs": ["delete-1", "delete-2"]},
    "/agents/counter/instances/eu/start": {"state": {"count": 3}},
    "/agents/counter/instances/us/stop": None,
    "/runs/{waiting}/cancel": None,
    "/runs/{claimed}/complete": {"attempt": 1, "status": "succeeded"},
    "/runs/complete": {"runs": [{"id": "{other}", "attempt": 1, "status": "succeeded"}]},
}


async def _prepare(ask: ApiClient) -> dict[str, str]:
    """Create what the calls are about; return the ids of a waiting and two claimed runs."""
    jobs = "pause resume skip rotate hook restore pause-1 pause-2 resume-1 run-1 run-2 delete-1 delete-2"
    for name in jobs.split():
        await ask("POST", JOBS, {**_JOB, "name": name})
    await ask("PATCH", f"{JOBS}/restore", {"description": "changed"})
    for name in ("resume", "resume-1"):
        await ask("POST", f"{JOBS}/{name}/pause")
    await ask("PUT", "/agents/hooked", {"target": _JOB["target"]})
    await ask("POST", "/agents/counter/instances/us/start")
    await ask("PUT", "/agents/puller", {"target": {"kind": "pull"}})
    ids = [(await ask("POST", "/agents/puller/runs")).body["id"] for _ in range(3)]
    taken = (await ask("POST", "/runs/claim", {"worker": "w", "limit": 2})).body["runs"]
    claimed, other = (run["id"] for run in taken)
    return {"claimed": claimed, "other": other, "waiting": (set(ids) - {claimed, other}).pop()}


def _filled(value: Any, ids: dict[str, str]) -> Any:
    text = json.dumps(value)
    for name, run_id in ids.items():
        text = text.replace(f"{{{name}}}", run_id)
    return json.loads(text)


async def test_the_same_request_at_the_same_time_and_later_changes_things_once(new_app: NewApp):
    one, other = new_app(), new_app()
    one.agent(counter())
    async with one, other, served(one) as ask, served(other) as elsewhere:
        ids, both = await _prepare(ask), (ask, elsewhere.with_key(ask.key))
        for call, given in _CALLS.items():
            path, body, key = _filled(call, ids), _filled(given, ids), {"Idempotency-Key": call}
            before = await one.store.audit_head("default")
            replies = await asyncio.gather(
                *(both[number % 2]("POST", path, body, headers=key) for number in range(4))
            )
            done = [reply for reply in replies if reply.status < 300]
            # A request of the other process may be told to wait until the response is stored.
            assert {reply.status for reply in replies} <= {done[0].status, 409}, call
            after = await one.store.audit_head("default")
            entries = await one.store.audit("default", after=before[0], limit=100)
            subjects = [(entry.action, entry.subject) for entry in entries]
            assert len(subjects) == len(set(subjects)) > 0, call
            for client in both:
                again = await client("POST", path, body, headers=key)
                assert (again.status, again.body) == (done[0].status, done[0].body), call
                assert again.headers["idempotency-replayed"] == "true"
            assert await one.store.audit_head("default") == after, call
            different = await ask("POST", f"{JOBS}/pause/pause", {"note": "another"}, headers=key)
            assert different.status == 422


@on_one_store
async def test_a_repeated_request_gets_its_response_after_the_agent_was_deleted(ask: ApiClient):
    await ask("PUT", "/agents/hooked", {"target": _JOB["target"]})
    path = "/agents/hooked/rotate-secret"
    first = await ask("POST", path, headers=_KEY)
    assert (await ask("DELETE", "/agents/hooked")).status == 204
    again = await ask("POST", path, headers=_KEY)
    assert (first.status, again.status, again.body) == (200, 200, first.body)
    assert (await ask("POST", path)).status == 404


@pytest.mark.parametrize("call", [("/jobs/run", {"jobs": ["a", "b"]}), (f"{JOBS}/a/skip-next", None)])
async def test_a_request_whose_process_died_before_the_response_is_not_performed_again(
    ask: ApiClient, monkeypatch: pytest.MonkeyPatch, call: tuple[str, object]
):
    path, body = call
    for name in ("a", "b"):
        await ask("POST", JOBS, {**_JOB, "name": name})

    async def die(*args: object) -> None:
        raise Unavailable("the process dies here")

    with monkeypatch.context() as patch:
        patch.setattr(ask.app.store, "keep_response", die)
        assert (await ask("POST", path, body, headers=_KEY)).status == 503
    after = await ask.app.store.audit_head("default")
    again = await ask("POST", path, body, headers=_KEY)
    assert (again.status, again.headers["retry-after"]) == (409, "1")
    assert ABANDONED_MS < 3_600_000
    clock = ask.app.store.clock
    for hours in (1, -1, 23, -9_000):  # also if the clock was set back meanwhile
        monkeypatch.setattr(ask.app.store, "clock", _SetClock(clock, hours))
        again = await ask("POST", path, body, headers=_KEY)
        assert (again.status, "its response was kept" in again.body["detail"]) == (409, True), hours
    assert await ask.app.store.audit_head("default") == after


@on_one_store
async def test_the_attributes_of_an_event_in_headers_are_part_of_the_request(new_app: NewApp):
    app = new_app()
    app.agent(counter())
    async with app, served(app) as ask:
        ce = {"ce-specversion": "1.0", "ce-type": "add", "ce-source": "/x"}
        replies = [
            await ask("POST", "/agents/counter/signals", data=b"", headers={**_KEY, **ce, "ce-id": number})
            for number in ("1", "1", "2")
        ]
        assert [reply.status for reply in replies] == [202, 202, 422]
        assert replies[0].body == replies[1].body
