"""Every way in which user code can end, in every place where it is called: the next run starts promptly."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import JOBS, ApiClient
from tests.support.effort import part
from tests.support.waiting import eventually, over, soon, the_run_of
from wakeful import Agent, Context, EngineConfig, Function, Permanent, Run, SetState, Signal, Wakeful, on
from wakeful.agents.context import InstanceContext
from wakeful.engine import worker
from wakeful.launch import user_code
from wakeful.remote import Worker, WorkerConfig
from wakeful.run.consequences import consequences
from wakeful.run.outcome import AwaitingCallback, Failed, Finished, Succeeded

NARROW = EngineConfig(tick_ms=50, heartbeat_ms=200, lanes={"main": 1, "cron": 1, "team": 1})
#: seconds within which the next run must succeed, also on a busy machine: far less than any timeout
PROMPT_S = 20.0


class Odd(BaseException):
    """Neither an Exception nor one that asyncio knows."""


class Unprintable:
    def __repr__(self) -> str:
        raise Odd("no text")


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise Odd("no text")


def _raises(error: BaseException) -> Callable[[], object]:
    def end() -> object:
        raise error

    return end


def _forks() -> object:
    if os.fork() == 0:
        return "in the child"
    os.wait()
    return "in the parent"


def _circle() -> object:
    circle: list[object] = []
    circle.append(circle)
    return circle


_WAYS: dict[str, Callable[[], object]] = {
    "base exception": _raises(Odd("odd")),
    "exit": lambda: sys.exit(3),
    "interrupt": _raises(KeyboardInterrupt()),
    "generator exit": _raises(GeneratorExit()),
    "stop iteration": _raises(StopIteration()),
    "cancelled by hand": _raises(asyncio.CancelledError("by hand")),
    "unprintable error": _raises(UnprintableError()),
    "unprintable value": Unprintable,
    "set": lambda: {1, 2},
    "huge": lambda: "x" * 20_000_000,
    "circle": _circle,
    "number as output": lambda: Succeeded(5),  # type: ignore[arg-type]
    "text as a delay": lambda: Failed("no", retry_after_ms="soon"),  # type: ignore[arg-type]
    "text as a timeout": lambda: AwaitingCallback("soon"),  # type: ignore[arg-type]
    "endless timeout": lambda: AwaitingCallback(10**18),
    "number as a reason": lambda: Failed("no", permanent=True, reason=5, pause_job=True),  # type: ignore[arg-type]
    "handled by a function": lambda: Succeeded(handled=5),  # type: ignore[arg-type]
    "fork": _forks,
    "blocks": lambda: time.sleep(0.2),
}
#: functions that are called in a thread
SYNCHRONOUS = dict(part(_WAYS.items()))


async def _group_with_odd_child() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_call(_raises(Odd("in a child"))))
        await asyncio.sleep(60)


async def _call(function: Callable[[], object]) -> object:
    await asyncio.sleep(0)
    return function()


async def _cancels_itself(*, waits: bool) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    if waits:
        await asyncio.sleep(60)


async def _leaves_a_cancellation_that_it_took_back() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    task.uncancel()


async def _swallows_a_cancellation_of_its_own() -> str:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        return "went on"
    return "was not cancelled"


#: set at the end of a test, so that code that ignores its cancellation ends with its event loop
_over = False


async def _ignores_cancellation() -> None:
    while not _over:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.1)


#: coroutine functions
ASYNCHRONOUS: dict[str, Callable[[], Awaitable[object]]] = {
    **{name: (lambda each=each: _call(each)) for name, each in SYNCHRONOUS.items()},  # type: ignore[misc]
    "child of a group": _group_with_odd_child,
    "leftover cancellation": lambda: _cancels_itself(waits=False),
    "cancels itself": lambda: _cancels_itself(waits=True),
    "cancellation taken back": _leaves_a_cancellation_that_it_took_back,
    "own cancellation swallowed": _swallows_a_cancellation_of_its_own,
    "ignores cancellation": _ignores_cancellation,
}

ONCE: dict[str, Any] = {"schedule": SELDOM, "max_attempts": 1, "timeout": "2s"}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Abandon code that ignores its cancellation after a moment."""
    monkeypatch.setattr(worker, "_STOP_TIMEOUT_S", 0.2)
    monkeypatch.setattr(user_code, "_STOP_S", 0.2)


