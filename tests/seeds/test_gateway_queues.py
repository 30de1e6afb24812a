"""Lanes and session queues of an agent gateway: how messages become turns, and how turns end.

The second half of its documentation of scheduling: lane defaults, session queue defaults, queue modes, the
adaptive throttle, `/stop` and `/stopall`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from tests.integration.conftest import NewApp
from tests.support.api_client import ApiClient, served
from tests.support.receiver import Receiver
from tests.support.waiting import eventually
from wakeful import EngineConfig
from wakeful.agents.sessions import SessionQueue
from wakeful.engine.engine import LANES
from wakeful.settings import read_settings

AGENT = "assistant"


class Brain:
    """An agent behind a webhook that holds each turn until the test sets its response."""

    def __init__(self, receiver: Receiver) -> None:
        self.told: list[str] = []
        self._thinking: dict[str, asyncio.Future[str]] = {}
        self._requests: dict[str, web.BaseRequest] = {}
        self._bodies = receiver.bodies
        receiver.answer = self._answer

    @property
    def thinking(self) -> list[str]:
        """The messages of unfinished turns whose connection is open."""
        return [
            message
            for message, request in self._requests.items()
            if not self._thinking[message].done()
            and request.transport is not None
            and not request.transport.is_closing()
        ]

    def answer(self, message: str, text: str = "{}") -> None:
        self._thinking[message].set_result(text)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        message = json.loads(self._bodies[-1])["payload"]["message"]
        self.told.append(message)
        self._thinking[message] = asyncio.get_running_loop().create_future()
        self._requests[message] = request
        return web.Response(text=await self._thinking[message], content_type="application/json")


@pytest.fixture
def brain(receiver: Receiver) -> Brain:
    return Brain(receiver)


@pytest.fixture
async def operator(new_app: NewApp, brain: Brain, receiver: Receiver) -> AsyncIterator[ApiClient]:
    async with new_app(grace=0.1) as app, served(app) as caller:
        yield caller


async def given_agent(operator: ApiClient, receiver: Receiver, **queue: object) -> None:
    document = {"target": {"kind": "webhook", "url": receiver.url}, "queue": queue or None}
    reply = await operator("PUT", f"/agents/{AGENT}", document)
    assert reply.status in (200, 201), reply.body


async def say(operator: ApiClient, message: str, session: str | None = None) -> dict[str, Any]:
    body = {"message": message} if session is None else {"message": message, "session": session}
    reply = await operator("POST", f"/agents/{AGENT}/messages", body)
    assert reply.status == 202, reply.body
    return dict(reply.body)


async def session(operator: ApiClient, name: str = "main") -> dict[str, Any]:
    sessions = (await operator("GET", f"/agents/{AGENT}/sessions")).body["sessions"]
    return next(dict(each) for each in sessions if each["name"] == name)


async def thinks(brain: Brain, *messages: str) -> None:
    await eventually(lambda: sorted(brain.thinking) == sorted(messages))


# --- lanes and defaults ----------------------------------------------------------------------------------


def test_lane_defaults_and_how_they_are_configured():
    assert LANES == {"main": 30, "subagent": 50, "team": 100, "cron": 30}
    settings = read_settings({"WAKEFUL_LANE_MAIN": "5", "WAKEFUL_LANE_CRON": "7"})
    assert (settings.lane_main, settings.lane_cron, settings.lane_team) == (5, 7, 100)


def test_session_queue_defaults():
    assert SessionQueue() == SessionQueue(mode="queue", cap=10, drop="old", debounce_ms=800, turns=1)


async def test_a_message_starts_a_turn_in_the_main_lane(
    operator: ApiClient, brain: Brain, receiver: Receiver
):
    await given_agent(operator, receiver, debounceMs=0)
    receipt = await say(operator, "good morning")
    await thinks(brain, "good morning")
    run = (await operator("GET", f"/runs/{receipt['runId']}")).body
    assert (run["lane"], run["state"], run["trigger"]) == ("main", "running", "user")
    assert run["triggeredBy"].startswith("key:")
    payload = {"session": "main", "message": "good morning", "messages": [receipt["id"]]}
    assert json.loads(receiver.bodies[0])["payload"] == payload
    brain.answer("good morning")


# --- the session queue -----------------------------------------------------------------------------------


async def test_rapid_messages_collapse_into_one_turn(operator: ApiClient, brain: Brain, receiver: Receiver):
    # On a busy machine, five requests may take longer than the default of 800 ms.
    await given_agent(operator, receiver, debounceMs=4_000)
    receipts = [await say(operator, word) for word in ("one", "two", "three", "four", "five")]
    assert {receipt["state"] for receipt in receipts} == {"waiting"}
    assert receipts[-1]["waiting"] == 1
    await thinks(brain, "one\ntwo\nthree\nfour\nfive")
    brain.answer("one\ntwo\nthree\nfour\nfive")


@pytest.mark.parametrize("mode", ["queue", "followup"])
async def test_messages_wait_until_a_slot_is_free_first_in_first_out(
    operator: ApiClient, brain: Brain, receiver: Receiver, mode: str
):
    await given_agent(operator, receiver, mode=mode, debounceMs=0)
    for word in ("one", "two", "three"):
        await say(operator, word)
    await thinks(brain, "one")
    assert (await session(operator))["messages"] == 2
    for word, following in (("one", "two"), ("two", "three")):
        brain.answer(word)
        await thinks(brain, following)
    brain.answer("three")
    assert brain.told == ["one", "two", "three"]


async def test_sessions_run_concurrently(operator: ApiClient, brain: Brain, receiver: Receiver):
    await given_agent(operator, receiver, debounceMs=0)
    for name in ("telegram:1", "telegram:2", "telegram:3"):
        await say(operator, f"from {name}", name)
    await thinks(brain, "from telegram:1", "from telegram:2", "from telegram:3")
    for name in ("telegram:1", "telegram:2", "telegram:3"):
        brain.answer(f"from {name}")


@pytest.mark.parametrize(
    ("drop", "left", "state"), [("old", ["two", "three"], "waiting"), ("new", ["one", "two"], "dropped")]
)
async def test_a_full_queue_drops_the_oldest_or_the_newest_message(
    operator: ApiClient, brain: Brain, receiver: Receiver, drop: str, left: list[str], state: str
):
    await given_agent(operator, receiver, cap=2, drop=drop, debounceMs=0)
    await say(operator, "at work")
    await thinks(brain, "at work")
    await say(operator, "one")
    await say(operator, "two")
    last = await say(operator, "three")
    assert (last["state"], last["dropped"], last["waiting"]) == (state, 1, 2)
    for word, following in (("at work", left[0]), (left[0], left[1])):
        brain.answer(word)
        await thinks(brain, following)
    brain.answer(left[1])


async def test_interrupt_mode_cancels_the_running_turn_and_starts_the_new_message_at_once(
    operator: ApiClient, brain: Brain, receiver: Receiver
):
    await given_agent(operator, receiver, mode="interrupt")
    assert (await say(operator, "write a novel"))["state"] == "waiting", "for the debounce"
    await thinks(brain, "write a novel")
    (novel,) = (await session(operator))["turns"]
    poem = await say(operator, "no, a poem")
    assert (poem["state"], poem["stopped"]) == ("started", [novel]), "without the debounce"
    await thinks(brain, "no, a poem")
    run = (await operator("GET", f"/runs/{novel}")).body
    assert (run["state"], run["reason"]) == ("cancelled", "interrupted")
    brain.answer("no, a poem")


# --- the adaptive throttle -------------------------------------------------------------------------------


async def test_above_60_percent_of_its_context_a_session_runs_one_turn_at_a_time(
    operator: ApiClient, brain: Brain, receiver: Receiver
):
    await given_agent(operator, receiver, turns=2, debounceMs=0)
    await say(operator, "one")
    await say(operator, "two")
    await thinks(brain, "one", "two")
    brain.answer("one", json.dumps({"usage": {"tokens": 9, "contextTokens": 61, "contextWindow": 100}}))
    await thinks(brain, "two")
    brain.answer("two")

    async def over() -> bool:
        return not (await session(operator))["turns"]

    await eventually(over)
    await say(operator, "three")
    await say(operator, "four")
    await thinks(brain, "three")
    assert (await session(operator))["context"] == 0.61
    brain.answer("three")
    await thinks(brain, "four")
    brain.answer("four")


# --- /stop and /stopall ----------------------------------------------------------------------------------


async def test_stop_cancels_only_the_oldest_turn(operator: ApiClient, brain: Brain, receiver: Receiver):
    await given_agent(operator, receiver, turns=2, debounceMs=0)
    oldest, second = await say(operator, "one"), await say(operator, "two")
    await thinks(brain, "one", "two")
    order = await say(operator, "/stop")
    assert (order["state"], order["stopped"], order["id"]) == ("stopped", [oldest["runId"]], None)
    await thinks(brain, "two")
    run = (await operator("GET", f"/runs/{second['runId']}")).body
    assert run["state"] == "running"
    brain.answer("two")


async def test_stopall_cancels_all_turns_and_drains_the_queue(
    operator: ApiClient, brain: Brain, receiver: Receiver
):
    await given_agent(operator, receiver, turns=2, debounceMs=0)
    for word in ("one", "two", "three", "four"):
        await say(operator, word)
    await thinks(brain, "one", "two")
    order = await say(operator, "/stopall")
    assert (len(order["stopped"]), order["dropped"], order["waiting"]) == (2, 2, 0)
    await thinks(brain)
    now = await session(operator)
    assert (now["messages"], now["turns"], now["dueAt"]) == (0, [], None)


async def test_a_stop_command_is_not_debounced_or_merged(
    operator: ApiClient, brain: Brain, receiver: Receiver
):
    await given_agent(operator, receiver, debounceMs=60_000)
    await say(operator, "never mind")
    order = await say(operator, "/stopall")
    assert (order["state"], order["dropped"]) == ("stopped", 1)
    assert (await session(operator))["messages"] == 0


# --- durability and replicas -----------------------------------------------------------------------------


async def test_waiting_messages_survive_a_restart(new_app: NewApp, brain: Brain, receiver: Receiver):
    async with new_app(grace=0.1) as app, served(app) as operator:
        key = operator.key
        await given_agent(operator, receiver, debounceMs=1_000)
        await say(operator, "do not forget")
    async with new_app(grace=0.1) as app, served(app) as operator:
        await thinks(brain, "do not forget")
        brain.answer("do not forget")
        await eventually(lambda: _is_quiet(operator.with_key(key)))


async def _is_quiet(operator: ApiClient) -> bool:
    return not (await session(operator))["turns"]


async def test_one_replica_starts_the_turn_of_a_message_sent_to_any_replica(
    new_app: NewApp, brain: Brain, receiver: Receiver
):
    quick = EngineConfig(tick_ms=100, heartbeat_ms=200)
    async with (
        new_app(grace=0.1, config=quick) as one,
        new_app(grace=0.1, config=quick) as other,
        served(one) as here,
        served(other) as there,
    ):
        await given_agent(here, receiver, debounceMs=100)
        elsewhere = there.with_key(here.key)
        for number in range(6):
            await say((here, elsewhere)[number % 2], f"{number}", f"s{number}")
        await thinks(brain, *(f"{number}" for number in range(6)))
        for number in range(6):
            brain.answer(f"{number}")
        assert sorted(brain.told) == [f"{number}" for number in range(6)]
