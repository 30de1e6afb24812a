"""Messages to agents over HTTP, the client and the command line."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import NewApp, on_one_store
from tests.support.api_client import ApiClient, served
from tests.support.command_line import Machine, serving
from tests.support.waiting import PATIENCE, eventually
from wakeful import AsyncClient, Client, Launch
from wakeful.run.outcome import Succeeded
from wakeful.service.auth.access import LOCAL
from wakeful.store.rows import RunView

SAY = "/agents/default/messages"


async def test_a_turn_of_an_agent_without_a_target_waits_to_be_claimed(ask: ApiClient):
    said = (await ask("POST", SAY, {"message": "hello"})).body
    assert (said["session"], said["state"], said["runId"], said["waiting"]) == ("main", "waiting", None, 1)
    claim = {"worker": "laptop", "waitMs": 60_000, "lanes": ["main"]}
    (run,) = (await ask("POST", "/runs/claim", claim)).body["runs"]
    assert run["payload"] == {"session": "main", "message": "hello", "messages": [said["id"]]}
    assert (run["job"], run["trigger"]) == ("woken-by-hand", "user")
    await ask("POST", "/agents/default/messages", {"message": "are you there?"})
    (session,) = (await ask("GET", "/agents/default/sessions")).body["sessions"]
    assert (session["messages"], session["turns"]) == (1, [run["id"]])
    usage = {"contextTokens": 1, "contextWindow": 2}
    done = {"status": "succeeded", "attempt": 1, "output": "hi", "usage": usage}
    assert (await ask("POST", f"/runs/{run['id']}/complete", done)).status == 200
    (run,) = (await ask("POST", "/runs/claim", claim)).body["runs"]
    assert run["payload"]["message"] == "are you there?"
    (session,) = (await ask("GET", "/agents/default/sessions")).body["sessions"]
    assert session["context"] == 0.5


async def test_the_heartbeat_of_a_stopped_turn_is_refused(ask: ApiClient):
    await ask("PUT", "/agents/default", {"queue": {"debounceMs": 0}})
    begun = (await ask("POST", SAY, {"message": "write a novel"})).body["runId"]
    await ask("POST", "/runs/claim", {"worker": "laptop"})
    assert (await ask("POST", f"/runs/{begun}/heartbeat", {"attempt": 1})).status == 200
    assert (await ask("POST", SAY, {"message": "/stop"})).body["stopped"] == [begun]
    reply = await ask("POST", f"/runs/{begun}/heartbeat", {"attempt": 1})
    assert (reply.status, reply.code) == (409, "failed-precondition")


async def test_a_waiting_turn_uses_the_changed_target_of_its_agent(new_app: NewApp):
    app = new_app()
    received: list[Any] = []

    @app.function("think")
    async def think(run: Launch) -> None:
        received.append((run.job, run.payload))

    async with app, served(app) as ask:
        await ask("PUT", "/agents/default", {"queue": {"debounceMs": 4_000}})
        await ask("POST", SAY, {"message": "hello"})
        target = {"kind": "function", "name": "think"}
        await ask("PUT", "/agents/default", {"target": target, "queue": {"debounceMs": 4_000}})
        await ask("POST", SAY, {"message": "and welcome"})
        await eventually(lambda: received)
    ((job, payload),) = received
    assert (job, payload["message"]) == ("woken-by-hand", "hello\nand welcome")


async def test_an_agent_key_can_send_messages_only_to_its_own_agent(ask: ApiClient):
    await ask("PUT", "/agents/ada", {"queue": {"debounceMs": 0}})
    ada = await ask.new("agent", agent="ada")
    said = (await ada("POST", "/agents/ada/messages", {"message": "think of lunch"})).body
    run = (await ada("GET", f"/runs/{said['runId']}")).body
    assert (run["trigger"], run["agentId"]) == ("agent", "ada")
    assert (await ada("POST", SAY, {"message": "hello"})).code == "not-found"
    assert (await ada("GET", "/agents/default/sessions")).code == "not-found"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({}, "message: it is missing"),
        ({"message": "  \n"}, "message: it is missing"),
        ({"message": 5}, "message: it is missing"),
        ({"message": "hi", "session": "a b"}, "is not a valid name of a session"),
        ({"message": "hi", "session": ""}, "is not a valid name of a session"),
        ({"message": "hi", "mode": "interrupt"}, "a message has no mode; it has message, session"),
        ({"message": "x" * 65_600}, "message: it has"),
        ({"message": "a\x00b"}, "message: "),
    ],
)
@on_one_store
async def test_an_invalid_message_is_refused_with_a_reason(ask: ApiClient, body: Any, sentence: str):
    reply = await ask("POST", SAY, body)
    assert (reply.status, reply.code) == (422, "invalid-argument")
    assert sentence in reply.body["detail"]
    assert (await ask("GET", "/agents/default/sessions")).body["sessions"] == []


@on_one_store
async def test_messages_to_unknown_inactive_or_over_budget_agents_are_refused(ask: ApiClient):
    assert (await ask("POST", "/agents/nobody/messages", {"message": "hi"})).code == "not-found"
    await ask("PUT", "/agents/idle", {"active": False})
    reply = await ask("POST", "/agents/idle/messages", {"message": "hi"})
    assert (reply.status, reply.code) == (409, "failed-precondition")
    assert "not active" in reply.body["detail"]
    assert (await ask("POST", "/agents/idle/messages", {"message": "/stopall"})).status == 202
    await ask("PUT", "/agents/costly", {"budget": {"tokensPerDay": 5}, "queue": {"debounceMs": 0}})
    run = (await ask("POST", "/agents/costly/messages", {"message": "hi"})).body["runId"]
    await ask("POST", "/runs/claim", {"worker": "w", "agents": ["costly"]})
    done = {"status": "succeeded", "attempt": 1, "usage": {"tokens": 50}}
    assert (await ask("POST", f"/runs/{run}/complete", done)).status == 200
    reply = await ask("POST", "/agents/costly/messages", {"message": "more"})
    assert (reply.status, reply.code) == (429, "resource-exhausted")


async def test_a_message_with_an_idempotency_key_is_accepted_once(ask: ApiClient):
    headers = {"Idempotency-Key": "telegram-update-17"}
    replies = [await ask("POST", SAY, {"message": "hi"}, headers=headers) for _ in range(3)]
    assert len({reply.body["id"] for reply in replies}) == 1
    (session,) = (await ask("GET", "/agents/default/sessions")).body["sessions"]
    assert session["messages"] == 1


async def test_the_audit_records_a_message_without_its_text(ask: ApiClient):
    await ask("POST", SAY, {"message": "a secret of mine", "session": "diary"})
    (entry, *_) = (await ask("GET", "/audit")).body["entries"]
    assert (entry["action"], entry["subject"]) == ("agent.message", "default")
    assert entry["details"] == {"session": "diary", "order": None}


async def test_sessions_are_paginated(ask: ApiClient):
    for name in ("c", "a", "b"):
        await ask("POST", SAY, {"message": "hi", "session": name})
    first = (await ask("GET", "/agents/default/sessions", limit=2)).body
    rest = (await ask("GET", "/agents/default/sessions", limit=2, cursor=first["cursor"])).body
    assert [each["name"] for each in first["sessions"] + rest["sessions"]] == ["a", "b", "c"]
    assert rest["cursor"] is None


async def test_the_client_sends_messages_and_lists_sessions(ask: ApiClient):
    async with AsyncClient(ask.url, ask.key) as client:
        await client.agents.put("default", {"queue": {"debounce_ms": 0, "cap": 2}})
        receipt = await client.agents.say("default", "hello", session="telegram:1")
        assert (receipt.state, receipt.session) == ("started", "telegram:1")
        (session,) = await client.agents.sessions("default")
        assert session.turns == (receipt.run_id,)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Machine]:
    with serving(tmp_path) as machine:
        yield machine


@contextmanager
def executing(machine: Machine) -> Iterator[None]:
    """Run an executor that repeats each message."""
    done = threading.Event()
    key = next((machine.home / "config/wakeful/keys").iterdir()).read_text().strip()

    def work() -> None:
        with Client(machine.url or "", key) as client:
            while not done.is_set():
                for run in client.runs.claim("parrot", wait_ms=200):
                    client.runs.complete(run, "succeeded", output=f"you said: {run.payload}")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_the_command_line_sends_a_message_and_waits_for_the_output(here: Machine):
    here.wakeful("agents", "put", "parrot", "--queue", '{"debounceMs": 100, "cap": 1, "drop": "new"}')
    assert here.wakeful("agents", "show", "parrot", "--json").json["queue"]["cap"] == 1
    with executing(here):
        said = here.wakeful("say", "parrot", "pretty boy", "--wait")
        assert (said.code, "pretty boy" in said.out) == (0, True), said
    # No executor now: the first message starts a turn, the second waits, and the queue is full.
    assert here.wakeful("say", "parrot", "one", "--json").json["state"] == "waiting"

    def under_way() -> bool:
        (session,) = here.wakeful("sessions", "parrot", "--json").json["sessions"]
        return len(session["turns"]) == 1

    while not under_way():
        pass
    assert here.wakeful("say", "parrot", "two").code == 0
    while here.wakeful("say", "parrot", "three", "--json").json["state"] != "dropped":
        pass
    dropped = here.wakeful("say", "parrot", "four")
    assert (dropped.code, "is full" in dropped.out) == (1, True)
    shown = here.wakeful("sessions", "parrot")
    assert "main" in shown.out
    stopped = here.wakeful("say", "parrot", "/stopall")
    assert (stopped.code, "stopped:" in stopped.out) == (0, True), stopped


async def test_a_message_can_be_sent_in_process_without_a_server(new_app: NewApp):
    app = new_app()
    received: list[str | None] = []

    @app.function("think")
    async def think(run: Launch) -> Succeeded:
        received.append(run.message)
        return Succeeded("yes")

    async with app:
        document = {"target": {"kind": "function", "name": "think"}, "queue": {"debounceMs": 0}}
        await app.services.agents.put(LOCAL, "default", "default", document)
        receipt = await app.services.agents.messages.send(LOCAL, "default", "default", {"message": "well?"})
        assert receipt.state == "started"
        await eventually(lambda: received == ["well?"])


def test_the_command_line_sets_the_budget_and_alerts_of_an_agent(here: Machine):
    made = here.wakeful(
        "agents", "put", "ada", "--budget", '{"tokensPerDay": 5}',
        "--alerts", '{"url": "https://a.example/alerts"}', "--json",
    ).json  # fmt: skip
    assert (made["budget"], made["alerts"]["url"]) == ({"tokensPerDay": 5}, "https://a.example/alerts")
    refused = here.wakeful("agents", "put", "ada", "--alerts", '{"channel": "nowhere"}')
    assert (refused.code, "alerts: channel: there is no 'nowhere'" in refused.err) == (2, True)


async def test_replayed_turns_and_manual_wakes_use_the_main_lane(ask: ApiClient):
    target = {"kind": "function", "name": "failing"}
    await ask("PUT", "/agents/default", {"target": target, "queue": {"debounceMs": 0}})
    turn = (await ask("POST", SAY, {"message": "hello"})).body["runId"]

    async def failed() -> bool:
        return bool((await ask("GET", f"/runs/{turn}")).body["state"] == "failed")

    await eventually(failed)
    replayed = (await ask("POST", f"/runs/{turn}/replay")).body
    woken = (await ask("POST", "/agents/default/runs", {})).body
    assert (replayed["lane"], woken["lane"]) == ("main", "main")


async def test_a_wake_and_a_message_follow_a_target_that_another_replica_has_just_set(new_app: NewApp):
    here, there = new_app(), new_app()
    async with here, there:
        await here.agents.put("late", {"queue": {"debounceMs": 0}})
        await there.services.accounts.context("default", "late")
        await here.agents.put("late", {"queue": {"debounceMs": 0}, "target": {"kind": "echo"}})
        woken = await there.runs.of("late").wake({"message": "look"})
        said = await there.agents.say("late", "hello")
        for run_id in (woken.id, said.run_id):
            assert run_id is not None
            async with asyncio.timeout(PATIENCE):
                assert (await there.runs.wait(run_id)).state == "succeeded"


async def test_what_waits_for_an_agent_without_target_goes_to_its_first_target(new_app: NewApp):
    app = new_app()
    async with app:
        await app.agents.put("late", {"queue": {"debounceMs": 0}})
        woken = await app.runs.of("late").wake({"message": "look"})
        said = await app.agents.say("late", "hello")
        await app.agents.say("late", "are you there?")  # waits behind it
        await app.agents.put("late", {"queue": {"debounceMs": 1_000}})
        await app.agents.say("late", "a moment", session="other")  # the target is set during its debounce
        await app.agents.put("late", {"queue": {"debounceMs": 0}, "target": {"kind": "echo"}})
        assert said.run_id is not None
        async with asyncio.timeout(PATIENCE):
            for run_id in (woken.id, said.run_id):
                assert (await app.runs.wait(run_id)).state == "succeeded"

        async def all_answered() -> bool:
            runs = await app.runs.of("late").list()
            return [run.state for run in runs] == ["succeeded"] * 4

        await eventually(all_answered)


async def test_a_wake_follows_a_target_that_is_set_while_it_is_written(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    async with new_app() as app:
        await app.agents.put("late", {})
        await app.runs.of("late").wake({"message": "look"})
        add_runs = app.store.add_runs

        async def change_first(*args: Any) -> list[RunView]:
            monkeypatch.setattr(app.store, "add_runs", add_runs)
            await app.agents.put("late", {"target": {"kind": "echo"}})
            return await add_runs(*args)

        monkeypatch.setattr(app.store, "add_runs", change_first)
        woken = await app.runs.of("late").wake({"message": "look"})
        async with asyncio.timeout(PATIENCE):
            assert (await app.runs.wait(woken.id)).state == "succeeded"
