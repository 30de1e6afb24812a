"""Requests that arrive together are written together, and each has the result that it has alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support import effort
from tests.support.interruptions import cancel_at_each_await, fail_at_each_call
from wakeful import Wakeful
from wakeful.errors import WakefulError
from wakeful.model.codec import JsonObject
from wakeful.service.auth.access import LOCAL, Principal
from wakeful.service.idempotency import Reply
from wakeful.service.runs.completions import Completion
from wakeful.service.services import Services
from wakeful.store.rows import RunView

AGENT = "default"
#: Calls a service in a workspace with the runs of `_prepare`.
Call = Callable[[Services, str, "dict[str, str]"], Awaitable[object]]


@pytest.fixture
async def app(new_app: NewApp) -> AsyncIterator[Wakeful]:
    """Return an app whose engine does not run."""
    app = new_app()
    await app.store.open()
    yield app
    await app.store.close()


def _document(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "schedule": SELDOM, "target": {"kind": "pull"}, "overlapPolicy": "allow", **more}


async def _claimed(services: Services, workspace: str, worker: str, **more: object) -> JsonObject:
    """Create a job of the name of its executor, and claim a run of it."""
    await services.jobs.create(LOCAL, workspace, AGENT, _document(worker, **more))
    await services.jobs.trigger(LOCAL, workspace, AGENT, worker)
    (run,) = await services.runs.pull.claim(LOCAL, workspace, worker)
    return run


async def _prepare(services: Services, workspace: str) -> dict[str, str]:
    """Claim runs, each with another executor; return their ids by name."""
    await services.agents.workspaces.put(LOCAL, workspace, {})
    runs = {}
    for name in ("plain", "other", "once", "never", "text"):
        runs[name] = str((await _claimed(services, workspace, name))["id"])
    runs["again"] = str((await _claimed(services, workspace, "again", maxAttempts=3))["id"])
    runs["checked"] = str((await _claimed(services, workspace, "checked", verify={"kind": "manual"}))["id"])
    runs["followed"] = str((await _claimed(services, workspace, "followed"))["id"])
    await services.jobs.create(
        LOCAL, workspace, AGENT, {"name": "after", "after": "followed", "target": {"kind": "pull"}}
    )
    runs["deleted"] = str((await _claimed(services, workspace, "deleted"))["id"])
    await services.jobs.delete(LOCAL, workspace, AGENT, "deleted")
    return runs


def _complete(name: str, status: str = "succeeded", **more: Any) -> Call:
    return lambda s, w, runs: s.runs.complete(
        more.get("principal", LOCAL), w, runs.get(name, name), status,
        **{"attempt": 1, **{key: value for key, value in more.items() if key != "principal"}},
    )  # fmt: skip


def _complete_many(*names: str) -> Call:
    return lambda s, w, runs: s.runs.reports.complete_many(
        LOCAL, w, [Completion(runs[name], "succeeded", 1) for name in names]
    )


STRANGER = Principal("key:1", "agent", None, "stranger")
COMPLETIONS: list[Call] = [
    _complete("plain", output="first"),
    _complete("plain", output="second"),
    _complete("plain", "failed", error="third"),
    _complete("other", attempt=2),
    _complete("other"),
    _complete("other", attempt=None),
    _complete("once", "perhaps"),
    _complete("once", "failed", error="never", permanent=True),
    _complete("never", principal=STRANGER),
    _complete("unknown"),
    _complete("01a1ee7a-b515-7000-8f5d-7bb6a39da79c"),
    _complete("elsewhere"),
    _complete("text", output="a\x00b", usage='{"tokens":7}'),
    _complete("again", "failed", error="once more", evidence='{"a":1}'),
    _complete("again"),
    _complete("checked", output="done"),
    _complete("checked"),
    _complete("followed"),
    _complete("deleted", output="gone"),
    _complete_many("never", "plain", "deleted"),
]


async def _result(call: Awaitable[object], ids: dict[str, str]) -> object:
    """Return what a caller gets, with names instead of ids and without times."""
    names = {run_id: name for name, run_id in ids.items()}
    try:
        result = await call
    except WakefulError as error:
        message = error.message
        for run_id, name in names.items():
            message = message.replace(run_id, name)
        return error.code, message
    if isinstance(result, RunView):
        times = {"due_ms", "started_ms", "finished_ms", "created_ms", "scheduled_ms", "fire_ms"}
        others = {"id", "job_id", "workspace", "idempotency_key", "claim_deadline_ms"}
        shown = result._asdict()
        return names.get(result.id, "new"), {key: shown[key] for key in shown.keys() - times - others}
    return [getattr(each, "code", each) for each in result] if isinstance(result, list) else result


async def _facts(app: Wakeful, workspace: str, ids: dict[str, str]) -> object:
    """Return what the database holds: the runs and the audit."""
    names = {run_id: name for name, run_id in ids.items()}
    runs = await app.store.runs_by_ids(list(ids.values()))
    states = sorted((names[run.id], run.state, run.output or "", run.error or "") for run in runs)
    attempts = [[each.worker for each in await app.store.attempts(ids[name])] for name in sorted(ids)]
    audit = await app.store.audit(workspace, limit=1_000)
    assert [row.seq for row in audit] == list(range(1, len(audit) + 1))
    entries = sorted((names[row.subject], row.details) for row in audit if row.action == "run.complete")
    after = await app.services.runs.list(LOCAL, workspace, trigger="chain")
    return states, attempts, entries, len(after)


@pytest.mark.parametrize("seed", range(effort.cases(2, 20)))
async def test_a_burst_of_reports_has_the_results_of_one_after_the_other(app: Wakeful, seed: int):
    services = app.services
    calls = COMPLETIONS if seed == 0 else random.Random(seed).sample(COMPLETIONS, len(COMPLETIONS))
    results, facts = [], []
    for workspace in ("serial", "burst"):
        ids = await _prepare(services, workspace)
        elsewhere = await _prepare(services, f"{workspace}-2")
        runs = {**ids, "elsewhere": elsewhere["plain"]}
        coroutines = [_result(call(services, workspace, runs), runs) for call in calls]
        if workspace == "serial":
            results.append([await each for each in coroutines])
        else:
            results.append(await asyncio.gather(*coroutines))
        facts.append(await _facts(app, workspace, ids))
    assert results[1] == results[0]
    assert facts[1] == facts[0]


def _run(name: str, **more: Any) -> Call:
    return lambda s, w, runs: s.jobs.trigger(more.pop("principal", LOCAL), w, AGENT, name, **more)


def _heartbeat(name: str, **more: Any) -> Call:
    given = {"attempt": 1, **more}
    return lambda s, w, runs: s.runs.pull.heartbeat(LOCAL, w, runs.get(name, name), **given)


def _heartbeats(*names: str, **more: Any) -> Call:
    async def renew(services: Services, workspace: str, runs: dict[str, str]) -> object:
        held = [(runs.get(name, name), 1) for name in names]
        result = await services.runs.pull.heartbeats(LOCAL, workspace, held, **more)
        return len(result.renewed), len(result.lost)

    return renew


RUNS_AND_HEARTBEATS: list[Call] = [
    _run("plain"),
    _run("plain", payload={"a": 1}),
    _run("plain", version=1),
    _run("plain", version=7),
    _run("deleted"),
    _run("nothing"),
    _run("after"),
    _run("again", mode="due"),
    _run("other", mode="never"),
    _run("once", overlap="skip"),
    _heartbeat("plain"),
    _heartbeat("plain", attempt=2),
    _heartbeat("plain", attempt=None),
    _heartbeat("plain", worker="another"),
    _heartbeat("other", worker="other"),
    _heartbeat("elsewhere"),
    _heartbeat("unknown"),
    _heartbeats("plain", "other", "once", "unknown", "elsewhere"),
    _heartbeats("again", "plain", waiting={}),
    _heartbeats("plain", worker="other"),
    _heartbeats(),
]


@pytest.mark.parametrize("seed", range(effort.cases(1, 20)))
async def test_a_burst_of_runs_and_heartbeats_has_the_results_of_one_after_the_other(app: Wakeful, seed: int):
    services = app.services
    calls = random.Random(seed).sample(RUNS_AND_HEARTBEATS, len(RUNS_AND_HEARTBEATS))
    results, facts = [], []
    for workspace in ("serial", "burst"):
        ids = await _prepare(services, workspace)
        elsewhere = await _prepare(services, f"{workspace}-2")
        runs = {**ids, "elsewhere": elsewhere["plain"]}
        coroutines = [_result(call(services, workspace, runs), runs) for call in calls]
        if workspace == "serial":
            results.append([await each for each in coroutines])
        else:
            results.append(await asyncio.gather(*coroutines))
        stored = await services.runs.list(LOCAL, workspace, trigger="user", limit=100)
        audit = await app.store.audit(workspace, limit=1_000)
        facts.append(
            (
                sorted((str(run.job_name), run.state, run.payload or "") for run in stored),
                sorted(row.subject for row in audit if row.action == "job.run"),
            )
        )
    assert results[1] == results[0]
    assert facts[1] == facts[0]


async def test_requests_that_arrive_together_share_a_transaction(
    app: Wakeful, monkeypatch: pytest.MonkeyPatch
):
    services = app.services
    await services.jobs.create(LOCAL, "default", AGENT, _document("a"))
    await services.jobs.create(LOCAL, "default", AGENT, _document("b"))
    written: list[int] = []
    add_runs = app.store.add_runs

    async def count(runs: Any, *args: Any, **given: Any) -> list[RunView]:
        written.append(len(runs))
        return await add_runs(runs, *args, **given)

    monkeypatch.setattr(app.store, "add_runs", count)

    async def with_key(number: int) -> object:
        return await services.idempotency.perform_claimed(
            LOCAL, "default", f"key-{number}", [str(number)],
            lambda: services.jobs.trigger(LOCAL, "default", AGENT, "a"), lambda _: Reply(201, {}, "{}"),
        )  # fmt: skip

    await services.jobs.trigger(LOCAL, "default", AGENT, "a")
    assert written == [1]
    await asyncio.gather(*(services.jobs.trigger(LOCAL, "default", AGENT, "ab"[n % 2]) for n in range(20)))
    assert sum(written) == 21
    assert len(written) < 10
    written.clear()
    await asyncio.gather(*map(with_key, range(3)), services.jobs.trigger(LOCAL, "default", AGENT, "a"))
    assert written == [1, 1, 1, 1], "a key belongs to one run"
    again = await asyncio.gather(*map(with_key, range(3)))
    assert written == [1, 1, 1, 1]
    assert len(again) == 3


async def test_the_response_to_a_report_is_the_run_as_it_is_stored(app: Wakeful):
    ids = await _prepare(app.services, "default")
    ends: list[dict[str, Any]] = [
        {"status": "succeeded", "usage": '{"tokens":1}'},
        {"status": "failed", "error": "no"},
    ]
    reports = [
        app.services.runs.complete(LOCAL, "default", run_id, attempt=1, output="x\x00", **ends[number % 2])
        for number, run_id in enumerate(ids.values())
    ]
    runs = await asyncio.gather(*reports)
    for run in runs:
        assert run == await app.store.run(run.id)


@pytest.mark.parametrize("fault", ["cancelled", "failed"])
@pytest.mark.parametrize("kind", ["complete", "heartbeat", "run"])
async def test_an_interrupted_request_of_a_burst_affects_no_other(app: Wakeful, fault: str, kind: str):
    services, number = app.services, 0
    claimed: dict[str, str] = {}
    others: list[asyncio.Task[RunView | None]] = []

    async def prepare() -> None:
        nonlocal number
        claimed.clear()
        for _ in range(3):
            number += 1
            claimed[f"w{number}"] = str((await _claimed(services, "default", f"w{number}"))["id"])

    async def send(name: str) -> RunView | None:
        if kind == "complete":
            return await services.runs.complete(LOCAL, "default", claimed[name], "succeeded", attempt=1)
        if kind == "heartbeat":
            return await services.runs.pull.heartbeat(LOCAL, "default", claimed[name], 1)
        return await services.jobs.trigger(LOCAL, "default", AGENT, name)

    async def send_all() -> None:
        first, *rest = claimed
        others[:] = [asyncio.create_task(send(name)) for name in rest]
        await send(first)

    async def check() -> None:
        results = await asyncio.gather(*others, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):  # the database failed: the caller tries again
                assert fault == "failed", result
                continue
            assert result is not None
            stored = await app.store.run(result.id)
            assert stored is not None, "what was acknowledged is written"
            assert kind != "complete" or stored.state == "succeeded"
        for name, run_id in claimed.items():  # nothing is in use, and nothing was done twice
            run = await app.store.run(run_id)
            assert run is not None
            if run.state == "running":
                await services.runs.complete(LOCAL, "default", run_id, "succeeded", attempt=1)
            runs = await services.runs.list(LOCAL, "default", job_id=run.job_id)
            assert len(runs) <= (2 if kind == "run" else 1), name

    if fault == "cancelled":
        assert await cancel_at_each_await(send_all, check, prepare=prepare) >= 1
    else:
        assert await fail_at_each_call(app.store, send_all, check, prepare=prepare) >= 2
