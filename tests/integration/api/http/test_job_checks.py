"""What is known about a job before it is saved, over HTTP: its schedule, its target, its texts."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import threading
import time
from typing import Any

import pytest
from aiohttp import web

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import JOBS, ApiClient, served
from tests.support.receiver import Receiver
from wakeful.launch.secrets import read_secret
from wakeful.service.jobs import job_snippets
from wakeful.service.jobs.job_snippets import Snippets, snippets
from wakeful.service.jobs.target_tests import PER_MINUTE

PREVIEW, TEST, SNIPPETS = "/schedules/preview", f"{JOBS}/test-target", f"{JOBS}/snippets"


@on_one_store
async def test_a_preview_has_the_normal_form_the_words_and_the_ticks(ask: ApiClient):
    reply = await ask(
        "POST",
        PREVIEW,
        {"schedule": "@daily", "tz": "Europe/Berlin", "startAt": "2027-03-27T00:00", "count": 3},
    )
    assert reply.status == 200
    body = reply.body
    assert body["schedule"] == {"kind": "cron", "expr": "0 0 * * *", "tz": "Europe/Berlin"}
    assert (body["text"], body["tz"]) == ("0 0 * * *", "Europe/Berlin")
    assert body["explain"] == "At 00:00, every day (Europe/Berlin)"
    assert [tick["at"] for tick in body["ticks"]] == [
        "2027-03-27T00:00:00.000+01:00",
        "2027-03-28T00:00:00.000+01:00",
        "2027-03-29T00:00:00.000+02:00",
    ]
    assert [tick["offset"] for tick in body["ticks"]] == ["+01:00", "+01:00", "+02:00"]
    (change,) = body["clockChanges"]
    assert (change["before"], change["after"], change["skipped"]) == ("+01:00", "+02:00", None)
    assert body["peak"] is None


@on_one_store
async def test_a_preview_has_the_errors_of_a_creation(ask: ApiClient):
    for given in (
        {"schedule": "0 0 31 2 *"},
        {"schedule": "every 5", "tz": "Mars/Here"},
        {"schedule": "@daily", "exclude": ["nothing"]},
        {"schedule": "2020-01-01T00:00"},
        {"schedule": "@daily", "endAt": "2020-01-01T00:00"},
        {"schedule": "@daily", "dstGap": "other"},
        {},
    ):
        shown = await ask("POST", PREVIEW, given)
        created = await ask("POST", JOBS, {**given, "name": "a"})
        assert (shown.status, shown.code) == (422, "invalid-argument")
        # The message of a time in the past has the current time.
        assert shown.body["detail"].split("it is now")[0] == created.body["detail"].split("it is now")[0]


@on_one_store
async def test_a_preview_of_a_job_keeps_the_anchor_of_its_interval(ask: ApiClient):
    job = (await ask("POST", JOBS, {"name": "tidy", "schedule": "every 1h"})).body
    shown = await ask("POST", PREVIEW, {"schedule": "every 1h", "job": "tidy"})
    assert shown.body["ticks"][0]["atMs"] == job["nextAtMs"]
    assert (await ask("POST", PREVIEW, {"schedule": "every 1h", "job": "none"})).status == 404


@on_one_store
async def test_a_preview_uses_the_zone_of_the_agent(ask: ApiClient):
    await ask("PUT", "/agents/tokyo", {"tz": "Asia/Tokyo"})
    shown = await ask("POST", PREVIEW, {"schedule": "0 9 * * *", "agentId": "tokyo"})
    assert shown.body["tz"] == "Asia/Tokyo"


@on_one_store
async def test_members_preview_and_agents_only_see_their_own(ask: ApiClient):
    member = await ask.new("member")
    assert (await member("POST", PREVIEW, {"schedule": "@daily"})).status == 200
    assert (await member("POST", TEST, {"target": {"kind": "echo"}})).code == "permission-denied"
    writer = await ask.new("agent", agent="writer")
    assert (await writer("POST", PREVIEW, {"schedule": "@daily"})).status == 200
    other = {"schedule": "@daily", "agentId": "other"}
    assert (await writer("POST", PREVIEW, other)).code == "not-found"


@on_one_store
async def test_a_crowded_minute_has_a_quieter_suggestion(ask: ApiClient):
    many = [{"name": f"job-{number}", "schedule": "0 9 * * *"} for number in range(40)]
    await asyncio.gather(*(ask("POST", JOBS, each) for each in many))
    assert (await ask("GET", "/peaks")).status == 200  # computes the week
    shown = await ask("POST", PREVIEW, {"schedule": "0 9 * * *"})
    peak = shown.body["peak"]
    assert peak["starts"] == 40
    assert peak["schedule"] not in (None, "0 9 * * *")
    assert "set a jitter (5m)" in peak["message"]
    moved = await ask("POST", PREVIEW, {"schedule": peak["schedule"]})
    assert moved.body["peak"] is None
    assert (await ask("POST", PREVIEW, {"schedule": "0 9 * * *", "jitter": "5m"})).body["peak"] is None


def verified(request: dict[str, Any], secret: str) -> bool:
    body = request["body"].encode()
    signature = hmac.new(read_secret(secret), body, hashlib.sha256).hexdigest()
    return bool(request["headers"]["x-wakeful-signature"] == signature)


@on_one_store
async def test_a_webhook_gets_a_signed_request_that_is_no_run(ask: ApiClient, receiver: Receiver):
    receiver.answers(201, "thanks", x_own="1")
    target = {"kind": "webhook", "url": receiver.url, "headers": {"x-key": "abc"}}
    reply = await ask("POST", TEST, {"name": "digest", "target": target, "payload": {"n": 1.0}})
    assert reply.status == 200, reply
    body = reply.body
    assert (body["ok"], body["kind"], body["response"]["status"]) == (True, "webhook", 201)
    assert body["response"]["body"] == "thanks"
    assert ["x-own", "1"] in body["response"]["headers"]
    assert body["durationMs"] >= 0
    assert receiver.bodies == [b'{"job":"digest","payload":{"n":1.0}}']
    assert receiver.headers["x-wakeful-trigger"] == "test"
    assert receiver.headers["x-key"] == body["request"]["headers"]["x-key"] == "abc"
    assert receiver.headers["x-wakeful-signature"] == body["request"]["headers"]["x-wakeful-signature"]
    assert verified(body["request"], body["secret"])
    assert (await ask("GET", "/runs")).body["runs"] == []
    run_id = receiver.headers["x-wakeful-run-id"]
    assert (await ask("GET", f"/runs/{run_id}")).status == 404
    (entry,) = [each for each in (await ask("GET", "/audit")).body["entries"] if "test" in each["action"]]
    assert (entry["action"], entry["subject"]) == ("job.test-target", "default/digest")
    assert entry["details"] == {"kind": "webhook", "host": "127.0.0.1"}


@on_one_store
async def test_the_test_of_a_job_is_signed_with_its_secret(ask: ApiClient, receiver: Receiver):
    target = {"kind": "webhook", "url": receiver.url, "headers": {"authorization": "Bearer abc"}}
    job = {"name": "digest", "schedule": SELDOM, "target": target, "message": "hello"}
    secret = (await ask("POST", JOBS, job)).body["secret"]
    stored = (await ask("POST", TEST, {"job": "digest"})).body
    assert "secret" not in stored
    assert verified(stored["request"], secret)
    assert json.loads(stored["request"]["body"]) == {"job": "digest", "payload": {"message": "hello"}}
    other = (await ask("POST", TEST, {"job": "digest", "payload": [1], "message": None})).body
    assert json.loads(other["request"]["body"]) == {"job": "digest", "payload": [1]}


@on_one_store
@pytest.mark.parametrize(
    ("status", "advice"),
    [(404, "check the path"), (401, "check the headers"), (302, "not followed"), (500, "")],
)
async def test_a_refusal_of_the_receiver_has_advice(
    ask: ApiClient, receiver: Receiver, status: int, advice: str
):
    receiver.answers(status, "no", location="https://b.example/")
    body = (await ask("POST", TEST, {"target": {"kind": "webhook", "url": receiver.url}})).body
    assert (body["ok"], body["response"]["status"]) == (False, status)
    assert f"HTTP {status}" in body["message"]
    assert advice in body["message"]
    assert len(receiver.requests) == 1  # no retry


@on_one_store
async def test_a_receiver_that_does_not_answer_is_named(ask: ApiClient, receiver: Receiver):
    closed = (await ask("POST", TEST, {"target": {"kind": "webhook", "url": "http://127.0.0.1:1/"}})).body
    assert (closed["ok"], closed["response"]) == (False, None)
    assert "could not connect to 127.0.0.1:1" in closed["message"]

    never = asyncio.Event()

    async def hang(request: web.BaseRequest) -> web.StreamResponse:
        await never.wait()
        return web.Response()

    receiver.answer = hang
    slow = {"target": {"kind": "webhook", "url": receiver.url}, "timeout": "50ms"}
    body = (await ask("POST", TEST, slow)).body
    assert body["message"].startswith("no response within 50 milliseconds; answer sooner")
    assert verified(body["request"], body["secret"])
    never.set()


@on_one_store
async def test_addresses_that_runs_may_not_reach_are_refused(new_app: NewApp, receiver: Receiver):
    app = new_app(allow_private_targets=False)
    async with app, served(app) as ask:
        reply = await ask("POST", TEST, {"target": {"kind": "webhook", "url": receiver.url}})
        assert reply.code == "invalid-argument"
        named = {"target": {"kind": "webhook", "url": f"http://localhost:{receiver.port}/"}}
        body = (await ask("POST", TEST, named)).body
        assert not body.get("ok")
    assert receiver.requests == []


@on_one_store
async def test_the_other_kinds_are_checked_and_not_launched(ask: ApiClient):
    async def found(**target: object) -> tuple[bool, str]:
        body = (await ask("POST", TEST, {"target": target})).body
        assert (body["request"], body["response"]) == (None, None)
        return body["ok"], body["message"]

    ok, message = await found(kind="function", name="nothing")
    assert ok, message
    assert "this process has the function 'nothing'" in message
    assert await found(kind="function", name="other") == (
        False,
        "no running replica has the function 'other'; start a process that registers it",
    )
    assert (await found(kind="echo"))[0]
    ok, message = await found(kind="pull")
    assert (ok, "no executor has asked" in message) == (False, True)
    await ask("POST", "/runs/claim", {"worker": "me"})
    ok, message = await found(kind="pull")
    assert ok, message
    assert "an executor asked for runs of agent 'default'" in message
    ok, message = await found(kind="workflow", workflowId="bill", version=1)
    assert (ok, "no version 1 of workflow 'bill'" in message) == (False, True)
    chat = {"kind": "chat", "url": "https://127.0.0.1:9/v1", "model": "m", "key": "openai"}
    refused = await ask("POST", TEST, {"target": chat})
    assert "WAKEFUL_CHAT_KEY_OPENAI" in refused.body["detail"]
    denied = await ask("POST", TEST, {"target": {"kind": "command", "argv": ["ls"]}})
    assert "WAKEFUL_COMMANDS" in denied.body["detail"]
    assert (await ask("GET", "/runs")).body["runs"] == []


@on_one_store
async def test_an_agent_tests_only_what_its_policy_allows(ask: ApiClient, receiver: Receiver):
    writer = await ask.new("agent", agent="writer")
    where = "/agents/writer/jobs/test-target"
    assert (await writer("POST", TEST, {"target": {"kind": "echo"}})).code == "not-found"
    command = {"target": {"kind": "command", "argv": ["ls"]}}
    assert (await writer("POST", where, command)).code == "permission-denied"
    hidden = {
        "kind": "webhook",
        "url": f"{receiver.url}?token=not-for-agents",
        "headers": {"x-key": "not-for-agents"},
    }
    await ask("PUT", "/agents/writer", {"target": hidden})
    body = (await writer("POST", where, {"payload": 1})).body
    assert body["ok"], body
    assert receiver.headers["x-key"] == "not-for-agents"
    assert body["request"]["headers"]["x-key"] == "***"
    assert "not-for-agents" not in json.dumps(body)
    assert "secret" not in body  # signed with the secret of the agent
    await ask("PUT", "/agents/writer", {"approval": "required"})
    assert (await writer("POST", where, {"payload": 1})).code == "permission-denied"


@on_one_store
async def test_tests_are_limited_per_key(ask: ApiClient):
    target = {"target": {"kind": "echo"}}
    while True:  # in one minute of the clock
        minute = time.time() // 60
        replies = [await ask("POST", TEST, target) for _ in range(PER_MINUTE + 1)]
        if time.time() // 60 == minute:
            break
    assert [reply.status for reply in replies[:PER_MINUTE]] == [200] * PER_MINUTE
    assert replies[-1].code == "resource-exhausted"
    assert int(replies[-1].headers["retry-after"]) > 0
    member = await ask.new("admin")
    assert (await member("POST", TEST, target)).status == 200


@on_one_store
async def test_a_draft_is_written_as_texts(ask: ApiClient):
    reply = await ask("POST", SNIPPETS, {"schedule": "0 9 * * *", "message": "it's <b>"})
    assert reply.body.keys() == {"yaml", "curl", "cli", "python"}
    assert "--message='it'\"'\"'s <b>'" in reply.body["cli"]
    assert ask.url in reply.body["curl"]


@on_one_store
async def test_a_large_draft_is_written_off_the_event_loop(ask: ApiClient, monkeypatch: pytest.MonkeyPatch):
    threads: list[threading.Thread] = []

    def noted(*given: Any) -> Snippets:
        threads.append(threading.current_thread())
        return snippets(*given)

    monkeypatch.setattr(job_snippets, "snippets", noted)
    for items in (10, 5_000):
        reply = await ask("POST", SNIPPETS, {"name": "a", "schedule": SELDOM, "payload": [1] * items})
        assert reply.body["yaml"].count("- 1\n") == items
    assert [thread is threading.main_thread() for thread in threads] == [True, False]
