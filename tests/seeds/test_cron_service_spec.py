"""The specification of the cron scheduler: it schedules, applies policies and sends DAGs to an executor.

In the order of its chapters: the registrar, ticks, policies, several instances, metrics, security and
configuration. The executor is a webhook here and sees only the DAG as JSON.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Any

import pytest

from tests.integration.conftest import NewApp
from tests.support.api_client import ApiClient, Reply, served
from tests.support.receiver import Receiver
from tests.support.waiting import eventually
from wakeful.settings import Settings, read_settings

JOBS = "/agents/default/jobs"
DAG = {"nodes": [{"id": "fetch"}, {"id": "send", "after": ["fetch"]}], "name": "invoices"}


async def upsert_schedule(caller: ApiClient, **fields: object) -> Reply:
    document = {
        "workflowId": "invoices",
        "version": 3,
        "userId": "ada",
        "schedule": {"kind": "cron", "expr": "0 9 * * 1-5", "tz": "America/New_York"},
        **fields,
    }
    return await caller("PUT", f"{JOBS}/invoices-daily", document)


async def runs(
    caller: ApiClient, schedule_id: str = "invoices-daily", state: str = ""
) -> list[dict[str, Any]]:
    path = f"{JOBS}/{schedule_id}/runs"
    reply = await (caller("GET", path, state=state) if state else caller("GET", path))
    assert reply.status == 200, reply.body
    return list(reply.body["runs"])


def executor(receiver: Receiver) -> dict[str, object]:
    """Return the fields of a job whose DAGs are executed by the receiver."""
    return {
        "target": {
            "kind": "workflow",
            "workflowId": "invoices",
            "version": 3,
            "userId": "ada",
            "to": {"kind": "webhook", "url": receiver.url},
        },
        "workflowId": None,
        "version": None,
        "userId": None,
    }


async def store_dag(caller: ApiClient) -> None:
    stored = await caller("PUT", "/workflows/invoices/3", DAG)
    assert stored.status in (200, 201), stored.body


# --- the registrar ---------------------------------------------------------------------------------------


async def test_deploying_registers_a_schedule_and_returns_its_next_run(operator: ApiClient):
    registered = await upsert_schedule(
        operator,
        startAt="2027-01-01T00:00:00Z",
        endAt="2030-01-01T00:00:00Z",
        jitterMs=500,
        overlapPolicy="queue",
        catchupPolicy="spread",
    )
    assert registered.status == 201, registered.body
    job = registered.body
    assert (job["workflowId"], job["version"], job["userId"]) == ("invoices", 3, "ada")
    assert job["schedule"] == {"kind": "cron", "expr": "0 9 * * 1-5", "tz": "America/New_York"}
    assert (job["overlapPolicy"], job["catchupPolicy"], job["jitterMs"]) == ("queue", "spread", 500)
    assert job["nextAt"] == "2027-01-01T14:00:00.000Z", "nine in New York, not before it starts"


async def test_omitted_fields_have_defaults(operator: ApiClient):
    job = (await upsert_schedule(operator)).body
    assert (job["overlapPolicy"], job["catchupPolicy"], job["jitterMs"], job["enabled"]) == (
        "skip", "none", 0, True,
    )  # fmt: skip


async def test_redeploying_the_same_schedule_changes_nothing(operator: ApiClient):
    first = (await upsert_schedule(operator)).body
    assert (await operator("POST", f"{JOBS}/invoices-daily/pause")).status == 200
    paused = (await operator("GET", f"{JOBS}/invoices-daily")).body
    again = await upsert_schedule(operator)
    assert again.status == 200
    assert again.body["id"] == first["id"]
    assert (await operator("GET", f"{JOBS}/invoices-daily")).body == paused


async def test_a_schedule_is_paused_resumed_and_deleted(operator: ApiClient):
    await upsert_schedule(operator)
    paused = await operator("POST", f"{JOBS}/invoices-daily/pause")
    assert (paused.body["enabled"], paused.body["nextAt"]) == (False, None)
    resumed = await operator("POST", f"{JOBS}/invoices-daily/resume")
    assert resumed.body["enabled"] is True
    assert resumed.body["nextAt"] is not None
    assert (await operator("DELETE", f"{JOBS}/invoices-daily")).status == 204
    assert (await operator("GET", f"{JOBS}/invoices-daily")).code == "not-found"


async def test_a_schedule_shows_its_next_five_ticks(operator: ApiClient):
    await upsert_schedule(operator)
    job = (await operator("GET", f"{JOBS}/invoices-daily")).body
    times = [datetime.fromisoformat(tick["at"]) for tick in job["nextTicks"]]
    assert len(times) == 5
    assert times == sorted(times)
    assert all((at.hour, at.minute) == (9, 0) and at.weekday() < 5 for at in times), "in its own zone"
    assert {at.utcoffset() for at in times} <= {
        datetime.fromisoformat(f"2027-01-01T00:00:00{offset}").utcoffset() for offset in ("-05:00", "-04:00")
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"schedule": {"kind": "cron", "expr": "0 25 * * *", "tz": "UTC"}},
        {"schedule": {"kind": "cron", "expr": "0 9 * *", "tz": "UTC"}},
        {"schedule": {"kind": "cron", "expr": "0 9 * * *", "tz": "America/Springfield"}},
        {"overlapPolicy": "whatever"},
        {"catchupPolicy": "sometimes"},
        {"jitterMs": -1},
        {"startAt": "2030-01-01T00:00:00Z", "endAt": "2029-01-01T00:00:00Z"},
        {"version": "three"},
    ],
)
async def test_an_invalid_change_is_rejected_and_changes_nothing(
    operator: ApiClient, fields: dict[str, object]
):
    await upsert_schedule(operator)
    before = (await operator("GET", f"{JOBS}/invoices-daily")).body
    refused = await upsert_schedule(operator, **fields)
    assert (refused.status, refused.code) == (422, "invalid-argument")
    assert (await operator("GET", f"{JOBS}/invoices-daily")).body == before


async def test_an_expression_of_six_fields_has_seconds(operator: ApiClient):
    registered = await upsert_schedule(operator, schedule="*/30 * * * * *")
    assert registered.status == 201
    ticks = [tick["atMs"] for tick in registered.body["nextTicks"]]
    assert {newer - older for older, newer in zip(ticks, ticks[1:], strict=False)} == {30_000}


# --- ticks: from the launcher to the executor ------------------------------------------------------------


async def test_a_tick_sends_the_dag_and_its_metadata_to_the_executor(operator: ApiClient, receiver: Receiver):
    await store_dag(operator)
    job = (await upsert_schedule(operator, schedule="* * * * * *", **executor(receiver))).body
    await eventually(lambda: runs(operator, state="succeeded"))
    handed = json.loads(receiver.bodies[-1])["payload"]
    assert handed["dag"] == DAG
    meta = handed["meta"]
    assert (meta["source"], meta["user_id"]) == ("schedule", "ada")
    at = datetime.fromisoformat(meta["scheduled_for"])
    expected = hashlib.sha256(f"{job['id']}:{round(at.timestamp())}".encode()).hexdigest()
    assert meta["idempotency_key"] == expected
    mine = [each for each in await runs(operator) if each["idempotencyKey"] == expected]
    assert [datetime.fromisoformat(each["scheduledAt"]) for each in mine] == [at], "one run for that instant"


async def test_a_workflow_without_a_dag_fails_and_the_schedule_continues(
    operator: ApiClient, receiver: Receiver
):
    await upsert_schedule(operator, schedule="* * * * * *", maxAttempts=1, **executor(receiver))
    (run, *_) = await eventually(lambda: runs(operator, state="failed"))
    assert "invoices" in run["error"]
    assert receiver.bodies == []
    await store_dag(operator)
    await eventually(lambda: runs(operator, state="succeeded"))


async def test_a_workflow_version_is_immutable(operator: ApiClient):
    await store_dag(operator)
    await store_dag(operator)
    refused = await operator("PUT", "/workflows/invoices/3", {"nodes": []})
    assert (refused.status, refused.code) == (409, "already-exists")
    assert (await operator("GET", "/workflows/invoices/3")).body["dag"] == DAG
    assert (await operator("GET", "/workflows/invoices/4")).code == "not-found"


# --- policies --------------------------------------------------------------------------------------------


async def slow(caller: ApiClient, policy: str, **fields: object) -> None:
    """Create a job that ticks every second and whose runs wait to be claimed."""
    job = {"schedule": "every 1s", "overlapPolicy": policy, **fields}
    assert (await caller("PUT", f"{JOBS}/slow", job)).status == 201


async def claim(caller: ApiClient) -> dict[str, Any]:
    reply = await caller("POST", "/runs/claim", {"worker": "w", "limit": 1, "waitMs": 60_000})
    (run,) = reply.body["runs"]
    return dict(run)


async def test_skip_records_a_skipped_tick_while_the_previous_run_is_unfinished(operator: ApiClient):
    await slow(operator, "skip")
    running = await claim(operator)
    (skipped, *_) = await eventually(lambda: runs(operator, "slow", "skipped"))
    assert skipped["scheduledAt"] > running["scheduledAt"]
    assert skipped["reason"] == "overlap"


async def test_allow_runs_concurrently_with_the_previous_run(operator: ApiClient):
    await slow(operator, "allow")
    first, second = await claim(operator), await claim(operator)
    assert first["scheduledAt"] < second["scheduledAt"]


async def test_queue_waits_for_the_previous_run_and_keeps_the_order(operator: ApiClient):
    await slow(operator, "queue")
    first = await claim(operator)

    async def two_wait() -> bool:
        return len(await runs(operator, "slow", "pending")) >= 2

    await eventually(two_wait)
    assert (await operator("POST", "/runs/claim", {"worker": "w", "limit": 5})).body["runs"] == []
    await operator("POST", f"/runs/{first['id']}/complete", {"status": "succeeded", "attempt": 1})
    second = await claim(operator)
    assert second["scheduledAtMs"] == first["scheduledAtMs"] + 1000, "the oldest of those that wait"


async def test_jitter_changes_the_fire_time_but_not_the_scheduled_time(operator: ApiClient):
    await slow(operator, "allow", jitterMs=400)

    async def some() -> list[dict[str, Any]]:
        found = await runs(operator, "slow")
        return found if len(found) >= 3 else []

    found = await eventually(some)
    anchor = found[-1]["scheduledAtMs"] % 1000
    for run in found:
        assert run["scheduledAtMs"] % 1000 == anchor
        fired = datetime.fromisoformat(run["fireAt"]).timestamp() * 1000
        assert abs(fired - run["scheduledAtMs"]) <= 400


# --- several instances, metrics, security and configuration ----------------------------------------------


async def test_several_instances_start_each_tick_once_without_a_leader(new_app: NewApp, receiver: Receiver):
    async with new_app() as one, new_app(), served(one) as operator:
        await store_dag(operator)
        await upsert_schedule(operator, schedule="* * * * * *", overlapPolicy="allow", **executor(receiver))

        async def three() -> bool:
            return len(await runs(operator, state="succeeded")) >= 3

        await eventually(three)
        keys = [request.headers["webhook-id"] for request in receiver.requests]
        assert len(keys) == len(set(keys))


async def test_metrics_count_scheduling_decisions(operator: ApiClient, receiver: Receiver):
    await store_dag(operator)
    await upsert_schedule(operator, schedule="* * * * * *", **executor(receiver))
    await eventually(lambda: runs(operator, state="succeeded"))
    async with operator.session.get(operator.url + "/metrics") as response:
        text = await response.text()
    for name in (
        "wakeful_schedules_due", "wakeful_runs_emitted", "wakeful_runs_skipped_overlap",
        "wakeful_runs_failed_launch", "wakeful_drift_seconds_bucket",
    ):  # fmt: skip
        assert name in text, name


async def test_requests_without_a_key_are_unauthenticated(operator: ApiClient):
    for method, path in (
        ("GET", JOBS),
        ("PUT", f"{JOBS}/a"),
        ("POST", f"{JOBS}/a/pause"),
        ("DELETE", f"{JOBS}/a"),
    ):
        refused = await operator.with_key(None)(method, path)
        assert (refused.status, refused.code) == (401, "unauthenticated")


async def test_allowed_time_zones_are_configurable(new_app: NewApp):
    settings = Settings(tz_allowlist=("Europe/Berlin",))
    async with new_app(settings=settings) as app, served(app) as operator:
        refused = await upsert_schedule(operator)
        assert (refused.status, refused.code) == (422, "invalid-argument")
        assert "America/New_York" in refused.body["detail"]
        assert (await upsert_schedule(operator, schedule="0 9 * * *", tz="Europe/Berlin")).status == 201


async def test_a_job_can_be_written_back_as_it_was_read(operator: ApiClient):
    await upsert_schedule(operator)
    job = (await operator("GET", f"{JOBS}/invoices-daily")).body
    back = await operator("PUT", f"{JOBS}/invoices-daily", job)
    assert back.status == 200, back.body
    assert (await operator("GET", f"{JOBS}/invoices-daily")).body == job


def test_the_configuration_has_the_defaults_of_the_specification():
    settings = read_settings({})
    assert (settings.tick_ms, settings.lookahead_ms, settings.max_catchup_per_tick) == (1000, 60_000, 100)
    assert settings.default_overlap_policy == "skip"
    assert settings.default_catchup_policy == "none"
    assert settings.default_jitter_ms == 0
