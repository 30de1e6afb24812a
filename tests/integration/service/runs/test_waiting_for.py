"""A run says what it waits for, on real databases: over HTTP, in Python and on the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from tests.integration.conftest import QUICK, SELDOM, NewApp
from tests.support.api_client import JOBS, ApiClient, served
from tests.support.command_line import Machine, serving
from tests.support.waiting import eventually
from wakeful import Agent, AsyncClient, Function, Run, Signal, Wakeful, on

PULL = {"schedule": SELDOM, "target": {"kind": "pull"}}


async def _reason(ask: ApiClient, run_id: str) -> str | None:
    reason = (await ask("GET", f"/runs/{run_id}")).body["waitingFor"]
    assert reason is None or isinstance(reason, str)
    return reason


async def _run(ask: ApiClient, job: str, **body: object) -> str:
    return str((await ask("POST", f"{JOBS}/{job}/run", body)).body["id"])


async def test_a_pull_run_waits_for_an_executor_then_for_its_result(ask: ApiClient):
    await ask("PUT", f"{JOBS}/hello", PULL)
    run_id = await _run(ask, "hello")
    reason = await _reason(ask, run_id)
    assert reason is not None
    assert reason.startswith("waits for an executor (none has asked for runs of agent default in the last")
    async with AsyncClient(ask.url, ask.key) as client:
        assert (await client.runs.get(run_id)).waiting_for == reason
    assert (await ask.app.runs.get(run_id)).waiting_for == reason
    (listed,) = (await ask("GET", "/runs")).body["runs"]
    assert "waitingFor" not in listed

    (claimed,) = (await ask("POST", "/runs/claim", {"worker": "laptop"})).body["runs"]
    running = await _reason(ask, run_id)
    assert running == f"on executor laptop since {claimed['startedAt']}"
    behind = await _run(ask, "hello", overlapPolicy="queue")
    assert await _reason(ask, behind) == f"behind run {run_id}"
    beside = await _run(ask, "hello")
    assert "one asked for runs of agent default" in str(await _reason(ask, beside))

    await ask("POST", f"/runs/{run_id}/complete", {"attempt": 1, "status": "succeeded"})
    assert await _reason(ask, run_id) is None


async def test_a_run_behind_a_full_lane_or_another_run_says_so(new_app: NewApp):
    app = new_app(config=replace(QUICK, lanes={"cron": 1}))
    go_on = asyncio.Event()

    @app.function()
    async def slow() -> None:
        await go_on.wait()

    async with app, served(app) as ask:
        await _create(app, "slow", overlap_policy="queue")
        await _create(app, "other")
        first = await _run(ask, "slow")
        await eventually(lambda: _is(ask, first, "on worker "))
        assert await _reason(ask, await _run(ask, "other")) == "lane cron is full (1 of 1)"
        queued = await _run(ask, "slow", overlapPolicy="queue")
        assert await _reason(ask, queued) == f"behind run {first} (overlapPolicy queue)"
        go_on.set()


async def test_a_signal_says_what_it_waits_for_in_its_mailbox(new_app: NewApp):
    app, going, go_on = new_app(), asyncio.Event(), asyncio.Event()

    @app.agent
    class Slow(Agent):
        name = "slow"
        max_attempts = 2
        backoff: ClassVar[Mapping[str, Any]] = {"base": "1h", "max": "1h"}

        @on("work")
        async def work(self, signal: Signal) -> None:
            going.set()
            await go_on.wait()
            raise ValueError("no")

    async def reason(run: Run) -> str | None:
        return (await app.runs.get(run.id)).waiting_for

    async with app:
        first = await app.agents.send("slow", "eu", "work")
        second = await app.agents.send("slow", "eu", "work")
        await going.wait()
        assert await reason(second) == f"behind run {first.id} of instance eu"
        go_on.set()
        await eventually(lambda: _retries(app, first.id))
        assert str(await reason(first)).startswith("attempt 2 of 2 at ")
        await app.agents.pause("slow", "eu", note="the disk is full")
        assert await reason(first) == "instance eu is paused: the disk is full"
        assert await reason(second) == "instance eu is paused: the disk is full"


async def _retries(app: Wakeful, run_id: str) -> bool:
    return (await app.runs.get(run_id)).state == "retrying"


async def test_a_run_between_two_attempts_names_the_next_one(new_app: NewApp):
    app = new_app()

    @app.function()
    async def slow() -> None:
        raise RuntimeError("no connection")

    async with app, served(app) as ask:
        await _create(app, "slow", max_attempts=3, backoff={"base": "1h", "max": "1h"})
        run_id = await _run(ask, "slow")
        await eventually(lambda: _is(ask, run_id, "attempt 2 of 3 at "))
        assert str(await _reason(ask, run_id)).endswith(", last error: RuntimeError: no connection")


async def _is(ask: ApiClient, run_id: str, beginning: str) -> bool:
    return str(await _reason(ask, run_id)).startswith(beginning)


async def _create(app: Wakeful, name: str, **fields: object) -> None:
    given = {"schedule": SELDOM, "target": Function("slow"), **fields}
    await app.jobs.create(name, **given)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with serving(tmp_path_factory.mktemp("waiting")) as machine:
        yield machine


def test_the_command_line_says_what_a_run_waits_for(machine: Machine):
    machine.wakeful("add", "idle", "-s", SELDOM, "--agent", "idler", "--json")
    waits = "waits for an executor (none has asked for runs of agent idler in the last hour; the run expires"

    waited = machine.wakeful("run", "idler/idle", "--wait", "--timeout", "0.3")
    assert waited.code == 7
    assert f"pending: {waits}" in waited.out
    assert f"it is pending: {waits}" in waited.err

    run_id = machine.wakeful("runs", "idler/idle", "--json").json["runs"][0]["id"]
    assert waits in machine.wakeful("runs", run_id).out
    assert machine.wakeful("runs", run_id, "--json").json["waitingFor"].startswith(waits)
    assert waits[:70] in machine.wakeful("show", "idler/idle").out