class Innocent:
    """An app with lanes of one slot, whose innocent job must always run."""

    def __init__(self, app: Wakeful) -> None:
        self.app = app
        app.function("innocent")(self._innocent)

    async def _innocent(self) -> str:
        await asyncio.sleep(0.001)
        return "done"

    async def check(self, after: str) -> None:
        """Check that a run of the innocent job succeeds at once."""
        began = time.monotonic()
        run = await over(self.app, (await self.app.jobs.run("innocent")).id)
        assert (run.state, run.output, run.attempt) == ("succeeded", "done", 1), after
        assert time.monotonic() - began < PROMPT_S, after

    async def check_after(self, name: str, way: str) -> Run:
        """Run a job to its end, and the innocent one behind it."""
        run = await over(self.app, (await self.app.jobs.run(name)).id)
        await self.check(way)
        return run


@asynccontextmanager
async def _innocent_app(new_app: NewApp) -> AsyncIterator[Innocent]:
    global _over
    innocent, _over = Innocent(new_app(config=NARROW, grace=0.1)), False
    async with asyncio.timeout(50), innocent.app:
        await innocent.app.jobs.create("innocent", target=Function("innocent"), **(ONCE | {"timeout": "1m"}))
        try:
            yield innocent
        finally:
            _over = True


@on_one_store
@pytest.mark.parametrize("ways", [SYNCHRONOUS, ASYNCHRONOUS], ids=["thread", "coroutine"])
async def test_a_function_takes_neither_its_slot_nor_the_next_run_with_it(
    new_app: NewApp, ways: dict[str, Callable[[], object]]
) -> None:
    async with _innocent_app(new_app) as innocent:
        app = innocent.app
        for number, (way, function) in enumerate(ways.items()):
            given = _awaited(function) if ways is ASYNCHRONOUS else function
            app.function(f"odd-{number}")(given)
            await app.jobs.create(f"odd-{number}", target=Function(f"odd-{number}"), **ONCE)
            run = await innocent.check_after(f"odd-{number}", way)
            assert run.state in ("succeeded", "failed"), way
            assert run.reason == ("timeout" if way == "ignores cancellation" else run.reason), way


def _awaited(function: Callable[[], Any]) -> Callable[[], Awaitable[object]]:
    async def call() -> object:
        return await function()

    return call


@on_one_store
@pytest.mark.parametrize("ways", [SYNCHRONOUS, ASYNCHRONOUS], ids=["thread", "coroutine"])
async def test_a_precheck_takes_neither_its_slot_nor_the_next_run_with_it(
    new_app: NewApp, ways: dict[str, Callable[[], object]]
) -> None:
    async with _innocent_app(new_app) as innocent:
        app = innocent.app
        for number, function in enumerate(ways.values()):
            given = _awaited(function) if ways is ASYNCHRONOUS else function
            app.function(f"odd-{number}")(given)
            precheck = {"kind": "function", "name": f"odd-{number}", "timeoutMs": 1000}
            fields: dict[str, Any] = {
                "timeout": "1m",
                "max_attempts": 1,
                "target": Function("innocent"),
                "precheck": precheck,
            }
            await app.jobs.create(
                f"odd-{number}",
                schedule={"kind": "at", "atMs": soon(1_000)},
                delete_after_run=False,
                **fields,
            )
        for number, way in enumerate(ways):
            run = await over(app, (await the_run_of(app, f"odd-{number}")).id)
            assert run.state in ("succeeded", "failed", "skipped"), way
        await innocent.check("all")


