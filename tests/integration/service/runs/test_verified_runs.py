"""Runs that are completed from outside, and runs that a person verifies, over HTTP and in Python."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.integration.service.runs.test_executors import claim, waiting
from tests.support.api_client import JOBS, ApiClient, served
from tests.support.receiver import Receiver
from tests.support.waiting import eventually, over
from wakeful import AsyncClient, FailedPrecondition, Function, Wakeful, Webhook

MANUAL: Any = {"kind": "manual"}
DONE: Any = {"attempt": 1, "status": "succeeded"}


async def reported(ask: ApiClient, name: str = "a", evidence: object = None, **more: object) -> str:
    """Return the id of a claimed run that its executor has reported as done."""
    run_id = await waiting(ask, name, **more)
    assert [run["id"] for run in await claim(ask)] == [run_id]
    body = {**DONE, "output": "sent", "usage": {"tokens": 7}, "evidence": evidence}
    reply = await ask("POST", f"/runs/{run_id}/complete", body)
    assert reply.status == 200, reply.body
    return run_id


async def ended(ask: ApiClient, run_id: str) -> dict[str, Any]:
    """Wait until a run is over, and return it."""
    await over(ask.app, run_id)
    found: dict[str, Any] = (await ask("GET", f"/runs/{run_id}")).body
    return found


async def test_a_person_confirms_a_run_and_nothing_else_touches_it_before(ask: ApiClient):
    run_id = await reported(ask, evidence={"external_id": "x"}, verify=MANUAL, overlapPolicy="skip")
    run = (await ask("GET", f"/runs/{run_id}")).body
    shown = {key: run[key] for key in ("state", "verifying", "output", "evidence", "worker", "finishedAt")}
    assert shown == {
        "state": "running", "verifying": True, "output": "sent", "evidence": {"external_id": "x"},
        "worker": None, "finishedAt": None,
    }  # fmt: skip
    assert f"wakeful verify {run_id}" in run["waitingFor"]
    for path, body in (
        (f"/runs/{run_id}/heartbeat", {"attempt": 1}),
        (f"/runs/{run_id}/complete", {**DONE, "output": "again"}),
        (f"/runs/{run_id}/complete", {"attempt": 1, "status": "failed"}),
        (f"/runs/{run_id}/cancel", None),
        (f"/runs/{run_id}/verify", {"verified": True, "attempt": 2}),
    ):
        refused = await ask("POST", path, body)
        assert (refused.status, refused.code) == (409, "failed-precondition"), path
    many = await ask("POST", "/runs/heartbeat", {"runs": [{"id": run_id, "attempt": 1}]})
    assert many.body == {"renewed": [], "lost": [run_id]}

    agent = await ask.new("agent", agent="default")
    assert (await agent("POST", f"/runs/{run_id}/verify", {"verified": True})).status == 403
    member = await ask.new("member")
    done = await member("POST", f"/runs/{run_id}/verify", {"verified": True, "attempt": 1})
    assert (done.status, done.body["state"], done.body["verifying"]) == (200, "succeeded", False)
    assert (done.body["usage"], done.body["worker"]) == ({"tokens": 7}, "laptop")
    again = await ask("POST", f"/runs/{run_id}/verify", {"verified": False})
    assert (again.status, again.code) == (409, "failed-precondition")
    audit = (await ask("GET", "/audit")).body["entries"]
    about = [(entry["action"], entry["details"]) for entry in audit if entry["subject"] == run_id]
    assert about == [("run.verify", {"verified": True}), ("run.complete", {"status": "succeeded"})]


async def test_runs_to_confirm_are_listed(ask: ApiClient):
    first, second = [await reported(ask, name, verify=MANUAL) for name in ("a", "b")]
    await waiting(ask, "c", verify=MANUAL)
    for path in ("/runs", "/agents/default/runs"):
        page = (await ask("GET", f"{path}?to_confirm=true&limit=1")).body
        assert [run["id"] for run in page["runs"]] == [second]
        rest = (await ask("GET", f"{path}?to_confirm=true&limit=1&cursor={page['cursor']}")).body
        assert ([run["id"] for run in rest["runs"]], rest["cursor"]) == ([first], None)
        assert (await ask("GET", f"{path}?cursor={page['cursor']}")).status == 422, "of another list"
    async with AsyncClient(ask.url, ask.key) as client:
        for runs in (client.runs, ask.app.runs):
            assert [run.id for run in await runs.list(to_confirm=True)] == [second, first]
    await ask("POST", f"/runs/{first}/verify", {"verified": True})
    assert [run["id"] for run in (await ask("GET", "/runs?to_confirm=true")).body["runs"]] == [second]


@on_one_store
async def test_a_rejected_run_is_retried_and_then_a_dead_letter(ask: ApiClient):
    run_id = await reported(ask, verify="manual", maxAttempts=2, backoff={"base": "1ms", "max": "1ms"})
    no = {"verified": False, "reason": "the date is wrong"}
    first = await ask("POST", f"/runs/{run_id}/verify", no)
    assert (first.body["state"], first.body["error"]) == ("retrying", "not verified: the date is wrong")
    again = await eventually(lambda: claim(ask))
    assert [(run["id"], run["attempt"]) for run in again] == [(run_id, 2)]
    await ask("POST", f"/runs/{run_id}/complete", {**DONE, "attempt": 2})
    last = await ask("POST", f"/runs/{run_id}/verify", no)
    assert (last.body["state"], last.body["reason"], last.body["dead"]) == ("failed", "unverified", True)
    letters = (await ask("GET", "/dead-letters")).body["deadLetters"]
    assert [each["id"] for each in letters] == [run_id]


@on_one_store
async def test_bad_requests_change_nothing(ask: ApiClient):
    run_id = await reported(ask, verify=MANUAL)
    for body in ({}, {"verified": "yes"}, {"verified": True, "note": "x"}, {"verified": True, "reason": 1}):
        assert (await ask("POST", f"/runs/{run_id}/verify", body)).status in (400, 422), body
    assert (await ask("POST", "/runs/none/verify", {"verified": True})).status == 404
    assert (await ask("GET", f"/runs/{run_id}")).body["verifying"]


async def test_a_run_that_nobody_confirms_in_time_is_not_verified(ask: ApiClient):
    run_id = await reported(ask, verify={"kind": "manual", "timeoutMs": 1}, maxAttempts=1)
    run = await ended(ask, run_id)
    assert (run["state"], run["reason"], run["error"]) == (
        "failed", "unverified", "not verified: it was not confirmed within 1 millisecond",
    )  # fmt: skip


@on_one_store
async def test_evidence_that_is_not_a_small_object_is_refused_and_the_run_stays_claimed(ask: ApiClient):
    run_id = await waiting(ask, evidence=["external_id"])
    await claim(ask)
    for evidence in ("x", [1], {"a": "x" * 20_000}):
        refused = await ask("POST", f"/runs/{run_id}/complete", {**DONE, "evidence": evidence})
        assert (refused.status, refused.code) == (422, "invalid-argument")
        assert refused.body["detail"].startswith("evidence: ")
    done = await ask("POST", f"/runs/{run_id}/complete", {**DONE, "evidence": {"external_id": 7}})
    assert (done.body["state"], done.body["evidence"]) == ("succeeded", {"external_id": 7})


async def test_evidence_of_a_failed_attempt_is_not_that_of_the_next(ask: ApiClient):
    run_id = await waiting(ask, backoff={"base": "1ms", "max": "1ms"})
    await claim(ask)
    failed = {"attempt": 1, "status": "failed", "evidence": {"external_id": 1}}
    first = await ask("POST", f"/runs/{run_id}/complete", failed)
    assert (first.body["state"], first.body["evidence"]) == ("retrying", {"external_id": 1})
    await eventually(lambda: claim(ask))
    done = await ask("POST", f"/runs/{run_id}/complete", {**DONE, "attempt": 2})
    assert (done.body["state"], done.body["evidence"]) == ("succeeded", None)


async def test_a_success_without_its_evidence_is_a_failed_attempt(ask: ApiClient):
    run_id = await waiting(ask, evidence=["external_id", "result_url"], maxAttempts=1)
    await claim(ask)
    body = {**DONE, "output": {"external_id": 7}, "evidence": {"summary": "sent"}}
    done = (await ask("POST", f"/runs/{run_id}/complete", body)).body
    assert (done["state"], done["reason"], done["error"]) == (
        "failed", "unverified", "the evidence 'result_url' is missing",
    )  # fmt: skip
    assert done["evidence"] == {"external_id": 7, "summary": "sent"}


@on_one_store
async def test_evidence_is_kept_for_a_job_that_requires_none_and_for_a_failure(ask: ApiClient):
    run_id = await reported(ask, "kept", {"ticket": 1})
    assert (await ask("GET", f"/runs/{run_id}")).body["evidence"] == {"ticket": 1}
    run_id = await waiting(ask, "failed", maxAttempts=1)
    await claim(ask)
    body = {"attempt": 1, "status": "failed", "evidence": {"log": "x"}}
    done = await ask("POST", f"/runs/{run_id}/complete", body)
    assert (done.body["state"], done.body["evidence"]) == ("failed", {"log": "x"})


async def test_stopping_a_run_that_is_verified_cancels_it_and_its_check(new_app: NewApp):
    app = new_app()
    began, stopped = asyncio.Event(), asyncio.Event()

    @app.function()
    async def work() -> str:
        return "done"

    @app.function()
    async def check() -> bool:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return True

    async with app:
        check_with: Any = {"kind": "function", "name": "check"}
        await app.jobs.create("a", schedule=SELDOM, target=Function("work"), verify=check_with)
        run = await app.jobs.run("a")
        async with asyncio.timeout(60):
            await began.wait()
            assert (await app.runs.stop(run.id)).state == "cancelled"
            await stopped.wait()
        assert (await over(app, run.id)).state == "cancelled"
        assert await app.store.verification(run.id) is None


@on_one_store
async def test_an_edit_and_a_deletion_of_the_job_do_not_change_a_check_that_waits(ask: ApiClient):
    edited = await reported(ask, "edited", verify=MANUAL)
    await ask("PATCH", f"{JOBS}/edited", {"verify": None, "evidence": ["external_id"]})
    assert (await ask("GET", f"/runs/{edited}")).body["verifying"]
    deleted = await reported(ask, "deleted", verify=MANUAL)
    await ask("DELETE", f"{JOBS}/deleted")
    for run_id in (edited, deleted):
        done = await ask("POST", f"/runs/{run_id}/verify", {"verified": True})
        assert done.body["state"] == "succeeded", run_id


async def test_a_callback_is_verified_by_a_function(new_app: NewApp, receiver: Receiver):
    app = new_app()
    seen: list[tuple[str, str | None, dict[str, Any]]] = []

    @app.function()
    async def check(run: Any) -> bool:
        seen.append((run.id, run.output, run.evidence))
        return bool(run.evidence["ok"])

    async with app, served(app) as ask:
        await app.jobs.create(
            "a", schedule=SELDOM, target=Webhook(receiver.url, completion="callback"), max_attempts=1,
            verify={"kind": "function", "name": "check"}, evidence=["ok"],
        )  # fmt: skip
        for value, state in ((True, "succeeded"), (0, "failed")):
            run = await app.jobs.run("a")
            done = await eventually(partial(_completed, app, run.id, {"ok": value}))
            assert done is not None
            assert (await ended(ask, run.id))["state"] == state
    assert [(output, evidence) for _, output, evidence in seen] == [("3", {"ok": True}), ("3", {"ok": 0})]


async def _completed(app: Wakeful, run_id: str, evidence: dict[str, Any]) -> Any:
    try:
        return await app.runs.complete(run_id, "succeeded", output=3, evidence=evidence)
    except FailedPrecondition:  # it has not started
        return None


@on_one_store
async def test_both_clients_complete_with_evidence_and_verify(ask: ApiClient):
    first, second = await waiting(ask, "first", verify=MANUAL), await waiting(ask, "second", verify=MANUAL)
    async with AsyncClient(ask.url, ask.key) as client:
        runs = {run.id: run for run in await client.runs.claim("me", limit=2)}
        assert set(runs) == {first, second}
        for run in runs.values():
            done = await client.runs.complete(run, "succeeded", evidence={"external_id": "x"})
            assert (done.verifying, done.evidence) == (True, {"external_id": "x"})
        assert (await client.runs.verify(first)).state == "succeeded"
        rejected = await client.runs.verify(runs[second], False, reason="no")
        assert (rejected.state, rejected.error) == ("retrying", "not verified: no")
        job = await client.jobs.get("first")
    assert (job.verify, job.evidence) == ({"kind": "manual"}, ())
    assert json.loads(json.dumps(job.verify)) == MANUAL


@on_one_store
async def test_agent_keys_cannot_weaken_the_checks_of_their_work(ask: ApiClient):
    agent = await ask.new("agent", agent="default")
    pull = {"schedule": SELDOM, "target": {"kind": "pull"}}
    assert (await agent("POST", JOBS, {"name": "a", **pull})).status == 201
    changed = await ask("PATCH", f"{JOBS}/a", {"verify": MANUAL, "evidence": ["external_id"]})
    assert changed.status == 200
    changes: list[dict[str, Any]] = [
        {"verify": None},
        {"verify": {"kind": "manual", "timeoutMs": 5}},
        {"evidence": []},
    ]
    for change in changes:
        refused = await agent("PATCH", f"{JOBS}/a", change)
        assert (refused.status, refused.code) == (403, "permission-denied"), change
    assert (await agent("PATCH", f"{JOBS}/a", {"description": "x"})).status == 200
    for verify, status in (
        ({"kind": "http", "url": "https://a.example"}, 201),
        ({"kind": "function", "name": "check"}, 403),
        (MANUAL, 201),
    ):
        reply = await agent("POST", JOBS, {"name": f"with-{verify['kind']}", **pull, "verify": verify})
        assert reply.status == status, verify


@pytest.mark.parametrize(
    ("verify", "error"),
    [
        ({"kind": "http", "url": "ftp://a.example"}, "verify: 'ftp://a.example' is not an http or https URL"),
        ({"kind": "http", "url": "http://10.0.0.1/x"}, "verify: "),
        ({"kind": "webhook", "url": "http://[::1]/x"}, "verify: "),
        ({"kind": "command", "argv": ["rm", "-rf"]}, "verify: "),
        ({"kind": "manual", "timeoutMs": 1, "x": 1}, "verify: a check of the kind 'manual' has no field 'x'"),
    ],
)
@on_one_store
async def test_a_check_that_can_never_run_is_refused_when_the_job_is_saved(
    new_app: NewApp, verify: Any, error: str
):
    app = new_app(allow_private_targets=False)
    async with app, served(app) as ask:
        document = {"name": "a", "schedule": SELDOM, "target": {"kind": "echo"}, "verify": verify}
        refused = await ask("POST", JOBS, document)
        assert refused.status in (400, 422), refused.body
        assert refused.body["detail"].startswith(error), refused.body


@on_one_store
async def test_an_agent_class_cannot_wait_for_a_person(ask: ApiClient):
    document = {"name": "a", "schedule": SELDOM, "target": {"kind": "agent"}, "verify": MANUAL}
    refused = await ask("POST", JOBS, document)
    assert (refused.status, "the mailbox of an agent class" in refused.body["detail"]) == (422, True)
