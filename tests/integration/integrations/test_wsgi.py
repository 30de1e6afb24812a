"""A Flask application in gunicorn: forks, `--preload`, SIGTERM and workers that are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.waiting import PATIENCE
from tests.support.web_programs import free_port, program, request, wait_until
from wakeful import Agent, Context, FailedPrecondition, Signal, Wakeful, on

pytest.importorskip("flask")

_APP = """
import os, time
from flask import Flask, current_app
from wakeful import EngineConfig, Wakeful

web = Flask("shop")
app = Wakeful(
    os.environ["TEST_DATABASE"],
    handler_context=web.app_context,
    connect_on_use=True,
    config=EngineConfig(tick_ms=100, heartbeat_ms=200, lease_ms=2_000),
    grace=20,
)


@app.function()
def sync_name() -> str:
    return f"{current_app.name} {os.getpid()}"


@app.function()
async def async_name() -> str:
    return f"{current_app.name} {os.getpid()}"


@app.function(max_attempts=3)
def slow(seconds: float) -> str:
    time.sleep(seconds)
    return f"{current_app.name} {os.getpid()}"


@app.every("1s")
def tick() -> str:
    return str(os.getpid())


@web.post("/call/<name>")
def call(name):
    arguments = [float(each) for each in name.split(":")[1:]]
    return {"run": app.sync.enqueue(globals()[name.split(":")[0]], *arguments).run.id}


@web.get("/runs/<run_id>")
def show(run_id):
    run = app.sync.runs.get(run_id)
    return {"state": run.state, "output": run.output, "attempt": run.attempt, "pid": os.getpid()}

"""
_HOOKS = """
def post_worker_init(worker):
    from shop import app

    app.start()


def worker_exit(server, worker):
    from shop import app

    app.stop()
"""


def gunicorn(folder: Path, database: str, port: int, *options: str, hooks: bool = True):
    """Serve the application in two workers; with `hooks`, each runs a scheduler."""
    (folder / "shop.py").write_text(_APP)
    (folder / "hooks.py").write_text(_HOOKS if hooks else "")
    arguments = ("-m", "gunicorn", "--config", "hooks.py", "--workers", "2", "--graceful-timeout", "40")
    bound = ("--bind", f"127.0.0.1:{port}", "--no-control-socket", *options, "shop:web")
    return program(folder, *arguments, *bound, port=port, TEST_DATABASE=database)


def finished(url: str, run_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        run = request(f"{url}/runs/{run_id}")
        return run if isinstance(run, dict) and run["state"] in ("succeeded", "failed") else None

    found = wait_until(look)
    assert found is not None
    return found


@pytest.mark.parametrize("options", [(), ("--preload",)], ids=["forked", "preloaded"])
@pytest.mark.slow
def test_each_worker_of_gunicorn_is_a_replica(tmp_path: Path, database: str, options: tuple[str, ...]):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with gunicorn(tmp_path, database, port, *options) as server:
        for name in ("sync_name", "async_name"):
            run = finished(url, request(f"{url}/call/{name}", "")["run"])
            assert (run["state"], run["output"].split()[0]) == ("succeeded", "shop")
        # A worker is killed with its work: the other one, or its successor, does it again.
        wait_until(lambda: len(server.children()) == 2)
        calls = [request(f"{url}/call/slow:1.5", "")["run"] for _ in range(8)]
        wait_until(lambda: all(request(f"{url}/runs/{each}")["state"] == "running" for each in calls))
        killed = server.children()[0]
        os.kill(killed, signal.SIGKILL)
        runs = [finished(url, each) for each in calls]
        assert [run["state"] for run in runs] == ["succeeded"] * 8
        assert any(run["attempt"] > 1 for run in runs) or all(
            int(run["output"].split()[1]) != killed for run in runs
        )
        # Work that is running at SIGTERM ends within the grace period, in the process where it runs.
        late = request(f"{url}/call/slow:2", "")["run"]
        wait_until(lambda: request(f"{url}/runs/{late}")["state"] == "running")
        assert server.stop() == 0
    app = Wakeful(database)
    with app:
        last = app.sync.runs.get(late)
        assert (last.state, last.attempt) == ("succeeded", 1)
        ticks = [each for each in app.sync.runs.list(limit=1000) if each.job == "tick"]
    assert ticks
    assert len({run.scheduled_at for run in ticks}) == len(ticks)
    assert {run.state for run in ticks} <= {
        "succeeded",
        "skipped",
        "missed",
        "running",
        "pending",
        "retrying",
    }


@pytest.mark.slow
def test_workers_without_a_scheduler_enqueue_work_for_others(tmp_path: Path, database: str):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with gunicorn(tmp_path, database, port, "--preload", "--threads", "4", hooks=False):
        calls: list[object] = []
        threads = [  # at once: each process connects once
            threading.Thread(target=lambda: calls.append(request(f"{url}/call/other", ""))) for _ in range(2)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert calls == [500, 500]  # there is no such function
        runs = [request(f"{url}/call/sync_name", "")["run"] for _ in range(6)]
        assert {request(f"{url}/runs/{each}")["state"] for each in runs} == {"pending"}


# --- the arguments of Wakeful ---------------------------------------------------------------------------


def test_a_call_before_the_start_connects_if_that_is_asked_for(new_app: NewApp):
    with pytest.raises(FailedPrecondition, match="has not started"):
        new_app().sync.jobs.list()
    app = new_app(connect_on_use=True)
    errors: list[BaseException] = []

    def call(number: int) -> None:
        try:
            app.sync.jobs.upsert(f"job-{number}", schedule=SELDOM, target={"kind": "pull"})
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=[number]) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not errors
    assert not app.alive
    assert len(app.sync.jobs.list()) == 8
    with pytest.raises(FailedPrecondition, match="already started"):
        app.start()
    app.stop()
    with app:  # after a stop it may start
        assert len(app.sync.jobs.list()) == 8


def test_a_call_during_the_start_waits_for_it(new_app: NewApp):
    app = new_app(connect_on_use=True)
    starting = threading.Event()

    async def pause() -> None:
        starting.set()
        await asyncio.sleep(0.3)

    app.before_start = pause
    thread = threading.Thread(target=app.start)
    thread.start()
    assert starting.wait(PATIENCE)
    assert app.sync.jobs.list() == []
    thread.join()
    assert app.alive
    app.stop()


async def test_a_call_on_any_event_loop_connects(new_app: NewApp):
    app = new_app(connect_on_use=True)
    await app.jobs.upsert("nightly", schedule=SELDOM, target={"kind": "pull"})
    assert [job.name for job in await app.jobs.list()] == ["nightly"]
    await app.stop()
    await app.stop()


_CURRENT: ContextVar[str] = ContextVar("current", default="none")


class _Context:
    """A context manager that only enters with `with`."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def __enter__(self) -> None:
        self._token = _CURRENT.set("inside")
        self._log.append(f"enter {threading.current_thread().name}")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _CURRENT.reset(self._token)
        self._log.append(f"exit {kind.__name__ if kind else ''}")


