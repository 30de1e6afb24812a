"""A claim that is cancelled, fails or loses its executor gives its runs back, and no attempt counts."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.api_client import HOME, ApiClient
from tests.support.interruptions import FaultyPort, cancel_at_each_await, fail_at_each_call
from tests.support.pull_runs import claim_pairs, pulled
from tests.support.waiting import PATIENCE, eventually
from wakeful import Unavailable, Wakeful
from wakeful.api.http.executors import ClaimResponse
from wakeful.service.auth.access import LOCAL
from wakeful.store.rows import Renewal, RunFilter

_numbers = itertools.count(1)
_NAMES = ("plain", "checked")


async def add_jobs(app: Wakeful) -> None:
    """Add jobs whose runs fail with their first counted attempt: one without a precheck, one with."""
    app.function("always")(lambda: True)
    fields: dict[str, Any] = {"schedule": SELDOM, "target": {"kind": "pull"}, "max_attempts": 1}
    await app.jobs.upsert("plain", **fields)
    await app.jobs.upsert("checked", **fields, precheck={"kind": "function", "name": "always"})


@pytest.fixture
async def app(new_app: NewApp) -> AsyncIterator[Wakeful]:
    async with new_app() as app:
        await add_jobs(app)
        yield app


async def start_runs(app: Wakeful) -> None:
    """Add a run of each job, as of a tick: manual runs are not prechecked."""
    for name in _NAMES:
        row = await app.store.job("default", "default", name)
        assert row is not None
        due_ms = app.store.clock.now_ms() - 100_000 + next(_numbers)
        await app.store.add_runs([pulled(row, due_ms, trigger="schedule")])


async def claim_all(app: Wakeful, claim_id: str | None = None, wait_ms: int = 0) -> None:
    claim = app.services.runs.pull.claim
    await claim(LOCAL, "default", "me", limit=10, wait_ms=wait_ms, claim_id=claim_id)


async def complete_all(app: Wakeful) -> None:
    """Claim and complete the runs of both jobs, which nobody may hold."""
    completed: set[str | None] = set()
    while len(completed) < 2:
        for run in await eventually(lambda: app.runs.claim("another", limit=10)):
            assert (await app.runs.complete(run, "succeeded")).state == "succeeded"
            completed.add(run.job)
    assert await app.store.runs(RunFilter("default", states=("pending", "retrying", "running"))) == []
    assert await app.store.runs(RunFilter("default", states=("failed",))) == []


async def test_a_claim_that_is_cancelled_at_any_await_gives_its_runs_back(app: Wakeful):
    claims: list[str] = []

    async def prepare() -> None:
        await start_runs(app)
        claims.append(f"claim-{len(claims)}")

    async def check() -> None:
        await app.services.runs.pull.release(
            LOCAL, "default", "me", claim_id=claims[-1]
        )  # of the last, which ends
        await complete_all(app)

    assert await cancel_at_each_await(lambda: claim_all(app, claims[-1]), check, prepare=prepare) >= 4


async def test_a_claim_that_waits_and_is_cancelled_takes_nothing_afterwards(app: Wakeful):
    task = asyncio.create_task(claim_all(app, wait_ms=60_000))
    for rounds in range(10):
        await asyncio.sleep(0.001 * rounds)
    task.cancel()
    await start_runs(app)
    await complete_all(app)


@pytest.mark.parametrize("fault", ["cancelled", "failed"])
async def test_a_heartbeat_that_is_interrupted_loses_no_run_and_ends_one_that_timed_out(
    app: Wakeful, fault: str
):
    await app.jobs.upsert("brief", schedule=SELDOM, target={"kind": "pull"}, max_attempts=1, timeout="1s")
    held: list[tuple[str, int]] = []

    async def prepare() -> None:
        await start_runs(app)
        row = await app.store.job("default", "default", "brief")
        assert row is not None
        due_ms = app.store.clock.now_ms() - 100_000 + next(_numbers)
        await app.store.add_runs([pulled(row, due_ms, trigger="schedule")])
        claimed = await claim_pairs(app.store, due_ms, "me", "default", None, None, 10)
        held[:] = sorted((run.id, run.attempt) for run, _ in claimed)
        assert len(held) == 3
        renewals = [Renewal(*each, worker="me") for each in held]
        await app.store.renew(app.store.clock.now_ms(), "default", renewals)

    async def beat() -> None:
        await app.services.runs.pull.heartbeats(LOCAL, "default", held, "me")

    async def check() -> None:
        renewed, lost = await app.services.runs.pull.heartbeats(LOCAL, "default", held, "me")
        assert (len(renewed), len(lost)) == (2, 1)
        brief = await app.runs.get(lost[0])
        assert (brief.job, brief.state, brief.reason) == ("brief", "failed", "timeout")
        for run_id in renewed:
            assert (await app.runs.complete(run_id, "succeeded", attempt=1)).state == "succeeded"

    if fault == "cancelled":
        assert await cancel_at_each_await(beat, check, prepare=prepare) >= 2
    else:
        assert await fail_at_each_call(app.store, beat, check, prepare=prepare) >= 4


@pytest.mark.parametrize(("method", "after"), [("claim", True), ("claim", False), ("prepare", True)])
async def test_a_claim_that_fails_gives_its_runs_back(app: Wakeful, method: str, after: bool):
    await start_runs(app)
    pull: Any = app.services.runs.pull
    if method == "prepare":
        pull.claims = FaultyPort(pull.claims).fail(method, after=after)
    else:
        pull._hub._store = FaultyPort(app.store).fail(method, after=after)
    with pytest.raises(Unavailable):
        await claim_all(app)
    await complete_all(app)


async def test_a_claim_after_a_restart_gives_its_runs_back_although_the_database_fails(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("wakeful.service.runs.pull._RETURN_EVERY_S", 0.01)
    app = new_app()
    async with app:
        await add_jobs(app)
    async with app:
        await start_runs(app)
        pull: Any = app.services.runs.pull
        pull.claims = FaultyPort(pull.claims).fail("prepare", after=True)
        pull._store = FaultyPort(app.store).fail("release_claims")
        with pytest.raises(Unavailable):
            await claim_all(app)
        await complete_all(app)


async def test_a_claim_that_was_released_before_it_took_runs_gives_them_back(app: Wakeful):
    waiting = asyncio.create_task(claim_all(app, "a", wait_ms=60_000))
    await eventually(lambda: app.services.runs.pull._executors.last_seen_ms("default", "default", "cron"))
    assert await app.services.runs.pull.release(LOCAL, "default", "me", claim_id="a") == ([], [])
    async with asyncio.timeout(PATIENCE):
        await waiting
    await start_runs(app)
    await claim_all(app, "a")
    await complete_all(app)


async def _send_claim(ask: ApiClient) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a claim over a connection of its own."""
    parts = urlsplit(ask.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    body = json.dumps({"worker": "me", "limit": 50, "waitMs": 60_000}).encode()
    head = (
        f"POST {HOME}/runs/claim HTTP/1.1\r\nhost: {parts.netloc}\r\nauthorization: Bearer {ask.key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
    return reader, writer


@pytest.mark.parametrize("method", ["claim", "record_check", "prepared"])
async def test_a_client_that_disconnects_during_its_claim_gives_its_runs_back(ask: ApiClient, method: str):
    await add_jobs(ask.app)
    await start_runs(ask.app)
    pull = ask.app.services.runs.pull
    reached, gone = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        reached.set()
        await gone.wait()
        for _ in range(20):  # until the server has noticed it
            await asyncio.sleep(0.001)

    port, name = (pull.claims, "prepare") if method == "prepared" else (ask.app.store, method)
    call = getattr(port, name)

    async def paused(*given: Any) -> Any:
        result = await call(*given)
        if not reached.is_set():
            await wait()
        return result

    port.__dict__[name] = paused
    _, writer = await _send_claim(ask)
    async with asyncio.timeout(PATIENCE):
        await reached.wait()
    writer.close()
    gone.set()
    await complete_all(ask.app)


@pytest.mark.parametrize("fault", ["disconnect", "error"])
async def test_a_response_that_cannot_be_written_gives_its_runs_back(fault: str):
    abandoned: list[str] = []
    gone = asyncio.Event()

    async def receive() -> Any:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message.get("body"):
            raise OSError("broken pipe")

    if fault == "disconnect":
        gone.set()
    response = ClaimResponse('{"runs": [{}]}', lambda: abandoned.append("runs"))
    with contextlib.suppress(OSError):
        await response({"type": "http"}, receive, send)
    assert abandoned == ["runs"]
