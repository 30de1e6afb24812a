"""Scheduling and cron of an agent gateway: one-time, interval and cron jobs.

In the order of its documentation: schedules, creating a job, fields, managing jobs over a WebSocket and from
the command line, job states, retries, examples, and the table of common issues.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.api_client import ApiClient, served
from tests.support.command_line import Completed, Machine
from tests.support.receiver import Receiver, serving
from tests.support.rpc_client import Caller, Refused, calling
from tests.support.waiting import PATIENCE, eventually
from wakeful.settings import Settings

AGENT = "3f2a1b4c-0000-0000-0000-000000000000"
STANDUP: dict[str, Any] = {
    "name": "daily-standup-summary",
    "schedule": {"kind": "cron", "expr": "0 9 * * 1-5", "tz": "Asia/Ho_Chi_Minh"},
    "message": "Summarize yesterday's GitHub activity and post a standup update.",
    "deliver": True,
    "channel": "telegram",
    "to": "123456789",
    "agentId": AGENT,
}
HEALTH: dict[str, Any] = {
    "name": "check-server-health",
    "schedule": {"kind": "every", "everyMs": 300_000},
    "message": "Check if the API server is responding and alert me if it's down.",
}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
async def gateway(operator: ApiClient, receiver: Receiver) -> AsyncIterator[Caller]:
    """Connect to the WebSocket of a gateway whose agents are woken by webhook."""
    target = {"kind": "webhook", "url": receiver.url}
    for agent in ("default", AGENT):
        reply = await operator("PUT", f"/agents/{agent}", {"target": target})
        assert reply.status in (200, 201), reply.body
    async with calling(operator) as call:
        yield call


async def create(gateway: Caller, **fields: object) -> dict[str, Any]:
    return dict((await gateway("cron.create", **fields))["job"])


async def jobs(gateway: Caller) -> dict[str, dict[str, Any]]:
    found = (await gateway("cron.list", includeDisabled=True))["jobs"]
    return {job["name"]: job for job in found}


async def ended(gateway: Caller, job: dict[str, Any]) -> dict[str, Any]:
    """Wait for the first run of a job to finish and return it."""

    async def look() -> list[dict[str, Any]]:
        runs = (await gateway("cron.runs", jobId=job["id"]))["runs"]
        return [run for run in runs if run["state"] in ("succeeded", "failed")]

    return dict((await eventually(look))[-1])


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


# --- managing jobs ---------------------------------------------------------------------------------------


async def test_the_documented_examples_of_managing_jobs(gateway: Caller):
    job = await create(gateway, **STANDUP)

    async def ask(method: str, params: dict[str, Any]) -> Any:
        return (await gateway.say({"method": method, "params": {"jobId": job["id"], **params}}))["result"]

    paused = (await ask("cron.toggle", {"enabled": False}))["job"]
    assert (paused["enabled"], paused["nextRunAtMs"]) == (False, None)
    patch = {"schedule": {"kind": "cron", "expr": "0 10 * * *"}}
    updated = (await ask("cron.update", {"patch": patch}))["job"]
    assert updated["schedule"] == {"kind": "cron", "expr": "0 10 * * *", "tz": "Asia/Ho_Chi_Minh"}
    assert (updated["message"], updated["enabled"]) == (STANDUP["message"], False), "all else is as it was"
    run = (await ask("cron.run", {"mode": "force"}))["run"]
    assert (run["trigger"], run["jobId"]) == ("user", job["id"])
    await ended(gateway, job)
    (shown,) = (await ask("cron.runs", {"limit": 20, "offset": 0}))["runs"]
    assert (shown["id"], shown["state"]) == (run["id"], "succeeded")
    assert (await ask("cron.runs", {"limit": 20, "offset": 1}))["runs"] == []


async def test_the_documented_methods(gateway: Caller):
    active = await create(gateway, **HEALTH)
    paused = await create(gateway, **STANDUP, enabled=False)
    assert [job["id"] for job in (await gateway("cron.list"))["jobs"]] == [active["id"]]
    assert {job["id"] for job in (await gateway("cron.list", includeDisabled=True))["jobs"]} == {
        active["id"], paused["id"]
    }  # fmt: skip
    status = await gateway("cron.status")
    assert (status["running"], status["activeJobs"]) == (True, 1)
    assert (await gateway("cron.run", jobId=active["id"], mode="due"))["ran"] is False, "it is not due"
    await gateway("cron.delete", jobId=active["id"])
    assert list(await jobs(gateway)) == ["daily-standup-summary"]


async def test_the_command_line_lists_toggles_and_deletes(
    operator: ApiClient, gateway: Caller, tmp_path: Path
):
    await create(gateway, **HEALTH)
    await create(gateway, **{**STANDUP, "agentId": "default"}, enabled=False)
    machine = Machine(tmp_path, operator.url)

    async def wakeful(*arguments: str) -> Completed:
        said = await asyncio.to_thread(machine.wakeful, *arguments, WAKEFUL_KEY=operator.key or "")
        assert said.code == 0, said
        return said

    assert "check-server-health" in (listed := await wakeful("list")).out
    assert "daily-standup-summary" not in listed.out, "only those that are active"
    assert "daily-standup-summary" in (await wakeful("list", "--all")).out
    (shown,) = (await wakeful("list", "--json")).json["jobs"]
    assert shown["name"] == "check-server-health"
    await wakeful("toggle", "check-server-health", "false")
    assert (await jobs(gateway))["check-server-health"]["enabled"] is False
    await wakeful("toggle", "check-server-health", "true")
    assert (await jobs(gateway))["check-server-health"]["enabled"] is True
    await wakeful("delete", "check-server-health")
    assert list(await jobs(gateway)) == ["daily-standup-summary"]


# --- job states ------------------------------------------------------------------------------------------


async def test_an_active_job_has_a_next_run_and_a_paused_one_has_none(gateway: Caller):
    job = await create(gateway, **HEALTH)
    assert job["nextRunAtMs"] is not None
    paused = (await gateway("cron.toggle", jobId=job["id"], enabled=False))["job"]
    assert paused["nextRunAtMs"] is None
    resumed = (await gateway("cron.toggle", jobId=job["id"], enabled=True))["job"]
    assert resumed["nextRunAtMs"] > now_ms()


async def test_a_job_with_a_failed_run_stays_enabled_and_runs_at_its_next_tick(
    gateway: Caller, receiver: Receiver
):
    receiver.answers(500)
    job = await create(gateway, **{**HEALTH, "schedule": {"kind": "every", "everyMs": 1_000}}, maxAttempts=1)
    assert (job["lastStatus"], job["lastError"]) == (None, None)
    assert (await ended(gateway, job))["state"] == "failed"
    failed = (await jobs(gateway))["check-server-health"]
    assert (failed["enabled"], failed["lastStatus"]) == (True, "error")
    assert "500" in failed["lastError"]
    receiver.answers(200)

    async def well() -> bool:
        return bool((await jobs(gateway))["check-server-health"]["lastStatus"] == "ok")

    await eventually(well)


async def test_a_failed_at_job_is_disabled_and_has_a_dead_letter(
    gateway: Caller, operator: ApiClient, receiver: Receiver
):
    receiver.answers(500)
    schedule = {"kind": "at", "atMs": now_ms() + 5_000}
    job = await create(gateway, name="reminder", schedule=schedule, message="x", maxAttempts=1)
    run = await ended(gateway, job)
    assert run["state"] == "failed"
    left = (await jobs(gateway))["reminder"]
    assert (left["enabled"], left["nextRunAtMs"], left["lastStatus"]) == (False, None, "error")
    (letter,) = (await operator("GET", "/dead-letters")).body["deadLetters"]
    assert letter["id"] == run["id"]


async def test_a_tick_is_skipped_while_the_job_is_running(gateway: Caller, receiver: Receiver):
    done = asyncio.Event()

    async def slow(request: Any) -> Any:
        await done.wait()
        return await Receiver.ok(request)

    receiver.answer = slow
    job = await create(gateway, **{**HEALTH, "schedule": {"kind": "every", "everyMs": 1_000}})

    async def skipped() -> bool:
        runs = (await gateway("cron.runs", jobId=job["id"]))["runs"]
        return any(run["state"] == "skipped" for run in runs)

    await eventually(skipped)
    assert len(receiver.requests) == 1, "the next tick came while it ran, and says so"
    done.set()
    assert (await ended(gateway, job))["state"] == "succeeded"


# --- retries ---------------------------------------------------------------------------------------------


async def test_a_failed_run_is_retried_with_exponential_backoff_and_jitter(
    gateway: Caller, operator: ApiClient, receiver: Receiver
):
    receiver.answers(500)
    backoff = {"baseMs": 100, "maxMs": 300}
    job = await create(gateway, name="flaky", schedule=SELDOM, message="x", maxAttempts=4, backoff=backoff)
    await gateway("cron.run", jobId=job["id"], mode="force")
    run = await ended(gateway, job)
    assert (run["state"], run["attempt"]) == ("failed", 4), "the first try and three retries"
    attempts = (await operator("GET", f"/runs/{run['id']}")).body["attempts"]
    delays = (0.1, 0.2, 0.3)  # min(base × 2^attempt, max), ± 25 %
    for (earlier, later), delay in zip(pairwise(attempts), delays, strict=True):
        ended_at, started_at = (
            datetime.fromisoformat(at).timestamp() for at in (earlier["finishedAt"], later["startedAt"])
        )
        assert 0.75 * delay - 0.002 <= started_at - ended_at < PATIENCE
    assert len(receiver.requests) == 4


async def test_the_defaults_of_retries(gateway: Caller):
    job = await create(gateway, **HEALTH)
    assert job["backoff"] == {"baseMs": 2_000, "maxMs": 30_000}
    assert job["maxAttempts"] == 5


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


# --- common issues ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        pytest.param(
            {"schedule": {"kind": "at", "atMs": 1_741_564_200_000}},
            "atMs 1741564200000 is in the past; it is now ",
            id="a job that would never run",
        ),
        pytest.param(
            {"schedule": {"kind": "cron", "expr": "0 9 * *"}},
            "'0 9 * *' has 4 fields; an expression has 5 (minute hour day-of-month month day-of-week)",
            id="invalid cron expression",
        ),
        pytest.param(
            {"schedule": {"kind": "cron", "expr": "0 9 * * *", "tz": "Hanoi"}},
            "unknown time zone 'Hanoi'; give an IANA name such as 'Europe/Berlin' or 'UTC'",
            id="invalid timezone",
        ),
        pytest.param(
            {"message": ""},
            "message: it is empty; give it some text",
            id="the agent gets no message",
        ),
        pytest.param(
            {"name": "Daily Report"},
            "'Daily Report' is not a slug; use lowercase letters, digits and inner hyphens",
            id="name validation error",
        ),
    ],
)
async def test_a_common_mistake_is_rejected_with_a_helpful_error(
    gateway: Caller, fields: dict[str, Any], sentence: str
):
    with pytest.raises(Refused) as refused:
        await create(gateway, **{**HEALTH, **fields})
    assert refused.value.code == "invalid-argument"
    assert sentence in refused.value.message
    assert await jobs(gateway) == {}


async def test_a_name_is_unique_per_agent(gateway: Caller):
    await create(gateway, **HEALTH)
    with pytest.raises(Refused) as refused:
        await create(gateway, **HEALTH)
    assert refused.value.code == "already-exists"
    assert "'check-server-health'" in refused.value.message
    assert (await create(gateway, **HEALTH, agentId=AGENT))["agentId"] == AGENT


async def test_a_manual_run_appears_in_the_run_log(gateway: Caller):
    job = await create(gateway, **HEALTH)
    assert (await gateway("cron.runs", jobId=job["id"]))["runs"] == []
    await gateway("cron.run", jobId=job["id"], mode="force")
    assert len((await gateway("cron.runs", jobId=job["id"]))["runs"]) == 1


async def test_two_schedulers_on_one_database_do_not_run_a_tick_twice(new_app: NewApp, receiver: Receiver):
    async with new_app() as one, new_app(), served(one) as operator, calling(operator) as gateway:
        target = {"kind": "webhook", "url": receiver.url}
        schedule = {"kind": "every", "everyMs": 1_000}
        job = await create(gateway, name="tick", schedule=schedule, target=target, maxRuns=3)

        async def all_over() -> bool:
            runs = (await gateway("cron.runs", jobId=job["id"]))["runs"]
            return [run["state"] for run in runs] == ["succeeded"] * 3

        await eventually(all_over)
        runs = (await gateway("cron.runs", jobId=job["id"]))["runs"]
        assert len({run["scheduledAtMs"] for run in runs}) == 3
        assert len(receiver.requests) == 3