async def test_functions_and_their_checks_run_in_the_context(new_app: NewApp):
    log: list[str] = []
    app = new_app(handler_context=lambda: _Context(log))

    @app.function()
    def plain() -> str:
        return _CURRENT.get()

    @app.function()
    async def awaited() -> str:
        return _CURRENT.get()

    @app.function(max_attempts=1)
    async def failing() -> None:
        raise ZeroDivisionError

    @app.function()
    async def check() -> bool:
        return _CURRENT.get() == "inside"

    async with app:
        assert await app.enqueue(plain).result() == "inside"
        assert log == ["enter wakeful-function", "exit "]
        log.clear()
        assert await app.enqueue(awaited).result() == "inside"
        assert log == ["enter MainThread", "exit "]
        log.clear()
        with pytest.raises(FailedPrecondition, match="ZeroDivisionError"):
            await app.enqueue(failing).result()
        assert log[-1] == "exit ZeroDivisionError"
        await app.jobs.upsert(
            "checked",
            schedule=SELDOM,
            target={"kind": "function", "name": "plain"},
            precheck={"kind": "function", "name": "check"},
        )
        run = await app.jobs.run("checked")
        assert (await app.runs.wait(run.id)).output == "inside"
    assert _CURRENT.get() == "none"


async def test_handlers_of_agents_run_in_the_context(new_app: NewApp):
    app = new_app(handler_context=lambda: _Context([]))

    class Desk(Agent):
        name = "desk"

        @on("plain")
        def plain(self, signal: Signal, ctx: Context) -> str:
            return _CURRENT.get()

        @on("awaited")
        async def awaited(self, signal: Signal, ctx: Context) -> str:
            return _CURRENT.get()

    app.agent(Desk)
    async with app:
        for kind in ("plain", "awaited"):
            assert await app.agents.ask("desk", "default", kind) == "inside"


async def test_a_context_that_cannot_be_entered_fails_the_attempt(new_app: NewApp):
    class Broken:
        async def __aenter__(self) -> None:
            raise ZeroDivisionError("no context")

        async def __aexit__(self, *_: object) -> None: ...

    app = new_app(handler_context=Broken)

    @app.function(max_attempts=1)
    async def awaited() -> None: ...

    async with app:
        began = time.monotonic()
        with pytest.raises(FailedPrecondition, match="no context"):
            await app.enqueue(awaited).result(timeout=60)
        assert time.monotonic() - began < 60
