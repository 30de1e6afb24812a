"""A request with an `Idempotency-Key` is executed once, on any number of retries and replicas."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import HOME, JOBS, ApiClient, served
from wakeful.clock import Clock

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
    with closing(sqlite3.connect(database.removeprefix("sqlite:///"))) as db:
        ((status, body),) = db.execute("SELECT status, body FROM idempotency_keys").fetchall()
    assert status == 201
    assert reply.body["secret"] not in body


@on_one_store
async def test_a_response_without_a_body_is_stored(ask: ApiClient):
    await ask("POST", JOBS, _JOB)
    for replayed in (False, True):
        reply = await ask("POST", f"{JOBS}/a/run", {"mode": "due"}, headers=_KEY)
        assert (reply.status, reply.body) == (204, "")
        assert ("idempotency-replayed" in reply.headers) is replayed


class _Ahead:
    """A clock one hour ahead of another."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        return self._clock.now_ms() + 3_600_000


@on_one_store
async def test_a_retry_gets_the_stored_response_even_if_it_would_be_rejected_now(
    ask: ApiClient, monkeypatch: pytest.MonkeyPatch
):
    at_ms = ask.app.store.clock.now_ms() + 1_800_000
    once = {**_JOB, "schedule": {"kind": "at", "atMs": at_ms}, "enabled": False}
    first = await ask("POST", JOBS, once, headers=_KEY)
    assert first.status == 201
    monkeypatch.setattr(ask.app.store, "clock", _Ahead(ask.app.store.clock))
    assert (await ask("POST", JOBS, {**once, "name": "b"})).status == 422
    again = await ask("POST", JOBS, once, headers=_KEY)
    assert (again.status, again.body) == (201, first.body)


@on_one_store
@pytest.mark.parametrize("key", ["", " ", "x" * 256, "schlüssel"])
async def test_an_invalid_key_is_rejected(ask: ApiClient, key: str):
    reply = await ask("POST", JOBS, _JOB, headers={"Idempotency-Key": key})
    assert (reply.status, reply.code) == (400, "invalid-argument")


@on_one_store
async def test_a_keyed_request_to_another_workspace_is_not_found(ask: ApiClient):
    stranger = await ask.new("admin", "default")
    reply = await stranger("POST", "/api/workspaces/acme/agents/default/jobs", _JOB, headers=_KEY)
    assert (reply.status, reply.code) == (404, "not-found")
