"""Several outcomes in one report: each has its own fence and its own result."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.conftest import SELDOM, on_one_store
from tests.integration.service.runs.test_executors import claim, end_leases, waiting
from tests.support.api_client import JOBS, ApiClient
from tests.support.receiver import Receiver
from tests.support.waiting import eventually
from wakeful.errors import Unstorable
from wakeful.store.idempotency import InProgress
from wakeful.store.sql.driver import LockTimeout


async def report(ask: ApiClient, *runs: dict[str, object]) -> list[dict[str, object]]:
    reply = await ask("POST", "/runs/complete", {"runs": [*runs]})
    assert reply.status == 200, reply.body
    results: list[dict[str, object]] = reply.body["runs"]
    return results


async def test_each_outcome_of_a_report_is_judged_by_its_own_fence(ask: ApiClient):
    ids = [
        await waiting(ask, name, maxAttempts=3) for name in ("done", "failing", "hopeless", "stale", "odd")
    ]
    await claim(ask, worker="laptop-1")
    await end_leases(ask.app)
    await claim(ask, worker="laptop-2")
    done, failing, hopeless, stale, odd = ids

    results = await report(
        ask,
        {"id": done, "attempt": 2, "status": "succeeded", "output": {"sent": 3}, "usage": {"tokens": 7}},
        {"id": failing, "attempt": 2, "status": "failed", "error": "no", "output": "half"},
        {"id": hopeless, "attempt": 2, "status": "failed", "error": "never", "permanent": True},
        {"id": stale, "attempt": 1, "status": "succeeded"},
        {"id": odd, "attempt": 2, "status": "perhaps"},
        {"id": "unknown", "attempt": 1, "status": "succeeded"},
    )
    assert [(each["id"], each["state"], each["code"]) for each in results] == [
        (done, "succeeded", None),
        (failing, "retrying", None),
        (hopeless, "failed", None),
        (stale, None, "failed-precondition"),
        (odd, None, "invalid-argument"),
        ("unknown", None, "not-found"),
    ]
    assert "attempt 2, not 1" in str(results[3]["message"])
    shown = {run_id: (await ask("GET", f"/runs/{run_id}")).body for run_id in ids}
    assert (shown[done]["output"], shown[done]["usage"]) == ('{"sent":3}', {"tokens": 7})
    assert (shown[hopeless]["error"], shown[hopeless]["reason"]) == ("never", "permanent")
    assert [shown[run_id]["state"] for run_id in (stale, odd)] == ["running", "running"]
    audited = (await ask("GET", "/audit", action="run.complete")).body["entries"]
    assert {entry["subject"] for entry in audited} == {done, failing, hopeless}

    (again,) = await report(ask, {"id": done, "attempt": 2, "status": "failed"})
    assert (again["state"], again["code"]) == (None, "failed-precondition")


async def test_work_that_was_not_started_is_tried_again_and_does_not_count(ask: ApiClient):
    run_id = await waiting(ask, "full", maxAttempts=1)
    full = {"id": run_id, "status": "failed", "error": "no room", "counted": False}
    for attempt in (1, 2):
        await eventually(lambda: claim(ask))
        for wrong in ({"status": "succeeded"}, {"permanent": True}, {"counted": "no"}):
            (refused,) = await report(ask, {**full, "attempt": attempt, **wrong})
            assert refused["code"] == "invalid-argument"
        (result,) = await report(ask, {**full, "attempt": attempt})
        assert result["state"] == "retrying"
    run = (await ask("GET", f"/runs/{run_id}")).body
    assert (run["reason"], run["failedAttempts"], run["error"]) == ("not_started", 0, "no room")
    await eventually(lambda: claim(ask))
    one = await ask("POST", f"/runs/{run_id}/complete", {"attempt": 3, "status": "failed", "counted": False})
    assert one.body["state"] == "retrying"


async def test_runs_of_several_executors_can_be_reported_together(ask: ApiClient):
    first, second = await waiting(ask, "a"), await waiting(ask, "b")
    await claim(ask, worker="laptop-1", limit=1)
    await claim(ask, worker="laptop-2", limit=1)
    results = await report(
        ask, *({"id": run_id, "attempt": 1, "status": "succeeded"} for run_id in (first, second))
    )
    assert [each["state"] for each in results] == ["succeeded", "succeeded"]


@on_one_store
async def test_a_callback_and_a_run_of_a_deleted_job_can_be_reported_with_others(
    ask: ApiClient, receiver: Receiver
):
    gone = await waiting(ask, "gone")
    await claim(ask)
    await ask("DELETE", f"{JOBS}/gone")
    target = {"kind": "webhook", "url": receiver.url, "completion": "callback"}
    await ask("POST", JOBS, {"name": "hook", "schedule": SELDOM, "target": target})
    called = (await ask("POST", f"{JOBS}/hook/run")).body["id"]
    await eventually(lambda: receiver.requests)
    results = await report(
        ask,
        {"id": called, "attempt": 1, "status": "succeeded", "output": "called"},
        {"id": gone, "attempt": 1, "status": "failed", "error": "no", "permanent": True},
    )
    assert [each["state"] for each in results] == ["succeeded", "failed"]


@on_one_store
async def test_an_outcome_that_cannot_be_stored_does_not_affect_the_others(
    ask: ApiClient, monkeypatch: pytest.MonkeyPatch
):
    ids = [await waiting(ask, name) for name in ("a", "b")]
    await claim(ask)

    complete = ask.app.store.complete_runs

    async def refuse_second(holder: Any, finished: Any, *args: Any) -> set[str]:
        if ids[1] in {each.run_id for each in finished}:
            raise Unstorable("out of range")
        return await complete(holder, finished, *args)

    monkeypatch.setattr(ask.app.store, "complete_runs", refuse_second)
    results = await report(ask, *({"id": each, "attempt": 1, "status": "succeeded"} for each in ids))
    assert [each["state"] for each in results] == ["succeeded", None]
    assert results[1]["code"] == "invalid-argument"


@on_one_store
@pytest.mark.parametrize(
    ("error", "status", "tries"), [(LockTimeout("locked"), 503, 3), (InProgress(), 409, 1)]
)
async def test_a_report_that_was_not_written_can_be_repeated_with_its_key(
    ask: ApiClient, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, tries: int
):
    ids = [await waiting(ask, name) for name in ("a", "b")]
    await claim(ask)
    calls = 0

    async def refuse(*_: Any) -> set[str]:
        nonlocal calls
        calls += 1
        raise error

    body = {"runs": [*({"id": each, "attempt": 1, "status": "succeeded"} for each in ids), {"id": "unknown"}]}
    with monkeypatch.context() as patched:
        patched.setattr(ask.app.store, "complete_runs", refuse)
        failed = await ask("POST", "/runs/complete", body, headers={"Idempotency-Key": "k"})
    assert (failed.status, calls) == (status, tries)
    again = await ask("POST", "/runs/complete", body, headers={"Idempotency-Key": "k"})
    assert [each["state"] for each in again.body["runs"]] == ["succeeded", "succeeded", None]


@on_one_store
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "runs: write a list"),
        ({"runs": ["r1"]}, "runs[0]: write an object"),
        ({"runs": [{"status": "succeeded"}]}, "runs[0]: id: it is missing"),
        ({"runs": [{"id": "a", "status": "failed"}, {"id": "a", "status": "failed"}]}, "name each run once"),
    ],
)
async def test_a_report_that_names_no_runs_is_refused(ask: ApiClient, body: dict[str, object], message: str):
    reply = await ask("POST", "/runs/complete", body)
    assert (reply.status, reply.code) == (422, "invalid-argument")
    assert message in reply.body["detail"]


@on_one_store
async def test_an_agent_key_reports_only_runs_of_its_agent(ask: ApiClient):
    run_id = await waiting(ask)
    await claim(ask)
    key = (await ask("POST", "/keys", {"role": "agent", "agent": "writer", "name": "w"})).body["key"]
    (result,) = await report(ask.with_key(key), {"id": run_id, "attempt": 1, "status": "succeeded"})
    assert (result["state"], result["code"]) == (None, "not-found")
