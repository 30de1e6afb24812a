"""The embedded scheduler in sync programs and other loops, and jobs that are declared after its start."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.waiting import PATIENCE, eventually
from wakeful import (
    FailedPrecondition,
    Function,
    InvalidArgument,
    InvalidSchedule,
    NotFound,
    Wakeful,
    WakefulError,
)
from wakeful.service.auth.access import LOCAL


async def started(app: Wakeful) -> None:
    """Start the app on the running loop."""
    await app.start()


# --- sync programs -----------------------------------------------------------------------------------


def test_a_sync_program_creates_and_runs_a_job(new_app: NewApp):
    app = new_app()
    done = threading.Event()

    @app.function()
    def note() -> str:
        # A sync function runs in a thread, and may use the scheduler too.
        assert app.sync.jobs.get("note").name == "note"
        done.set()
        return "noted"

    with app:
        app.sync.jobs.upsert("note", schedule=SELDOM, target=Function("note"))
        run = app.sync.jobs.run("note")
        ended = app.sync.runs.wait(run.id, timeout=PATIENCE)
        assert (ended.state, ended.output) == ("succeeded", "noted")
        assert [each.name for each in app.sync.jobs.list()] == ["note"]
    assert done.is_set()
    assert not app.alive


def test_a_function_that_ends_in_the_grace_period_may_use_the_scheduler(new_app: NewApp):
    app = new_app()
    begun = threading.Event()
    seen: list[str] = []

    @app.function()
    def late() -> None:
        begun.set()
        while app.alive:  # until the stop has begun
            threading.Event().wait(0.01)
        seen.append(app.sync.jobs.get("late").name)

    app.start()
    app.sync.enqueue(late)
    assert begun.wait(PATIENCE)
    app.stop(grace=PATIENCE)
    assert seen == ["late"]


def test_start_and_stop_may_be_called_again_and_from_any_thread(new_app: NewApp):
    app = new_app()
    app.start()
    with pytest.raises(FailedPrecondition, match="already started"):
        app.start()
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            app.sync.jobs.upsert(f"job-{number}", schedule=SELDOM, target={"kind": "pull"})
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not errors
    app.stop()
    app.stop()
    with pytest.raises(FailedPrecondition, match="has not started"):
        app.sync.jobs.list()
    with app:
        assert len(app.sync.jobs.list()) == 8


def test_a_start_that_fails_leaves_no_thread():
    app = Wakeful("sqlite:////no/such/directory/wakeful.db")
    with pytest.raises(Exception, match="directory"):
        app.start()
    assert "wakeful" not in {thread.name for thread in threading.enumerate()}
    app.stop()


async def test_start_and_stop_are_awaited_in_async_programs(new_app: NewApp):
    app = new_app()
    await app.start()
    assert app.home.loop is asyncio.get_running_loop()
    assert await app.jobs.list() == []
    await app.stop()
    await app.stop()
    assert not app.alive


def test_a_scheduler_stops_from_a_thread_or_between_two_runs_of_its_loop(new_app: NewApp):
    with asyncio.Runner() as runner:
        app = new_app()
        runner.run(started(app))
        runner.run(app.stop())
        assert not app.alive
        runner.run(app.stop())

        async def stop_elsewhere() -> bool:
            await app.start()
            await asyncio.to_thread(app.stop)
            return app.alive

        assert not runner.run(stop_elsewhere())


@on_one_store
async def test_a_call_of_another_loop_during_the_start_is_refused(new_app: NewApp):
    app, paused, go_on = new_app(), asyncio.Event(), asyncio.Event()

    async def pause() -> None:
        assert await app.jobs.list() == []  # the loop that starts it may use it
        paused.set()
        await go_on.wait()

    app.before_start = pause
    starting = asyncio.ensure_future(app.start())
    await paused.wait()
    with pytest.raises(FailedPrecondition, match="has not started"):
        await asyncio.to_thread(asyncio.run, app.jobs.list())
    go_on.set()
    await starting
    assert await asyncio.to_thread(asyncio.run, app.jobs.list()) == []
    await app.stop()


@on_one_store
async def test_of_two_starts_at_once_one_is_refused_and_the_other_stops_completely(new_app: NewApp):
    app = new_app()
    first, second = await asyncio.gather(app.start(), app.start(), return_exceptions=True)
    assert first is None
    assert isinstance(second, FailedPrecondition)
    await app.stop()
    assert not [task.get_name() for task in asyncio.all_tasks() if "wakeful" in task.get_name()]
    await app.start()
    await app.stop()


@on_one_store
async def test_a_program_whose_scheduler_another_task_stops_ends_after_the_grace_period(new_app: NewApp):
    app, begun, ended = new_app(grace=PATIENCE), asyncio.Event(), asyncio.Event()

    @app.function()
    async def work() -> None:
        begun.set()
        await asyncio.sleep(0.2)
        ended.set()

    async def stop() -> None:
        await begun.wait()
        await app.stop()

    async with app:
        await app.enqueue(work)
        stopping = asyncio.create_task(stop())
        await app.serve_forever()
    assert ended.is_set()
    await stopping


@on_one_store
def test_calls_of_threads_and_other_loops_end_while_the_app_starts_and_stops(new_app: NewApp):
    app, over, problems, declared = new_app(grace=0.2), threading.Event(), list[BaseException](), count()

    @app.function()
    def work(number: int) -> int:
        return number

    async def call_on_another_loop() -> None:
        await app.jobs.list()
        await app.enqueue(work, 1)

    calls: list[Callable[[], object]] = [
        app.sync.jobs.list,
        lambda: app.sync.enqueue(work, 1).result(PATIENCE),
        lambda: app.sync.runs.claim("me", wait_ms=100),
        lambda: asyncio.run(call_on_another_loop()),
        lambda: next(declared) < 20 and app.every("1h", name=f"job-{next(declared)}")(lambda: None),
    ]

    def call(seed: int) -> None:
        random = Random(seed)
        while not over.is_set():
            try:
                random.choice(calls)()
            except (WakefulError, TimeoutError):
                over.wait(0.001)
            except BaseException as error:
                problems.append(error)

    def start_and_stop() -> None:
        for number in range(8):
            if number % 2:
                asyncio.run(_run_briefly(app))
            else:
                app.start()
                over.wait(0.1)
                app.stop()
        over.set()

    threads = [threading.Thread(target=call, args=[seed], daemon=True) for seed in range(4)]
    threads.append(threading.Thread(target=start_and_stop, daemon=True))
    for thread in threads:
        thread.start()
    assert over.wait(2 * PATIENCE)
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert not problems


@on_one_store
def test_threads_may_start_and_stop_it_at_the_same_time(new_app: NewApp):
    app, problems = new_app(grace=0.2), list[BaseException]()

    def repeat(call: Callable[[], object]) -> None:
        for _ in range(40):
            try:
                call()
            except WakefulError:  # another thread has started it
                time.sleep(0.001)
            except BaseException as error:
                problems.append(error)

    calls = [app.start, app.start, app.stop, app.stop, lambda: asyncio.run(_run_briefly(app, 0.0))]
    threads = [threading.Thread(target=repeat, args=[call], daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert not problems
    app.stop()
    assert not app.alive


@on_one_store
async def test_a_fork_stops_nothing(new_app: NewApp):
    async with new_app() as app:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads and forks
            child = os.fork()
        if not child:
            try:
                app.stop()
                os._exit(7)
            finally:
                os._exit(1)
        try:
            status = await eventually(lambda: os.waitpid(child, os.WNOHANG)[1])
        except AssertionError:
            os.kill(child, signal.SIGKILL)
            raise
        assert os.waitstatus_to_exitcode(status) == 7
        assert app.alive
        assert await app.jobs.list() == []


async def _run_briefly(app: Wakeful, seconds: float = 0.1) -> None:
    async with app:
        await asyncio.sleep(seconds)


@on_one_store
def test_an_app_that_starts_again_on_another_loop_has_all_its_services(new_app: NewApp):
    app, kept = new_app(), list[object]()

    async def use(job: str, agent: str | None) -> None:
        async with app:
            keys, uses, live = app.services.auth.keys, app.services.auth.open_uses, app.services.live
            row, text = await keys.create(LOCAL, "default", {"name": "robot", "role": "member"})
            ended = asyncio.Event()
            kept.append(await uses.add(text, lambda: keys.authenticate(text), ended.set))
            events = await app.services.events.subscribe(LOCAL, "default")
            summaries = await asyncio.gather(*(live.subscribe(LOCAL, "default", 250) for _ in range(3)))
            async with asyncio.timeout(PATIENCE):
                assert all(await asyncio.gather(*(each.next() for each in summaries)))
                assert await app.services.admin.peaks.get(LOCAL, "default", agent)
                await keys.revoke(LOCAL, "default", row.id)
                await ended.wait()
                await app.jobs.create(job, schedule=SELDOM, target={"kind": "pull"})
                assert await events.next(PATIENCE)
                assert all(await asyncio.gather(*(each.next() for each in summaries)))

    asyncio.run(use("first", "default"))
    asyncio.run(use("second", None))


def test_a_call_to_a_loop_that_is_not_running_is_refused(new_app: NewApp):
    with asyncio.Runner() as runner:
        app = new_app()
        runner.run(started(app))
        with pytest.raises(FailedPrecondition, match="not running"):
            app.sync.jobs.list()
        runner.run(app.stop())


async def test_sync_methods_refuse_to_block_the_loop_of_the_scheduler(new_app: NewApp):
    async with new_app() as app:
        with pytest.raises(FailedPrecondition, match="await app"):
            app.sync.jobs.list()
        assert await asyncio.to_thread(app.sync.jobs.list) == []


def test_async_methods_without_a_loop_name_the_sync_form(new_app: NewApp):
    with new_app() as app:
        for call in (app.jobs.list, app.runs.list, app.agents.list, app.incidents.list, app.suggestions.list):
            with pytest.raises(FailedPrecondition, match=r"app\.sync\.\w+\.list"):
                call()


async def test_async_methods_work_in_another_loop(new_app: NewApp):
    async with new_app() as app:

        async def work() -> list[str]:
            await app.jobs.create("other", schedule=SELDOM, target={"kind": "pull"})
            with pytest.raises(NotFound):
                await app.jobs.get("missing")
            return [each.name for each in await app.jobs.list()]

        assert await asyncio.to_thread(asyncio.run, work()) == ["other"]


def test_a_program_that_ends_without_stop_ends_at_once(tmp_path: Path):
    program = f"""
