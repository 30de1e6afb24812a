"""Cron for agents: a job is a cron expression and a signed webhook.

In the order of the reference: creating a job, dispatch, the webhook, replaying a dead letter, quotas and the
service level.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import datetime
from typing import Any

import pytest

from tests.support.api_client import ApiClient, Reply
from tests.support.receiver import Receiver
from tests.support.waiting import eventually

JOBS = "/agents/digest-bot/jobs"
EVERY_SECOND = "* * * * * *"
AT_ONCE = {"baseMs": 1, "maxMs": 1}


async def create_job(agent: ApiClient, /, **fields: object) -> Reply:
    return await agent("POST", JOBS, {"name": "daily-digest", **fields})


async def runs(caller: ApiClient, *states: str) -> list[dict[str, Any]]:
    path = f"{JOBS}/daily-digest/runs"
    reply = await (caller("GET", path, state=",".join(states)) if states else caller("GET", path))
    assert reply.status == 200, reply.body
    return list(reply.body["runs"])


@pytest.fixture
async def agent(operator: ApiClient) -> ApiClient:
    """Return a client with the key of an agent."""
    return await operator.new("agent", agent="digest-bot")


# --- createJob -------------------------------------------------------------------------------------------


async def test_an_agent_creates_a_job_and_its_secret_is_shown_once(agent: ApiClient):
    created = await create_job(
        agent, cron="0 7 * * *", webhookUrl="https://hooks.example.com/digest", payload={"to": "ada"}
    )
    assert created.status == 201, created.body
    secret = created.body["secret"]
    assert len(base64.b64decode(secret.removeprefix("whsec_"))) == 32, "256 bits"
    assert created.body["maxAttempts"] == 5
    assert created.body["payload"] == {"to": "ada"}
    assert created.body["enabled"] is True
    assert created.body["nextAt"].endswith("T07:00:00.000Z"), "computed from the cron expression"
    read = await agent("GET", f"{JOBS}/daily-digest")
    assert read.status == 200
    assert "secret" not in read.body
    assert secret not in json.dumps(read.body)


@pytest.mark.parametrize(
    "fields",
    [
        {"webhookUrl": "https://hooks.example.com"},
        {"cron": "0 7 * * *", "webhookUrl": "not a url"},
        {"cron": "0 25 * * *", "webhookUrl": "https://hooks.example.com"},
        {"cron": "0 0 31 2 *", "webhookUrl": "https://hooks.example.com"},
        {"cron": "", "webhookUrl": "https://hooks.example.com"},
        {"name": "Daily Digest!", "cron": "0 7 * * *", "webhookUrl": "https://hooks.example.com"},
        {"name": None, "cron": "0 7 * * *", "webhookUrl": "https://hooks.example.com"},
        {"cron": "0 7 * * *", "webhookUrl": "https://hooks.example.com", "maxAttempts": 0},
    ],
)
async def test_an_invalid_job_is_rejected_and_nothing_is_stored(
    agent: ApiClient, operator: ApiClient, fields: dict[str, object]
):
    refused = await create_job(agent, **fields)
    assert (refused.status, refused.code) == (422, "invalid-argument")
    assert (await operator("GET", "/jobs")).body["jobs"] == []


async def test_a_duplicate_name_is_rejected(agent: ApiClient):
    job = {"cron": "0 7 * * *", "webhookUrl": "https://hooks.example.com"}
    assert (await create_job(agent, **job)).status == 201
    again = await create_job(agent, **job)
    assert (again.status, again.code) == (409, "already-exists")


async def test_creating_a_job_is_audited_with_its_expression(agent: ApiClient, operator: ApiClient):
    await create_job(agent, cron="0 7 * * *", webhookUrl="https://hooks.example.com")
    entries = (await operator("GET", "/audit")).body["entries"]
    (entry,) = [entry for entry in entries if entry["action"] == "job.create"]
    assert entry["subject"] == "digest-bot/daily-digest"
    assert entry["details"]["schedule"] == "0 7 * * *"
    assert entry["actor"].startswith("key:")


async def test_creating_a_job_without_a_key_is_unauthenticated(operator: ApiClient):
    refused = await create_job(operator.with_key(None), cron="0 7 * * *", webhookUrl="https://a.example")
    assert (refused.status, refused.code) == (401, "unauthenticated")


# --- dispatch and the webhook ----------------------------------------------------------------------------


async def test_a_due_job_is_posted_with_a_signature_and_its_run_is_recorded(
    agent: ApiClient, operator: ApiClient, receiver: Receiver
):
    payload = {"greeting": "Grüß dich", "n": 1.50, "nested": [None, True, {"a": "b"}]}
    created = await create_job(agent, cron=EVERY_SECOND, webhookUrl=receiver.url, payload=payload)
    key = base64.b64decode(created.body["secret"].removeprefix("whsec_"))
    (run, *_) = await eventually(lambda: runs(agent, "succeeded"))
    body, request = receiver.bodies[0], receiver.requests[0]
    assert request.method == "POST"
    assert json.loads(body) == {"job": "daily-digest", "payload": payload}
    assert (
        body
        == json.dumps(
            {"job": "daily-digest", "payload": payload}, ensure_ascii=False, separators=(",", ":")
        ).encode()
    )
    signature = hmac.new(key, body, hashlib.sha256).hexdigest()
    assert request.headers["x-wakeful-signature"] == signature
    assert (run["attempt"], run["trigger"], run["error"]) == (1, "schedule", None)
    assert run["startedAt"] <= run["finishedAt"]
    job = (await agent("GET", f"{JOBS}/daily-digest")).body
    assert datetime.fromisoformat(job["nextAt"]) > datetime.fromisoformat(run["scheduledAt"]), "it went on"


@pytest.mark.parametrize("status", [400, 404, 500, 503])
async def test_a_response_other_than_2xx_fails_the_run(agent: ApiClient, receiver: Receiver, status: int):
    receiver.answers(status)
    await create_job(agent, cron=EVERY_SECOND, webhookUrl=receiver.url, maxAttempts=1)
    run = (await eventually(lambda: runs(agent, "failed")))[-1]
    assert str(status) in run["error"], "the code of the response is kept"
    assert run["finishedAt"] is not None


async def test_a_failed_run_is_retried_up_to_max_attempts(agent: ApiClient, receiver: Receiver):
    receiver.answers(500)
    await create_job(agent, schedule="in 1s", webhookUrl=receiver.url, maxAttempts=3, backoff=AT_ONCE)
    (run,) = await eventually(lambda: runs(agent, "failed"))
    assert run["attempt"] == 3
    whole = (await agent("GET", f"/runs/{run['id']}")).body
    assert [attempt["attempt"] for attempt in whole["attempts"]] == [1, 2, 3]
    ids = {request.headers["webhook-id"] for request in receiver.requests}
    assert len(receiver.requests) == 3
    assert ids == {run["idempotencyKey"]}, "the same through every retry"


# --- dlqReplay -------------------------------------------------------------------------------------------


async def test_replaying_a_dead_letter_increments_its_attempt(
    agent: ApiClient, operator: ApiClient, receiver: Receiver
):
    receiver.answers(500)
    await create_job(agent, schedule="in 1s", webhookUrl=receiver.url, maxAttempts=2, backoff=AT_ONCE)
    (dead,) = await eventually(lambda: runs(agent, "failed"))
    (letter,) = (await operator("GET", "/dead-letters")).body["deadLetters"]
    assert letter["id"] == dead["id"]
    receiver.answers(200)
    replayed = await operator("POST", f"/runs/{dead['id']}/replay")
    assert replayed.status == 201, replayed.body
    assert (replayed.body["state"], replayed.body["attempt"]) == ("pending", 3)
    assert (replayed.body["replayOf"], replayed.body["trigger"]) == (dead["id"], "replay")

    async def done() -> bool:
        return bool((await operator("GET", f"/runs/{replayed.body['id']}")).body["state"] == "succeeded")

    await eventually(done)
    assert receiver.headers["webhook-id"] == dead["idempotencyKey"]
    assert (await operator("GET", "/dead-letters")).body["deadLetters"] == []


async def test_replaying_a_dead_letter_requires_an_admin(
    agent: ApiClient, operator: ApiClient, receiver: Receiver
):
    receiver.answers(500)
    await create_job(agent, schedule="in 1s", webhookUrl=receiver.url, maxAttempts=1)
    (dead,) = await eventually(lambda: runs(agent, "failed"))
    for caller in (agent, await operator.new("member")):
        refused = await caller("POST", f"/runs/{dead['id']}/replay")
        assert (refused.status, refused.code) == (403, "permission-denied")
    stranger = await operator.new("agent", agent="another-bot")
    refused = await stranger("POST", f"/runs/{dead['id']}/replay")
    assert (refused.status, refused.code) == (404, "not-found")


async def test_a_run_that_is_not_a_dead_letter_cannot_be_replayed(
    agent: ApiClient, operator: ApiClient, receiver: Receiver
):
    await create_job(agent, cron=EVERY_SECOND, webhookUrl=receiver.url)
    (run, *_) = await eventually(lambda: runs(agent, "succeeded"))
    refused = await operator("POST", f"/runs/{run['id']}/replay")
    assert (refused.status, refused.code) == (409, "failed-precondition")


# --- quotas and the service level ------------------------------------------------------------------------


async def test_an_exhausted_quota_is_an_error_and_failed_creations_do_not_count(
    agent: ApiClient, operator: ApiClient
):
    limit = {"agent": "digest-bot", "bucket": "scheduler.createJob", "limit": 2}
    assert (await operator("PUT", "/quotas", limit)).status == 200
    job = {"cron": "0 7 * * *", "webhookUrl": "https://hooks.example.com"}
    assert (await create_job(agent, **job)).status == 201
    assert (await create_job(agent, **job)).code == "already-exists"
    assert (await create_job(agent, name="second", cron="nonsense")).code == "invalid-argument"
    assert (await create_job(agent, name="second", **job)).status == 201, "what failed was not charged"
    refused = await create_job(agent, name="third", **job)
    assert (refused.status, refused.code) == (429, "resource-exhausted")
    assert "scheduler.createJob" in refused.body["detail"]
    mine = (await agent("GET", "/quotas")).body["quotas"]
    (bucket,) = [each for each in mine if each["bucket"] == "scheduler.createJob"]
    assert (bucket["agent"], bucket["limit"], bucket["used"]) == ("digest-bot", 2, 2)


async def test_the_slo_report_has_its_targets(agent: ApiClient, operator: ApiClient, receiver: Receiver):
    await create_job(agent, cron=EVERY_SECOND, webhookUrl=receiver.url)
    await eventually(lambda: runs(agent, "succeeded"))
    slo = await operator("GET", "/slo")
    assert slo.status == 200
    assert slo.body["deadLetterRatio"]["target"] == 0.01
    assert slo.body["deadLetterRatio"]["ok"] is True
    assert slo.body["dispatchLatencyMs"]["value"] < 120_000, "under two minutes"
