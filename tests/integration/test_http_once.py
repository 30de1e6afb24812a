"""A request with an `Idempotency-Key` is done once, however often and on however many replicas it is sent."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.asking import HOME, JOBS, Somebody, served
from tests.integration.conftest import SELDOM, NewApp, on_one_store
from wakeful import Unavailable
from wakeful.api.http import once as once_module

_JOB = {"name": "a", "schedule": SELDOM, "target": {"kind": "webhook", "url": "http://127.0.0.1:9/"}}
_KEY = {"Idempotency-Key": "the first of May"}


async def test_the_same_request_again_is_answered_the_same_again(ask: Somebody):
    first = await ask("POST", JOBS, _JOB, headers=_KEY)
    again = await ask("POST", JOBS, _JOB, headers=_KEY)
    assert (first.status, again.status) == (201, 201)
    assert first.body == again.body
    assert again.body["secret"].startswith("whsec_")
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    for header in ("location", "etag", "content-type"):
        assert first.headers[header] == again.headers[header]


async def test_another_request_with_the_same_key_is_refused(ask: Somebody):
    await ask("POST", JOBS, _JOB, headers=_KEY)
    for path, body in (
        (JOBS, {**_JOB, "name": "b"}),
        (f"{HOME}/agents/other/jobs", _JOB),
        (f"{JOBS}/a/run", {}),
    ):
        reply = await ask("POST", path, body, headers=_KEY)
        assert (reply.status, reply.code) == (422, "invalid-argument")
        assert "another request" in reply.body["detail"]


async def test_what_was_refused_was_not_done_so_that_its_key_is_free(ask: Somebody):
    assert (await ask("POST", f"{JOBS}/a/run", headers=_KEY)).status == 404
    await ask("POST", JOBS, _JOB)
    run = await ask("POST", f"{JOBS}/a/run", headers=_KEY)
    assert (run.status, "idempotency-replayed" in run.headers) == (201, False)


async def test_of_many_at_the_same_moment_one_acts_and_all_are_answered_the_same(ask: Somebody):
    await ask("POST", JOBS, _JOB)
    replies = await asyncio.gather(*(ask("POST", f"{JOBS}/a/run", headers=_KEY) for _ in range(10)))
    assert {reply.status for reply in replies} == {201}
    assert len({reply.body["id"] for reply in replies}) == 1
    assert sum("idempotency-replayed" not in reply.headers for reply in replies) == 1
    assert len((await ask("GET", f"{JOBS}/a/runs")).body["runs"]) == 1


async def test_two_replicas_do_it_once(new_app: NewApp):
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
async def test_keys_belong_to_whoever_sent_them(ask: Somebody):
    await ask("POST", JOBS, _JOB)
    member = await ask.new("member")
    mine = await ask("POST", f"{JOBS}/a/run", headers=_KEY)
    theirs = await member("POST", f"{JOBS}/a/run", {"mode": "force"}, headers=_KEY)
    assert (mine.status, theirs.status) == (201, 201)
    assert mine.body["id"] != theirs.body["id"]


@on_one_store
async def test_a_secret_that_is_kept_with_an_answer_lies_sealed(ask: Somebody):
    reply = await ask("POST", JOBS, _JOB, headers=_KEY)
    key = once_module._hash(f"key:{await _own_id(ask)}", _KEY["Idempotency-Key"])
    kept = await ask.app.store.answer("default", key)
    assert kept is not None
    assert kept.status == 201
    assert reply.body["secret"] not in kept.body


@on_one_store
async def test_what_is_done_is_answered_though_the_answer_cannot_be_kept(
    ask: Somebody, monkeypatch: pytest.MonkeyPatch
):
    async def lost(*_: object, **__: object) -> None:
        raise Unavailable("the database went away at the end")

    monkeypatch.setattr(ask.app.store, "settle_answer", lost)
    assert (await ask("POST", JOBS, _JOB, headers=_KEY)).status == 201
    assert (await ask("GET", f"{JOBS}/a")).status == 200


@on_one_store
async def test_an_answer_without_a_body_is_kept_too(ask: Somebody):
    await ask("POST", JOBS, _JOB)
    for replayed in (False, True):
        reply = await ask("POST", f"{JOBS}/a/run", {"mode": "due"}, headers=_KEY)
        assert (reply.status, reply.body) == (204, "")
        assert ("idempotency-replayed" in reply.headers) is replayed


@on_one_store
async def test_what_may_have_been_done_is_not_done_again(ask: Somebody, monkeypatch: pytest.MonkeyPatch):
    await ask("POST", JOBS, _JOB)

    async def lost(*_: object, **__: object) -> None:
        raise Unavailable("the database went away in the middle")

    with monkeypatch.context() as patched:
        patched.setattr(ask.app.services.jobs, "trigger", lost)
        assert (await ask("POST", f"{JOBS}/a/run", headers=_KEY)).status == 503
    monkeypatch.setattr(once_module, "_GIVEN_UP_MS", -1)
    reply = await ask("POST", f"{JOBS}/a/run", headers=_KEY)
    assert (reply.status, reply.code) == (409, "failed-precondition")
    assert "may have been done" in reply.body["detail"]
    assert (await ask("GET", f"{JOBS}/a/runs")).body["runs"] == []


@on_one_store
async def test_one_that_takes_long_is_not_waited_for_without_end(
    ask: Somebody, monkeypatch: pytest.MonkeyPatch
):
    await ask("POST", JOBS, _JOB)
    asked, go_on = asyncio.Event(), asyncio.Event()
    trigger = ask.app.services.jobs.trigger

    async def slow(*given: object, **named: object) -> object:
        asked.set()
        await go_on.wait()
        return await trigger(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(ask.app.services.jobs, "trigger", slow)
    monkeypatch.setattr(once_module, "_PATIENCE_S", 0.1)
    first = asyncio.create_task(ask("POST", f"{JOBS}/a/run", headers=_KEY))
    await asked.wait()
    reply = await ask("POST", f"{JOBS}/a/run", headers=_KEY)
    assert (reply.status, reply.code, reply.headers["retry-after"]) == (409, "failed-precondition", "1")
    go_on.set()
    assert (await first).status == 201
    again = await ask("POST", f"{JOBS}/a/run", headers=_KEY)
    assert again.body == (await first).body


@on_one_store
@pytest.mark.parametrize("key", ["", " ", "x" * 256, "schlüssel"])
async def test_a_key_that_can_be_none_is_refused(ask: Somebody, key: str):
    reply = await ask("POST", JOBS, _JOB, headers={"Idempotency-Key": key})
    assert (reply.status, reply.code) == (400, "invalid-argument")


@on_one_store
async def test_nobody_takes_places_in_somebody_elses_workspace(ask: Somebody):
    stranger = await ask.new("admin", "default")
    reply = await stranger("POST", "/api/workspaces/acme/agents/default/jobs", _JOB, headers=_KEY)
    assert (reply.status, reply.code) == (404, "not-found")


async def _own_id(ask: Somebody) -> str:
    assert ask.key is not None
    who = await ask.app.services.keys.authenticate(ask.key)
    return who.actor.removeprefix("key:")
