"""Executors over HTTP: run and attempt are the fence, and each claimed run has its own lease."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, on_one_store
from tests.support.api_client import JOBS, ApiClient
from wakeful import Unavailable, Wakeful
from wakeful.run.consequences import consequences
from wakeful.run.outcome import Finished
from wakeful.service.auth.access import LOCAL
from wakeful.store.claim_requests import ClaimRequest, ClaimScope
from wakeful.store.rows import JobChange, UnfinishedRun

_claiming = ContextVar("claiming", default=False)
_CLAIM = {"worker": "laptop", "limit": 50}


async def waiting(ask: ApiClient, name: str = "a", **more: object) -> str:
    """Create a job with a pull target, start a run and return its id."""
    made = await ask("POST", JOBS, {"name": name, "schedule": SELDOM, "target": {"kind": "pull"}, **more})
    assert made.status == 201, made.body
    return str((await ask("POST", f"{JOBS}/{name}/run")).body["id"])


async def claim(ask: ApiClient, **more: object) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = (await ask("POST", "/runs/claim", {**_CLAIM, **more})).body["runs"]
    return runs


async def end_leases(app: Wakeful) -> None:
    """Expire the lease of every claimed run and retry it immediately."""
    now_ms = app.store.clock.now_ms()

    def retry(lost: UnfinishedRun) -> Finished:
        started_ms = lost.started_ms or now_ms
        return Finished(lost.id, lost.job_id, lost.attempt, "retrying", started_ms, now_ms, due_ms=now_ms)

    assert await app.store.rescue(now_ms, now_ms + 1, 100, retry, consequences)


async def test_a_stale_executor_can_neither_renew_nor_complete_the_attempt_of_its_successor(ask: ApiClient):
    run_id = await waiting(ask)
    (first,) = await claim(ask, worker="laptop-1")
    await end_leases(ask.app)
    (second,) = await claim(ask, worker="laptop-2")
    assert (second["id"], first["attempt"], second["attempt"]) == (run_id, 1, 2)

    late = {"attempt": 1}
    for verb, body in (("heartbeat", late), ("complete", {**late, "status": "succeeded", "output": "late"})):
        refused = await ask("POST", f"/runs/{run_id}/{verb}", body)
        assert (refused.status, refused.code) == (409, "failed-precondition")
        assert "attempt 2" in refused.body["detail"]
    many = await ask("POST", "/runs/heartbeat", {"runs": [{"id": run_id, "attempt": 1}]})
    assert many.body == {"renewed": [], "lost": [run_id]}
    assert (await ask("GET", f"/runs/{run_id}")).body["state"] == "running"

    assert (await ask("POST", f"/runs/{run_id}/heartbeat", {"attempt": 2})).status == 200
    done = await ask(
        "POST", f"/runs/{run_id}/complete", {"attempt": 2, "status": "succeeded", "output": "ok"}
    )
    assert (done.status, done.body["output"]) == (200, "ok")


async def test_one_heartbeat_renews_many_leases_and_returns_the_lost_ones(ask: ApiClient):
    kept, gone, over = [await waiting(ask, name) for name in ("kept", "gone", "over")]
    assert len(await claim(ask)) == 3
    await ask("POST", f"/runs/{gone}/stop")
    await ask("POST", f"/runs/{over}/complete", {"attempt": 1, "status": "succeeded"})
    unclaimed = await waiting(ask, "unclaimed")
    ids = [over, kept, gone, unclaimed, "nothing"]
    reply = await ask("POST", "/runs/heartbeat", {"runs": [{"id": each, "attempt": 1} for each in ids]})
    assert (reply.status, reply.body) == (
        200,
        {"renewed": [kept], "lost": [over, gone, unclaimed, "nothing"]},
    )
    assert (await ask("POST", "/runs/heartbeat", {"runs": []})).body == {"renewed": [], "lost": []}


async def test_a_heartbeat_with_a_worker_renews_only_runs_claimed_by_that_worker(ask: ApiClient):
    run_id = await waiting(ask)
    await claim(ask, worker="laptop-1")
    runs = [{"id": run_id, "attempt": 1}]
    other = await ask("POST", "/runs/heartbeat", {"worker": "laptop-2", "runs": runs})
    assert other.body == {"renewed": [], "lost": [run_id]}
    own = await ask("POST", "/runs/heartbeat", {"worker": "laptop-1", "runs": runs})
    assert own.body == {"renewed": [run_id], "lost": []}


async def test_a_heartbeat_reports_runs_of_other_agents_and_workspaces_as_lost(ask: ApiClient):
    run_id = await waiting(ask)
    await claim(ask)
    before = ask.app.store.clock.now_ms()
    runs = {"runs": [{"id": run_id, "attempt": 1}]}
    await ask.app.services.agents.workspaces.put(LOCAL, "acme", {})
    stranger, foreign = await ask.new("agent", agent="stranger"), await ask.new("member", "acme")
    assert (await stranger("POST", "/runs/heartbeat", runs)).body == {"renewed": [], "lost": [run_id]}
    reply = await foreign("POST", "/api/workspaces/acme/runs/heartbeat", runs)
    assert (reply.status, reply.body) == (200, {"renewed": [], "lost": [run_id]})
    for who in (stranger, foreign):
        assert (await who("POST", f"/runs/{run_id}/heartbeat", {"attempt": 1})).status == 404

    def refuse(lost: UnfinishedRun) -> Finished:
        return Finished(lost.id, lost.job_id, lost.attempt, "failed", before, before)

    rescued = await ask.app.store.rescue(before, before + 1, 10, refuse, consequences)
    assert rescued == [run_id], "nobody has renewed its lease since the claim"


async def test_a_heartbeat_reports_timed_out_runs_as_lost(ask: ApiClient, caplog: pytest.LogCaptureFixture):
    late = await waiting(ask, "late", timeoutMs=1_000, maxAttempts=1)
    fine = await waiting(ask, "fine", timeoutMs=3_600_000)
    await claim(ask)
    now_ms = ask.app.store.clock.now_ms
    ask.app.store.clock.now_ms = lambda: now_ms() + 2_000  # type: ignore[method-assign]
    runs = [{"id": late, "attempt": 1}, {"id": fine, "attempt": 1}]
    reply = await ask("POST", "/runs/heartbeat", {"runs": runs})
    assert reply.body == {"renewed": [fine], "lost": [late]}
    ended = (await ask("GET", f"/runs/{late}")).body
    assert (ended["state"], ended["reason"], ended["error"]) == ("failed", "timeout", "timed out after 1 s")
    logged = [each.getMessage() for each in caplog.records if "event=run.failed" in each.getMessage()]
    assert [late in each for each in logged] == [True]


async def test_the_timeout_of_a_run_does_not_count_while_its_work_waits(ask: ApiClient):
    run_id = await waiting(ask, "late", timeoutMs=1_000, maxAttempts=1)
    await claim(ask, worker="laptop-1")
    now_ms, later_ms = ask.app.store.clock.now_ms, [0]
    ask.app.store.clock.now_ms = lambda: now_ms() + later_ms[0]  # type: ignore[method-assign]
    runs = [{"id": run_id, "attempt": 1}]
    stranger = await ask.new("agent", agent="stranger")
    for _ in range(3):
        later_ms[0] += 2_000
        beat = {"runs": runs, "waitingFor": {run_id: "a node", "another": "x"}}
        assert (await stranger("POST", "/runs/heartbeat", beat)).body["lost"] == [run_id]
        assert (await ask("POST", "/runs/heartbeat", beat)).body["renewed"] == [run_id]
    assert (await ask("GET", f"/runs/{run_id}")).body["waitingFor"] == "on executor laptop-1: a node"
    later_ms[0] += 10
    assert (await ask("POST", "/runs/heartbeat", {"runs": runs})).body["renewed"] == [run_id]
    assert "since" in (await ask("GET", f"/runs/{run_id}")).body["waitingFor"]
    later_ms[0] += 2_000
    assert (await ask("POST", "/runs/heartbeat", {"runs": runs})).body["lost"] == [run_id]


async def test_of_a_run_with_thousands_of_attempts_the_newest_are_shown(ask: ApiClient):
    run_id, store = await waiting(ask), ask.app.store
    request = ClaimRequest(ClaimScope.of("default", None, None), "w", 1, "c")
    for attempt in range(1, 204):
        ((taken,),) = await store.claim(store.clock.now_ms(), "default", [request])
        if attempt < 203:
            await store.release_claims(store.clock.now_ms(), "default", "w", [(run_id, attempt)])
    for _ in range(2):
        attempts = (await ask("GET", f"/runs/{run_id}")).body["attempts"]
        assert len(attempts) == 200
        assert [each["attempt"] for each in (*attempts[:2], attempts[-1])] == [
            attempts[-1]["attempt"] - 199, attempts[-1]["attempt"] - 198, taken.run.attempt,
        ]  # fmt: skip
        await ask("POST", "/runs/release", {"worker": "w", "runs": [{"id": run_id, "attempt": 203}]})


@on_one_store
async def test_an_executor_must_send_the_attempt(ask: ApiClient):
    run_id = await waiting(ask)
    await claim(ask)
    for path, body in (
        (f"/runs/{run_id}/heartbeat", None),
        (f"/runs/{run_id}/heartbeat", {}),
        (f"/runs/{run_id}/complete", {"status": "succeeded"}),
        ("/runs/heartbeat", {"runs": [{"id": run_id}]}),
    ):
        reply = await ask("POST", path, body)
        assert (reply.status, reply.code) == (422, "invalid-argument"), path
        assert "attempt: it is missing" in reply.body["detail"]
    assert (await ask("GET", f"/runs/{run_id}")).body["state"] == "running"


@on_one_store
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "runs: write a list"),
        ({"runs": "all"}, "runs: write a list"),
        ({"runs": ["r"]}, r"runs[0]: write an object"),
        ({"runs": [{"attempt": 1}]}, "runs[0].id"),
        ({"runs": [{"id": "r", "attempt": "1"}]}, "runs[0].attempt"),
        ({"runs": [{"id": "r", "attempt": 1, "hurry": True}]}, "runs[0].hurry"),
        ({"runs": [{"id": "r", "attempt": 1}, {"id": "r", "attempt": 2}]}, "each run once"),
        ({"runs": [{"id": str(n), "attempt": 1} for n in range(1_001)]}, "at most 1000"),
        ({"runs": [], "worker": ""}, "worker"),
        ({"runs": [], "hurry": True}, "hurry"),
        ({"runs": [], "waitingFor": "a node"}, "waitingFor: write an object"),
        ({"runs": [], "waitingFor": {"r": 1}}, "waitingFor: write an object"),
        ({"runs": [], "waitingFor": {"r": ""}}, "waitingFor: write 1 to 1000 characters"),
        ({"runs": [], "waitingFor": {"r": "x" * 1_001}}, "waitingFor: write 1 to 1000 characters"),
        ({"runs": [], "waitingFor": {"r": "\x00"}}, "waitingFor: write 1 to 1000 characters"),
    ],
)
async def test_an_invalid_heartbeat_is_refused_with_a_reason(
    ask: ApiClient, body: dict[str, object], says: str
):
    reply = await ask("POST", "/runs/heartbeat", body)
    assert (reply.status, reply.code) == (422, "invalid-argument")
    assert says in reply.body["detail"]


@on_one_store
async def test_a_claim_is_not_replayed_to_the_same_idempotency_key(ask: ApiClient):
    first, second = await waiting(ask, "a"), await waiting(ask, "b")
    headers = {"Idempotency-Key": "claim-1"}
    got = [
        (await ask("POST", "/runs/claim", {"worker": "laptop", "limit": 1}, headers=headers)).body["runs"]
        for _ in range(3)
    ]
    assert [[run["id"] for run in runs] for runs in got] == [[first], [second], []]


async def test_an_unreadable_job_does_not_abort_a_claim(ask: ApiClient):
    good, bad, also_good = [await waiting(ask, name) for name in ("good", "bad", "also-good")]
    row = await ask.app.store.job("default", "default", "bad")
    assert row is not None
    await ask.app.store.change_job(row.id, lambda old: JobChange(old._replace(work='{"target":7}')))
    assert [run["id"] for run in await claim(ask)] == [good, also_good]
    failed = (await ask("GET", f"/runs/{bad}")).body
    assert (failed["state"], failed["reason"], failed["dead"]) == ("failed", "unreadable", True)
    assert await claim(ask) == []


async def test_a_claim_makes_as_many_store_calls_for_many_runs_as_for_few(ask: ApiClient):
    await ask("PUT", "/workflows/invoices/1", {"nodes": []})
    flow = {"kind": "workflow", "workflowId": "invoices", "version": 1, "to": {"kind": "pull"}}
    hours = {"activeHours": "00:00-23:59"}
    for n in range(12):
        more = {"target": flow} if n % 2 else hours
        assert (await ask("POST", JOBS, {"name": f"job-{n}", "schedule": SELDOM, **more})).status == 201
        await ask("POST", f"{JOBS}/job-{n}/run")
    store: Any = ask.app.store
    database = getattr(store, "_pool", None) or store._connection
    calls: list[str] = []
    for name in ("read", "write"):
        database.__dict__[name] = _counted(name, getattr(database, name), calls)
    costs, claimed = [], []
    for limit in (2, 10):
        calls.clear()
        _claiming.set(True)
        given = await ask.app.services.runs.pull.claim(LOCAL, "default", "laptop", limit=limit)
        _claiming.set(False)
        claimed.append(len(given))
        costs.append(list(calls))
    assert claimed == [2, 10]
    assert costs[0] == costs[1]
    workflows = [run for run in given if run["target"] == flow]
    assert [run["payload"]["dag"] for run in workflows] == [{"nodes": []}] * 5  # type: ignore[index,call-overload]


def _counted(name: str, call: Any, calls: list[str]) -> Any:
    async def counted(*given: Any) -> Any:
        if _claiming.get():  # not in engine loops, which have their own context
            calls.append(name)
        return await call(*given)

    return counted


async def test_a_completion_and_its_audit_entry_are_one_transaction(
    ask: ApiClient, monkeypatch: pytest.MonkeyPatch
):
    run_id = await waiting(ask)
    await claim(ask)
    complete = f"/runs/{run_id}/complete", {"attempt": 1, "status": "succeeded"}

    async def append(*given: object) -> None:
        raise Unavailable("the database is gone after the outcome is written")

    async def do_nothing(*given: object) -> None: ...

    store: Any = ask.app.store
    with monkeypatch.context() as broken:
        broken.setattr(store._operations.changelog, "append", append)
        broken.setattr(store, "_complete_at_once", do_nothing)  # which is one statement
        assert (await ask("POST", *complete)).status == 503
    assert (await ask("GET", f"/runs/{run_id}")).body["state"] == "running"
    assert (await ask("POST", *complete)).status == 200
    entries = (await ask("GET", "/audit")).body["entries"]
    assert [each["subject"] for each in entries if each["action"] == "run.complete"] == [run_id]


async def test_the_status_counts_the_executors_that_hold_runs_of_the_workspace(ask: ApiClient):
    for name in ("a", "b", "c"):
        await waiting(ask, name)
    await claim(ask, worker="laptop-1", limit=2)
    await claim(ask, worker="laptop-2", limit=1)
    status = (await ask("GET", "/status")).body
    assert (status["executors"], status["replicas"]) == (2, 1)