@on_one_store
@pytest.mark.parametrize("ways", [SYNCHRONOUS, ASYNCHRONOUS], ids=["thread", "coroutine"])
async def test_a_verification_takes_neither_its_place_nor_the_next_run_with_it(
    new_app: NewApp, ways: dict[str, Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakeful.engine.verifier.MAX_CONCURRENT", 1)
    monkeypatch.setattr("wakeful.engine.verifier.retry_ms", lambda tries, run_id: 1)
    async with _innocent_app(new_app) as innocent:
        app = innocent.app
        app.function("fine")(lambda: True)
        for number, (way, function) in enumerate(ways.items()):
            given = _awaited(function) if ways is ASYNCHRONOUS else function
            app.function(f"odd-{number}")(given)
            verify = {"kind": "function", "name": f"odd-{number}", "timeoutMs": 1000}
            fields = {**ONCE, "timeout": "1m", "target": Function("innocent")}
            await app.jobs.create(f"odd-{number}", **fields, verify=verify)
            run = await innocent.check_after(f"odd-{number}", way)
            assert run.state in ("succeeded", "failed"), way
            verify = {"kind": "function", "name": "fine"}
            await app.jobs.create(f"fine-{number}", **fields, verify=verify)
            run = await innocent.check_after(f"fine-{number}", way)
            assert run.state == "succeeded", way


class Handler(Agent):
    name = "handler"
    max_attempts = 1
    timeout = "2s"
    way = ""
    state = {"count": 0}

    @on("coroutine")
    async def coroutine(self, signal: Signal, ctx: Context) -> object:
        return await ASYNCHRONOUS[Handler.way]()

    @on("thread")
    def thread(self, signal: Signal, ctx: Context) -> object:
        return SYNCHRONOUS[Handler.way]()

    @on("fine")
    async def fine(self, signal: Signal, ctx: Context) -> object:
        return SetState(count=ctx.state["count"] + 1)


@on_one_store
@pytest.mark.parametrize(
    ("kind", "ways"), [("thread", SYNCHRONOUS), ("coroutine", ASYNCHRONOUS)], ids=["thread", "coroutine"]
)
async def test_a_handler_takes_neither_its_slot_nor_the_next_run_with_it(
    new_app: NewApp, kind: str, ways: dict[str, Callable[[], object]]
) -> None:
    async with _innocent_app(new_app) as innocent:
        app = innocent.app
        app.agent(Handler)
        for way in ways:
            Handler.way = way
            run = await over(app, (await app.agents.send("handler", "eu", Signal(kind))).id)
            assert run.state in ("succeeded", "failed"), way
            await innocent.check(way)
            run = await over(app, (await app.agents.send("handler", "eu", Signal("fine"))).id)
            assert run.state == "succeeded", way


class Deaf(Agent):
    name = "deaf"
    timeout = "1s"
    together = asyncio.Barrier(2)

    @on("ignore")
    async def ignore(self, signal: Signal, ctx: Context) -> None:
        if ctx.attempt == 1:
            await _ignores_cancellation()

    @on("together")
    async def meet(self, signal: Signal, ctx: Context) -> None:
        await Deaf.together.wait()


@on_one_store
async def test_an_attempt_that_ends_after_the_next_one_has_begun_gives_its_slot_back(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_STOP_TIMEOUT_S", 60)
    global _over
    _over, Deaf.together = False, asyncio.Barrier(2)
    app = new_app(config=replace(NARROW, lanes={**NARROW.lanes, "team": 2}), grace=0.1)
    app.agent(Deaf)
    async with asyncio.timeout(50), app:
        assert app._engine is not None
        launching = app._engine._worker
        sent = await app.agents.send("deaf", "eu", Signal("ignore"))
        await eventually(lambda: any(run.stopped for run in launching.in_flight.values()))
        # Another replica believes that this one is dead.
        now_ms = app.store.clock.now_ms()
        lost = Finished(sent.id, None, 1, "retrying", now_ms, now_ms, now_ms, reason="lost")
        assert await app.store.finish(app._engine.worker_name, [lost], consequences) == {sent.id}
        assert (await over(app, sent.id)).attempt == 2
        _over = True
        pair = [(await app.agents.send("deaf", name, Signal("together"))).id for name in ("a", "b")]
        assert [(await over(app, each)).state for each in pair] == ["succeeded", "succeeded"]


class Hooked(Agent):
    name = "hooked"
    max_attempts = 1
    timeout = "2s"
    hibernate_after = "1ms"
    way = ""

    async def on_thaw(self, ctx: InstanceContext) -> object:
        return await ASYNCHRONOUS[Hooked.way]()

    async def on_hibernate(self, ctx: InstanceContext) -> object:
        return await ASYNCHRONOUS[Hooked.way]()

    @on("go")
    async def go(self, signal: Signal, ctx: Context) -> None: ...


@on_one_store
async def test_a_hook_of_an_instance_takes_neither_its_slot_nor_the_next_run_with_it(new_app: NewApp) -> None:
    async with _innocent_app(new_app) as innocent:
        app = innocent.app
        app.agent(Hooked)
        for number, way in enumerate(ASYNCHRONOUS):
            Hooked.way = way
            run = await over(app, (await app.agents.send("hooked", f"i{number}", Signal("go"))).id)
            assert run.state in ("succeeded", "failed"), way
            assert run.state == "succeeded" or way == "ignores cancellation", (way, run.error)
            await innocent.check(way)


class OddPermanent(Permanent):
    def __init__(self) -> None:
        """It has no message."""


@on_one_store
@pytest.mark.parametrize("ways", [SYNCHRONOUS, ASYNCHRONOUS], ids=["thread", "coroutine"])
async def test_a_function_of_a_remote_worker_takes_neither_its_slot_nor_the_next_run_with_it(
    ask: ApiClient, ways: dict[str, Callable[[], object]]
) -> None:
    worker = Worker(ask.url, ask.key, concurrency=1, config=WorkerConfig(heartbeat_s=0.2))
    worker.function("innocent")(lambda: "done")
    body = {"schedule": SELDOM, "target": {"kind": "pull"}, "maxAttempts": 1}
    await ask("PUT", f"{JOBS}/innocent", body)
    coroutines = ways is ASYNCHRONOUS
    ways = {**ways, "permanent without a message": _raises(OddPermanent())}
    ways.pop("ignores cancellation", None)  # it keeps its slot until it ends
    async with asyncio.timeout(50):
        serving = asyncio.create_task(worker.serve())
        for number, (way, function) in enumerate(ways.items()):
            awaited = coroutines and way in ASYNCHRONOUS
            worker.function(f"odd-{number}")(_awaited(function) if awaited else function)
            await ask("PUT", f"{JOBS}/odd-{number}", body)
            run = await over(ask.app, (await ask("POST", f"{JOBS}/odd-{number}/run")).body["id"])
            assert run.state in ("succeeded", "failed"), way
            assert "stopped" not in (run.error or ""), way
            run = await over(ask.app, (await ask("POST", f"{JOBS}/innocent/run")).body["id"])
            assert (run.output, run.attempt, worker.running) == ("done", 1, 0), way
            assert not serving.done(), way
        worker.stop()
        await serving


@on_one_store
async def test_as_many_sync_functions_and_handlers_run_at_once_as_lanes_have_slots(new_app: NewApp):
    app = new_app(config=EngineConfig(tick_ms=50, heartbeat_ms=200, lanes={"team": 40, "cron": 40}))
    all_run, all_handle = threading.Barrier(40), threading.Barrier(40)

    @app.function()
    def together() -> None:
        all_run.wait(PROMPT_S)

    @app.agent
    class Together(Agent):
        name = "together"

        @on("meet")
        def meet(self, signal: Signal, ctx: Context) -> None:
            all_handle.wait(PROMPT_S)

    async with app:
        job = await app.jobs.create(
            "together", schedule=SELDOM, target=Function("together"), overlap_policy="allow"
        )
        runs = [(await app.jobs.run(job.name)).id for _ in range(40)]
        for number in range(40):
            runs.append(str((await app.agents.send("together", str(number), Signal("meet"))).id))
        assert {(await over(app, run)).error for run in runs} == {None}