import threading
from wakeful import Wakeful
app = Wakeful("sqlite:///{tmp_path}/wakeful.db")
ran = threading.Event()
@app.every("1s")
def pulse():
    ran.set()
app.start()
assert ran.wait({PATIENCE})
print("ran")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=3 * PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert "Traceback" not in done.stderr


# --- jobs declared after the start ---------------------------------------------------------------------


async def test_a_job_declared_after_the_start_is_saved_before_the_next_call(new_app: NewApp):
    async with new_app() as app:
        calls: list[int] = []

        @app.every("1s")
        async def late() -> None:
            calls.append(1)

        assert (await app.jobs.get("late")).name == "late"
        await eventually(lambda: bool(calls))


@on_one_store
async def test_jobs_declared_while_the_app_starts_are_saved(new_app: NewApp, monkeypatch: pytest.MonkeyPatch):
    app = new_app()
    app.every("1h", name="job-0")(lambda: None)
    upsert, names = app.services.jobs.upsert, iter(["job-1", "job-2"])

    async def declare_another(*args: Any, **options: Any) -> Any:
        for name in names:
            app.every("1h", name=name)(lambda: None)
            break
        return await upsert(*args, **options)

    monkeypatch.setattr(app.services.jobs, "upsert", declare_another)
    async with app:
        assert [each.name for each in await app.jobs.list()] == ["job-0", "job-1", "job-2"]


