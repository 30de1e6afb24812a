"""A session is a single run of an agent, started manually or by a tick of its schedule.

Covers states, triggers, the three properties of the scheduler, schedules and HTTP paths. The executor is
external: here it claims and completes runs over HTTP.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import pytest

from tests.integration.conftest import NewApp
from tests.support.api_client import ApiClient, Reply, served
from tests.support.waiting import eventually
from wakeful.service.auth.access import LOCAL

RUNS = "/agents/reporter/runs"
JOBS = "/agents/reporter/jobs"


@pytest.fixture
async def admin(operator: ApiClient) -> ApiClient:
    """Create an agent; return a client with an admin key."""
    assert (await operator("PUT", "/agents/reporter", {"description": "Writes reports."})).status == 201
    return await operator.new("admin")


async def wake(caller: ApiClient, payload: object = None) -> dict[str, Any]:
    reply = await caller("POST", RUNS, None if payload is None else {"payload": payload})
    assert reply.status == 201, reply.body
    return dict(reply.body)


async def claim(caller: ApiClient, wait_ms: int = 10_000) -> dict[str, Any]:
    body = {"worker": "executor-1", "agents": ["reporter"], "limit": 1, "waitMs": wait_ms}
    reply = await caller("POST", "/runs/claim", body)
    assert reply.status == 200, reply.body
    (run,) = reply.body["runs"]
    return dict(run)


async def complete(caller: ApiClient, run: dict[str, Any], status: str, **more: object) -> Reply:
    return await caller(
        "POST", f"/runs/{run['id']}/complete", {"status": status, "attempt": run["attempt"], **more}
    )


# --- states ----------------------------------------------------------------------------------------------


async def test_a_session_is_pending_then_running_then_finished(admin: ApiClient):
    woken = await wake(admin, {"topic": "sales"})
    assert woken["state"] == "pending", "it waits for an executor"
    claimed = await claim(admin)
    assert (claimed["id"], claimed["state"]) == (woken["id"], "running")
    assert claimed["payload"] == {"topic": "sales"}
    assert (await admin("POST", f"/runs/{woken['id']}/heartbeat", {"attempt": 1})).status == 200
    done = await complete(admin, claimed, "succeeded", output="written", usage={"tokens": 1200})
    assert (done.status, done.body["state"]) == (200, "succeeded")
    assert (done.body["output"], done.body["usage"]) == ("written", {"tokens": 1200})
    assert done.body["finishedAt"] is not None


async def test_an_executor_can_complete_a_session_as_failed(admin: ApiClient):
    job = {"name": "nightly", "schedule": "0 0 29 2 *", "maxAttempts": 1}
    assert (await admin("POST", JOBS, job)).status == 201
    assert (await admin("POST", f"{JOBS}/nightly/run")).status == 201
    claimed = await claim(admin)
    failed = await complete(admin, claimed, "failed", error="the container exited with 1")
    assert (failed.body["state"], failed.body["error"]) == ("failed", "the container exited with 1")


async def test_a_finished_session_never_changes_state(admin: ApiClient):
    await wake(admin)
    claimed = await claim(admin)
    await complete(admin, claimed, "succeeded")
    before = (await admin("GET", f"/runs/{claimed['id']}")).body
    for verb in ("cancel", "stop", "heartbeat", "replay"):
        refused = await admin("POST", f"/runs/{claimed['id']}/{verb}")
        assert (refused.status, refused.code) == (409, "failed-precondition"), verb
    refused = await complete(admin, claimed, "failed")
    assert (refused.status, refused.code) == (409, "failed-precondition")
    assert (await admin("GET", f"/runs/{claimed['id']}")).body == before


async def test_a_session_is_claimed_by_one_executor(admin: ApiClient):
    woken = await wake(admin)
    assert (await claim(admin))["id"] == woken["id"]
    reply = await admin("POST", "/runs/claim", {"worker": "executor-2", "limit": 10})
    assert reply.body["runs"] == []


async def test_a_session_not_claimed_in_time_fails(admin: ApiClient):
    target = {"kind": "pull", "claimTimeoutMs": 1}
    await admin("POST", JOBS, {"name": "hasty", "schedule": "0 0 29 2 *", "target": target})
    run = (await admin("POST", f"{JOBS}/hasty/run")).body

    async def expired() -> bool:
        now = (await admin("GET", f"/runs/{run['id']}")).body
        return bool((now["state"], now["reason"]) == ("failed", "expired"))

    await eventually(expired)


# --- triggers --------------------------------------------------------------------------------------------


async def test_a_manual_run_records_its_trigger_and_requires_an_admin(admin: ApiClient, operator: ApiClient):
    woken = await wake(admin)
    assert woken["trigger"] == "user"
    assert woken["triggeredBy"].startswith("key:")
    for role, more in (("member", {}), ("agent", {"agent": "reporter"})):
        refused = await (await operator.new(role, **more))("POST", RUNS)
        assert (refused.status, refused.code) == (403, "permission-denied"), role
    stranger = await operator.new("agent", agent="another")
    refused = await stranger("POST", RUNS)
    assert (refused.status, refused.code) == (404, "not-found")


async def test_a_scheduled_run_has_its_trigger_and_the_time_of_its_tick(admin: ApiClient):
    await admin("POST", JOBS, {"name": "report", "schedule": "* * * * * *"})
    claimed = await claim(admin)
    assert (claimed["trigger"], claimed["triggeredBy"]) == ("schedule", None)
    assert claimed["scheduledAt"].endswith(".000Z"), "the tick's time, not when it was noticed"
    assert datetime.fromisoformat(claimed["scheduledAt"]) <= datetime.fromisoformat(claimed["startedAt"])


# --- the scheduler ---------------------------------------------------------------------------------------


async def test_replicas_without_a_leader_record_a_tick_once(new_app: NewApp):
    async with new_app() as one, new_app(), new_app(), served(one) as operator:
        await operator("PUT", "/agents/reporter", {})
        job = {"name": "report", "schedule": "every 1s", "overlapPolicy": "allow"}
        assert (await operator("POST", JOBS, job)).status == 201

        async def three() -> list[dict[str, Any]]:
            listed = (await operator("GET", f"{JOBS}/report/runs")).body["runs"]
            return listed if len(listed) >= 3 else []

        ticks = [run["scheduledAtMs"] for run in await eventually(three)]
        assert len(ticks) == len(set(ticks))
        steps = {newer - older for newer, older in zip(ticks, ticks[1:], strict=False)}
        assert steps == {1000}, "and none is left out"


async def test_ticks_missed_during_downtime_are_one_record_and_no_backlog(new_app: NewApp):
    """Missed ticks are not replayed; one record counts them."""
    job = {"name": "report", "schedule": "every 1s", "misfireGrace": "1s"}
    async with new_app() as app, served(app) as operator:
        await operator("PUT", "/agents/reporter", {})
        assert (await operator("POST", JOBS, job)).status == 201
        await claim(operator)
    down = time.monotonic()
    await eventually(lambda: time.monotonic() > down + 4)
    async with new_app() as app, served(app) as operator:
        key = (await app.services.auth.keys.create(LOCAL, "default", {"role": "admin"}))[1]
        operator = operator.with_key(key)

        async def missed() -> list[dict[str, Any]]:
            return list((await operator("GET", f"{JOBS}/report/runs", state="missed")).body["runs"])

        (record,) = await eventually(missed)
        assert record["covers"] >= 2
        assert record["untilAt"] > record["scheduledAt"]
        others = (await operator("GET", f"{JOBS}/report/runs")).body["runs"]
        between = [
            run
            for run in others
            if record["scheduledAt"] <= run["scheduledAt"] <= record["untilAt"] and run["state"] != "missed"
        ]
        assert between == []


SCHEDULES = (
    "*/5 * * * *", "@hourly", "@daily", "@weekly", "@monthly", "@yearly",
    "@every 30m", "@every 2h", "@every 1d",
)  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
async def test_supported_schedules_are_accepted(admin: ApiClient, schedule: str):
    created = await admin("POST", JOBS, {"name": "report", "schedule": schedule})
    assert created.status == 201, created.body
    assert len(created.body["nextTicks"]) == 5


@pytest.mark.parametrize("schedule", ["@never", "@every 5x", "61 * * * *", "soon", "@every"])
async def test_an_invalid_schedule_is_rejected_when_the_job_is_saved(admin: ApiClient, schedule: str):
    refused = await admin("POST", JOBS, {"name": "report", "schedule": schedule})
    assert (refused.status, refused.code) == (422, "invalid-argument")
    assert "schedule" in refused.body["detail"]


async def test_an_inactive_agent_is_not_woken_by_its_schedule(admin: ApiClient):
    await admin("POST", JOBS, {"name": "report", "schedule": "every 1s"})
    assert (await admin("PUT", "/agents/reporter", {"active": False})).status == 200
    job = (await admin("GET", f"{JOBS}/report")).body
    assert (job["enabled"], job["nextAt"], job["disabledReason"]) == (False, None, "agent_inactive")


# --- HTTP paths ------------------------------------------------------------------------------------------


async def test_the_last_50_runs_are_listed_newest_first(admin: ApiClient):
    woken = [(await wake(admin, n))["id"] for n in range(55)]
    listed = (await admin("GET", RUNS)).body
    assert [run["id"] for run in listed["runs"]] == woken[:4:-1]
    rest = (await admin("GET", RUNS, cursor=listed["cursor"])).body
    assert [run["id"] for run in rest["runs"]] == woken[4::-1]
    assert rest["cursor"] is None


async def test_only_a_pending_session_can_be_cancelled(admin: ApiClient):
    woken = await wake(admin)
    cancelled = await admin("POST", f"/runs/{woken['id']}/cancel")
    assert (cancelled.status, cancelled.body["state"]) == (200, "cancelled")
    await wake(admin)
    running = await claim(admin)
    refused = await admin("POST", f"/runs/{running['id']}/cancel")
    assert (refused.status, refused.code) == (409, "failed-precondition")
    stopped = await admin("POST", f"/runs/{running['id']}/stop")
    assert (stopped.status, stopped.body["state"]) == (200, "cancelled")
    refused = await complete(admin, running, "succeeded")
    assert (refused.status, refused.code) == (409, "failed-precondition"), "its executor is told to stop"


async def test_runs_are_listed_by_agent(admin: ApiClient, operator: ApiClient):
    await operator("PUT", "/agents/another", {})
    await wake(admin)
    assert (await admin("GET", "/agents/another/runs")).body["runs"] == []
    assert (await admin("GET", "/agents/nobody/runs")).status == 404
    stranger = await operator.new("admin", workspace="default")
    assert len((await stranger("GET", RUNS)).body["runs"]) == 1
