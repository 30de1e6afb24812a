"""Scheduling and cron of an agent gateway: one-time, interval and cron jobs, and the turns that they trigger.

In the order of its documentation: schedules, creating a job, fields, examples, the adaptive throttle and
`/stop`, evolution. Managing jobs, their states and retries, and the table of common issues are in
`test_gateway_jobs.py`, lanes and session queues in `test_gateway_queues.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.integration.conftest import QUICK, SELDOM, NewApp
from tests.support.api_client import ApiClient, served
from tests.support.chat_endpoint import ChatStandIn, chat_endpoint
from tests.support.chat_jobs import MODEL, settings
from tests.support.evolving_agent import EvolvingAgent, evolving_agent
from tests.support.gateway import AGENT, HEALTH, STANDUP, create, ended, jobs, now_ms
from tests.support.movable_clock import store_with
from tests.support.receiver import Receiver, serving
from tests.support.rpc_client import Caller, calling
from tests.support.run_months import HOUR, MINUTE, SECOND, timing_out
from tests.support.waiting import eventually
from wakeful import Chat, Wakeful
from wakeful.service.admin.evolution_jobs import EvolutionJobs, EvolutionStarter
from wakeful.settings import Settings

# --- the three kinds of schedules ------------------------------------------------------------------------


async def test_an_at_job_runs_once_at_its_timestamp_and_is_deleted(gateway: Caller, receiver: Receiver):
    at_ms = now_ms() + 5_000
    job = await create(
        gateway, name="reminder", schedule={"kind": "at", "atMs": at_ms}, message="It is time."
    )
    assert job["nextRunAtMs"] == at_ms
    assert job["deleteAfterRun"] is True, "set by itself"
    run = await ended(gateway, job)
    assert (run["state"], run["scheduledAtMs"]) == ("succeeded", at_ms)
    assert json.loads(receiver.bodies[0]) == {"job": "reminder", "payload": {"message": "It is time."}}
    assert await jobs(gateway) == {}
    assert len(receiver.bodies) == 1


@pytest.mark.parametrize("every_ms", [60_000, 300_000, 3_600_000, 86_400_000])
async def test_an_every_job_repeats_at_its_interval(gateway: Caller, every_ms: int):
    job = await create(gateway, name="tick", schedule={"kind": "every", "everyMs": every_ms}, message="x")
    assert job["schedule"]["everyMs"] == every_ms
    first, *_ = ticks = [tick["atMs"] for tick in job["nextTicks"]]
    created = datetime.fromisoformat(job["createdAt"]).timestamp() * 1000
    assert first - created == pytest.approx(every_ms, abs=2)
    assert {later - earlier for earlier, later in pairwise(ticks)} == {every_ms}


@pytest.mark.parametrize(
    ("expr", "meaning"),
    [
        ("0 9 * * 1-5", "At 09:00, Monday through Friday (Asia/Ho_Chi_Minh)"),
        ("30 8 * * *", "At 08:30, every day (Asia/Ho_Chi_Minh)"),
        ("0 */4 * * *", "Every 4 hours, on the hour (Asia/Ho_Chi_Minh)"),
        ("0 0 1 * *", "At 00:00, on the 1st (Asia/Ho_Chi_Minh)"),
        ("*/15 * * * *", "Every 15 minutes (Asia/Ho_Chi_Minh)"),
    ],
)
async def test_a_cron_job_has_an_expression_in_a_time_zone(gateway: Caller, expr: str, meaning: str):
    schedule = {"kind": "cron", "expr": expr, "tz": "Asia/Ho_Chi_Minh"}
    job = await create(gateway, name="tick", schedule=schedule, message="x")
    assert (job["schedule"], job["explain"]) == (schedule, meaning)
    assert all(tick["at"].endswith("+07:00") for tick in job["nextTicks"])


async def test_jobs_survive_a_restart(new_app: NewApp):
    async with new_app() as app, served(app) as operator, calling(operator) as gateway:
        before = await create(gateway, **HEALTH)
        key = operator.key
    async with new_app() as app, served(app) as operator, calling(operator.with_key(key)) as gateway:
        after = (await jobs(gateway))["check-server-health"]
    assert after.items() <= before.items()


# --- creating a job, and its fields ----------------------------------------------------------------------


async def test_the_documented_example_of_creating_a_job(gateway: Caller):
    reply = await gateway.say({"method": "cron.create", "params": STANDUP})
    job = reply["result"]["job"]
    shown = {name: job[name] for name in STANDUP}
    assert shown == STANDUP
    at = datetime.fromisoformat(job["nextAt"]).astimezone(ZoneInfo("Asia/Ho_Chi_Minh"))
    assert (at.hour, at.minute, at.weekday() < 5) == (9, 0, True)


async def test_an_agent_creates_a_job_of_its_own(operator: ApiClient, gateway: Caller):
    agent = await operator.new("agent", agent=AGENT)
    async with calling(agent) as own:
        job = await create(own, **HEALTH)
        assert job["agentId"] == AGENT, "its own, without saying so"
        assert list(await jobs(own)) == ["check-server-health"]
    assert (await jobs(gateway))["check-server-health"]["agentId"] == AGENT


async def test_omitted_fields_have_defaults(gateway: Caller):
    job = await create(gateway, name="plain", schedule={"kind": "cron", "expr": SELDOM}, message="x")
    assert (job["agentId"], job["enabled"], job["stateless"], job["wakeHeartbeat"]) == (
        "default", True, False, False
    )  # fmt: skip
    assert (job["deleteAfterRun"], job["tz"]) == (False, "UTC")


@pytest.mark.parametrize(
    "schedule",
    [
        {"kind": "at", "at": "2050-07-01T09:00", "tz": "America/New_York"},
        {"kind": "every", "everyMs": 3_600_000, "tz": "America/New_York"},
        {"kind": "cron", "expr": "0 9 * * *", "tz": "America/New_York"},
    ],
)
async def test_a_time_zone_applies_to_every_kind_of_schedule(gateway: Caller, schedule: dict[str, Any]):
    job = await create(gateway, name="zoned", schedule=schedule, message="x")
    offset = datetime.fromisoformat(job["nextTicks"][0]["at"]).utcoffset()
    at = datetime.fromisoformat(job["nextAt"]).astimezone(ZoneInfo("America/New_York"))
    assert offset == at.utcoffset()
    if schedule["kind"] != "every":
        assert at.hour == 9


async def test_a_job_can_be_created_paused(gateway: Caller):
    job = await create(gateway, **HEALTH, enabled=False)
    assert (job["enabled"], job["nextRunAtMs"]) == (False, None)


async def test_any_job_can_be_deleted_after_its_run(gateway: Caller):
    job = await create(
        gateway, name="once", schedule={"kind": "every", "everyMs": 1_000}, deleteAfterRun=True
    )
    assert (await ended(gateway, job))["state"] == "succeeded"
    assert await jobs(gateway) == {}


async def test_a_job_can_wake_the_heartbeat_after_its_run(
    operator: ApiClient, gateway: Caller, receiver: Receiver
):
    agent = {"target": {"kind": "webhook", "url": receiver.url}, "heartbeat": True}
    assert (await operator("PUT", "/agents/default", agent)).status == 200
    job = await create(gateway, **HEALTH, wakeHeartbeat=True)
    await gateway("cron.run", jobId=job["id"], mode="force")
    beat = await ended(gateway, (await jobs(gateway))["heartbeat"])
    run = await ended(gateway, job)
    assert (beat["trigger"], beat["triggeredBy"], beat["state"]) == ("heartbeat", run["id"], "succeeded")
    assert [json.loads(body)["job"] for body in receiver.bodies] == ["check-server-health", "heartbeat"]


# --- examples --------------------------------------------------------------------------------------------

EXAMPLES: list[dict[str, Any]] = [
    {
        "name": "morning-briefing",
        "schedule": {"kind": "cron", "expr": "0 7 * * *", "tz": "Asia/Ho_Chi_Minh"},
        "message": "Give me a brief summary of today's tech news headlines.",
        "deliver": True,
        "channel": "telegram",
        "to": "123456789",
    },
    {
        "name": "api-health-check",
        "schedule": {"kind": "every", "everyMs": 300_000},
        "message": "Check https://api.example.com/health and alert me on Telegram if it returns a non-200 "
        "status.",
        "deliver": False,
    },
    {
        "name": "meeting-reminder",
        "schedule": {"kind": "at", "atMs": 2_541_564_200_000},
        "message": "Remind me that the quarterly review meeting starts in 15 minutes.",
        "deliver": True,
        "channel": "telegram",
        "to": "123456789",
    },
]


@pytest.mark.parametrize("example", EXAMPLES, ids=[example["name"] for example in EXAMPLES])
async def test_the_documented_examples_are_accepted_and_wake_the_agent(
    gateway: Caller, receiver: Receiver, example: dict[str, Any]
):
    job = await create(gateway, **example)
    assert {name: job[name] for name in example} == example
    assert job["nextRunAtMs"] > now_ms()
    await gateway("cron.run", jobId=job["id"], mode="force")
    assert (await ended(gateway, job))["state"] == "succeeded"
    told = json.loads(receiver.bodies[0])
    assert told == {"job": example["name"], "payload": {"message": example["message"]}}


@pytest.mark.parametrize("answer", ["Nothing much today.", "NO_REPLY"])
async def test_the_response_of_the_agent_is_delivered_to_the_chat_of_the_job(
    new_app: NewApp, receiver: Receiver, answer: str
):
    briefing, silent, _ = EXAMPLES
    receiver.answers(200, answer)
    async with serving(Receiver()) as chats:
        channels = {"telegram": f"ntfy://127.0.0.1:{chats.port}/{{to}}"}
        async with (
            new_app(settings=Settings(channels=channels)) as app,
            served(app) as operator,
            calling(operator) as gateway,
        ):
            target = {"kind": "webhook", "url": receiver.url}
            made = [await create(gateway, **example, target=target) for example in (briefing, silent)]
            for job in made:
                await gateway("cron.run", jobId=job["id"], mode="force")

            async def known() -> list[str]:
                runs = [(await gateway("cron.runs", jobId=job["id"]))["runs"][0] for job in made]
                known = all(run["state"] == "succeeded" and run["delivery"] != "pending" for run in runs)
                return [run["delivery"] for run in runs] if known else []

            became = "suppressed" if answer == "NO_REPLY" else "delivered"
            assert await eventually(known) == [became, "not_requested"]
        told = [(message["topic"], message["message"]) for message in map(json.loads, chats.bodies)]
    assert told == ([] if answer == "NO_REPLY" else [("123456789", answer)])


# --- turns of a model ------------------------------------------------------------------------------------


@dataclass
class ChatGateway:
    """A gateway whose agent is a model, and the Telegram chats that it delivers to."""

    call: Caller
    operator: ApiClient
    model: ChatStandIn
    chats: Receiver

    async def agent(self, **queue: object) -> None:
        target = Chat(self.model.url, MODEL, key="test").to_json()
        reply = await self.operator("PUT", "/agents/default", {"target": target, "queue": queue})
        assert reply.status == 200, reply.body

    async def say(self, text: str, **fields: object) -> dict[str, Any]:
        reply = await self.operator("POST", "/agents/default/messages", {"message": text, **fields})
        assert reply.status == 202, reply.body
        return dict(reply.body)

    async def turn(self, text: str, **fields: object) -> dict[str, Any]:
        """Send a message and wait for the end of its turn."""
        return await self.over((await self.say(text, **fields))["runId"])

    async def over(self, run_id: str) -> dict[str, Any]:
        async def look() -> dict[str, Any] | None:
            run = (await self.operator("GET", f"/runs/{run_id}")).body
            return run if run["state"] in ("succeeded", "failed", "cancelled") else None

        return dict(await eventually(look) or {})

    async def forced(self, name: str) -> dict[str, Any]:
        """Run a job and wait for its end."""
        job = (await jobs(self.call))[name]
        return await self.over((await self.call("cron.run", jobId=job["id"], mode="force"))["run"]["id"])

    async def session(self, name: str = "main") -> dict[str, Any]:
        reply = await self.operator("GET", f"/agents/default/sessions/{name}")
        assert reply.status == 200, reply.body
        return dict(reply.body)

    async def asked(self, number: int) -> None:
        """Wait until the model has got so many requests."""
        await eventually(lambda: len(self.model.requests) == number)

    def results(self, number: int) -> list[str]:
        """Return what the tool answered, in a request to the model."""
        messages = self.model.requests[number]["messages"]
        return [each["content"] for each in messages if each["role"] == "tool"]


@pytest.fixture
async def chat(new_app: NewApp) -> AsyncIterator[ChatGateway]:
    async with chat_endpoint() as model, serving(Receiver()) as chats:
        given = settings(channels={"telegram": f"ntfy://127.0.0.1:{chats.port}/{{to}}"})
        async with (
            new_app(settings=given, grace=0.1) as app,
            served(app) as operator,
            calling(operator) as call,
        ):
            gateway = ChatGateway(call, operator, model, chats)
            await gateway.agent(debounceMs=0)
            yield gateway


async def test_a_stateless_job_runs_without_history(chat: ChatGateway):
    for name, fields in (
        ("plain", {}),
        ("stateless", {"stateless": True}),
        ("log", {"continuity": "session"}),
    ):
        job = await create(chat.call, name=name, schedule=SELDOM, message=f"Continue the {name}.", **fields)
        assert job["stateless"] is (name == "stateless"), "false by default"
        for answer in ("one", "two", "three"):
            chat.model.say(answer)
            assert (await chat.forced(name))["output"] == answer
    plain, stateless, log = (chat.model.texts(number) for number in (2, 5, 8))
    assert plain[1:] == [("assistant", "two"), ("user", "Continue the plain.")], "its previous answer"
    assert stateless == [("user", "Continue the stateless.")]
    asked = ("user", "Continue the log.")
    assert log == [asked, ("assistant", "one"), asked, ("assistant", "two"), asked]


TELEGRAM: dict[str, Any] = {"session": "telegram:123456789", "channel": "telegram", "to": "123456789"}


async def test_a_job_that_is_created_from_a_channel_delivers_there_by_default(chat: ChatGateway):
    silent = {**EXAMPLES[1], "deliver": False}
    chat.model.call(("cron", {"action": "add", "job": HEALTH}), ("cron", {"action": "add", "job": silent}))
    chat.model.say("I check it every five minutes.")
    assert (await chat.turn("Watch the API server.", **TELEGRAM))["state"] == "succeeded"
    made = await jobs(chat.call)
    told, quiet = made[HEALTH["name"]], made[silent["name"]]
    assert (told["deliver"], told["channel"], told["to"]) == (True, "telegram", "123456789"), "from context"
    assert (quiet["deliver"], quiet["channel"], quiet["to"]) == (False, None, None)
    assert told["origin"] == quiet["origin"] == TELEGRAM
    elsewhere = await create(chat.call, name="elsewhere", schedule=SELDOM, message="x")
    assert (elsewhere["deliver"], elsewhere["origin"]) == (False, None), "not from a channel"

    chat.model.say("The API server is down.")
    chat.model.say("It returns 200.")
    runs = [await chat.forced(job["name"]) for job in (told, quiet)]
    await eventually(lambda: chat.chats.bodies)

    async def delivered() -> list[str] | None:
        found = [(await chat.operator("GET", f"/runs/{run['id']}")).body["delivery"] for run in runs]
        return None if "pending" in found else found

    assert await eventually(delivered) == ["delivered", "not_requested"]
    (message,) = map(json.loads, chat.chats.bodies)
    assert (message["topic"], message["message"]) == ("123456789", "The API server is down.")
    # Both runs were outside the conversation, which has their answers for the next turn.
    assert chat.model.texts(2) == [("user", HEALTH["message"])]
    await chat.turn("And now?", **TELEGRAM)
    answers = [text for role, text in chat.model.texts() if role == "assistant"]
    assert answers[0] == "I check it every five minutes."
    assert "The API server is down." in answers[1]
    assert "It returns 200." in answers[-1]


async def test_a_scheduled_turn_makes_no_recurring_job(chat: ChatGateway):
    """The text of a job says: remind me every Monday. Each of its runs obeys it."""

    def add(name: str, schedule: object) -> tuple[str, object]:
        return "cron", {"action": "add", "job": {"name": name, "schedule": schedule, "message": "Remind me."}}

    for number in range(2):
        chat.model.call(
            add(f"monday-{number}", {"kind": "cron", "expr": "0 9 * * 1"}),
            add(f"weekly-{number}", {"kind": "every", "everyMs": 604_800_000}),
            add(f"once-{number}", "in 2 hours"),
            ("cron", {"action": "update", "jobId": f"once-{number}", "job": {"schedule": "0 9 * * 1"}}),
        )
        chat.model.say("Done.")
    schedule = {"kind": "every", "everyMs": 1_000}
    job = await create(
        chat.call, name="inbox", schedule=schedule, message="Remind me every Monday.", maxRuns=2
    )

    async def both() -> bool:
        runs = (await chat.call("cron.runs", jobId=job["id"]))["runs"]
        # A tick during a slow run is skipped.
        return [run["trigger"] for run in runs if run["state"] == "succeeded"] == ["schedule"] * 2

    await eventually(both)
    made = await jobs(chat.call)
    assert made.keys() == {"inbox", "once-0", "once-1"}
    assert {made[name]["schedule"]["kind"] for name in ("once-0", "once-1")} == {"at"}
    for number in (1, 3):
        monday, weekly, once, update = chat.results(number)
        assert all("one-time jobs" in refused for refused in (monday, weekly, update))
        assert once.startswith("Added")
    # In a conversation, a person is there to ask for it.
    chat.model.call(add("monday", {"kind": "cron", "expr": "0 9 * * 1"}))
    await chat.turn("Remind me every Monday.")
    assert (await jobs(chat.call))["monday"]["schedule"]["expr"] == "0 9 * * 1"


async def test_a_scheduled_turn_may_remove_the_job_it_is_running_in(chat: ChatGateway):
    chat.model.call(("cron", {"action": "remove", "jobId": "watch"}))
    chat.model.say("The build is green; I stopped watching.")
    schedule = {"kind": "every", "everyMs": 1_000}
    await create(chat.call, name="watch", schedule=schedule, message="Stop when the build is green.")

    async def gone() -> bool:
        return await jobs(chat.call) == {}

    await eventually(gone)
    await chat.asked(2)
    runs = (await chat.operator("GET", "/agents/default/runs")).body["runs"]
    done = await chat.over(runs[-1]["id"])  # others may have been planned before it was removed
    assert (done["state"], done["trigger"]) == ("succeeded", "schedule")
    assert done["output"] == "The build is green; I stopped watching."


# --- sessions of a model ---------------------------------------------------------------------------------


async def test_above_60_percent_of_its_context_window_a_conversation_has_one_turn_at_a_time(
    chat: ChatGateway,
):
    await chat.agent(debounceMs=0, turns=2)
    release = asyncio.Event()
    for _ in range(2):
        chat.model.hang(release)
    first, second = await chat.say("one"), await chat.say("two")
    await chat.asked(2)
    assert len((await chat.session())["turns"]) == 2, "both at once"
    release.set()
    for receipt in (first, second):
        await chat.over(receipt["runId"])
    chat.model.say("Long.", usage={"prompt_tokens": 4_400, "completion_tokens": 480, "total_tokens": 4_880})
    await chat.turn("three")

    release = asyncio.Event()
    chat.model.hang(release)
    running, waiting = await chat.say("four"), await chat.say("five")
    assert (running["state"], waiting["state"]) == ("started", "waiting")
    await chat.asked(4)
    now = await chat.session()
    assert (now["context"], len(now["turns"]), now["messages"]) == (0.61, 1, 1)
    release.set()
    await chat.asked(5)
    assert chat.model.texts()[-3:] == [("user", "four"), ("assistant", "late"), ("user", "five")]


async def test_an_interruption_starts_the_new_message_immediately(chat: ChatGateway):
    chat.model.hang(asyncio.Event())
    novel = await chat.say("Write a novel.")
    await chat.asked(1)
    await chat.agent(debounceMs=60_000, mode="interrupt")
    chat.model.say("A poem.")
    poem = await chat.say("No, a poem.")
    assert (poem["state"], poem["stopped"]) == ("started", [novel["runId"]]), "without the debounce"
    stopped, done = await chat.over(novel["runId"]), await chat.over(poem["runId"])
    assert (stopped["state"], stopped["reason"]) == ("cancelled", "interrupted")
    assert (done["state"], done["output"]) == ("succeeded", "A poem.")


async def test_stop_cancels_the_oldest_turn_of_a_conversation_at_once(chat: ChatGateway):
    await chat.agent(debounceMs=0, turns=2)
    release = asyncio.Event()
    for _ in range(2):
        chat.model.hang(release)
    oldest, other = await chat.say("one"), await chat.say("two")
    await chat.asked(2)
    await chat.agent(debounceMs=60_000, turns=2)
    order = await chat.say("/stop")
    assert (order["state"], order["stopped"]) == ("stopped", [oldest["runId"]])
    assert (await chat.over(oldest["runId"]))["state"] == "cancelled"
    release.set()
    assert (await chat.over(other["runId"]))["state"] == "succeeded"
    history = [(entry["role"], entry["content"]) for entry in (await chat.session())["history"]]
    assert sorted(history) == [("assistant", "late"), ("user", "two")], "no answer, no entry"


# --- evolution -------------------------------------------------------------------------------------------


async def test_evolution_is_enabled_for_an_agent(operator: ApiClient, gateway: Caller):
    for agent, enabled in ((AGENT, True), ("default", False)):
        reply = await operator("PUT", f"/agents/{agent}", {"evolution_metrics": enabled})
        assert reply.status == 200, reply.body
    before, found = now_ms(), await jobs(gateway)
    assert {name: job["agentId"] for name, job in found.items()} == {
        "wakeful-analysis": AGENT, "wakeful-evaluation": AGENT
    }  # fmt: skip
    analysis, evaluation = found["wakeful-analysis"], found["wakeful-evaluation"]
    assert (analysis["schedule"]["everyMs"], evaluation["schedule"]["everyMs"]) == (
        24 * HOUR, 7 * 24 * HOUR
    )  # fmt: skip
    assert analysis["nextRunAtMs"] <= before + MINUTE, "the first one a minute later"
    assert analysis["timeoutMs"] == evaluation["timeoutMs"] == 5 * MINUTE


async def test_suggestions_are_analyzed_daily_evaluated_weekly_and_rolled_back(database: str):
    async with evolving_agent(database) as ada:
        await ada.add(schedule=SELDOM, timeout="30s")
        await ada.spend(timing_out("work", HOUR, 30 * SECOND, lambda _: 50 * SECOND))
        clock = ada.clock
    app = Wakeful(store=store_with(database, clock), secret_key="a key for tests", config=QUICK)
    async with app, served(app) as operator:
        ada = EvolvingAgent(app, clock)

        async def ran(task: str, times: int) -> None:
            async def look() -> bool:
                reply = await operator("GET", f"/agents/ada/jobs/wakeful-{task}/runs", state="succeeded")
                return len(reply.body["runs"]) == times

            await eventually(look)

        async def suggestion() -> dict[str, Any]:
            (found,) = (await operator("GET", "/suggestions", agent="ada")).body["suggestions"]
            return dict(found)

        # A minute after the start
        starter = EvolutionStarter(app.store, EvolutionJobs(app.store))
        await starter.step()
        clock.advance(timedelta(minutes=1))
        await starter.step()
        await ran("analysis", 1)
        found = await suggestion()
        assert found["summary"].endswith(" runs ended at the timeout of 30 seconds; allow 1 minute.")
        assert (found["status"], found["change"]) == ("open", {"timeoutMs": MINUTE})
        await ran("evaluation", 1)  # missed before the start; there was nothing to evaluate
        assert (await ada.job()).version == 1, "a person decides"
        assert (await operator("POST", f"/suggestions/{found['id']}/apply")).status == 200
        assert json.loads((await ada.job()).policy)["timeoutMs"] == MINUTE

        # Every 24 hours
        clock.advance(timedelta(days=1))
        await ran("analysis", 2)

        # Every 7 days. The runs still end at the timeout, which takes twice as long now.
        await ada.spend(timing_out("work", HOUR, MINUTE, lambda _: HOUR), days=7)
        await ran("evaluation", 2)
        judged = await suggestion()
        assert (judged["status"], judged["evaluation"]["verdict"]) == ("rolled_back", "worse")
        assert json.loads((await ada.job()).policy)["timeoutMs"] == 30 * SECOND