def test_a_job_declared_in_another_thread_is_saved_when_the_decorator_returns(new_app: NewApp):
    with new_app() as app:

        @app.cron("0 0 1 1 *")
        def late() -> None: ...

        assert [each.name for each in app.sync.jobs.list()] == ["late"]
        with pytest.raises(InvalidArgument, match="job 'wrong'"):
            app.cron("0 0 * * *", name="wrong", payload={"a": "x" * 10_000_000})(late)
        app.cron("0 0 * * *", name="wrong")(late)  # the failed declaration left nothing behind


async def test_wrong_declarations_after_the_start_raise(new_app: NewApp):
    async with new_app() as app:
        with pytest.raises(InvalidSchedule, match="job 'wrong'"):
            app.cron("0 0 32 * *", name="wrong")(lambda: None)
        with pytest.raises(InvalidArgument, match="besides the run"):
            app.every("1h", name="wrong")(lambda a, b, c: None)
        app.every("1h", name="wrong")(lambda: None)
        assert [each.name for each in await app.jobs.list()] == ["wrong"]


async def test_a_declared_job_that_cannot_be_saved_fails_the_next_call(new_app: NewApp):
    async with new_app() as app:
        await app.jobs.create("first", after="second", target={"kind": "pull"})
        app.cron("0 0 * * *", name="second", after="first")(lambda: None)
        with pytest.raises(InvalidArgument, match="job 'second'"):
            await app.jobs.list()
        assert [each.name for each in await app.jobs.list()] == ["first"]


async def test_a_notebook_cell_may_define_its_job_again(new_app: NewApp):
    async with new_app() as app:
        for text in ("one", "two"):
            names = {"app": app, "__name__": "__main__"}
            exec(f"@app.cron('0 0 * * *')\ndef cell():\n    return '{text}'", names)
        run = await app.jobs.run("cell")
        assert (await app.runs.wait(run.id)).output == "two"
