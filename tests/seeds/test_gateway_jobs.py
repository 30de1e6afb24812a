"""The jobs of an agent gateway: managing them, their states and retries, and common issues.

In the order of its documentation of scheduling, between the fields of a job and the queues.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.api_client import ApiClient, served
from tests.support.command_line import Completed, Machine
from tests.support.gateway import AGENT, HEALTH, STANDUP, create, ended, jobs, now_ms
from tests.support.receiver import Receiver
from tests.support.rpc_client import Caller, Refused, calling
from tests.support.waiting import PATIENCE, eventually

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
