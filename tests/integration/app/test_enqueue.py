"""Calls of functions that are stored as runs: `app.enqueue`."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import assert_type

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.waiting import PATIENCE, eventually
from wakeful import AlreadyExists, FailedPrecondition, Function, InvalidArgument, Launch, Permanent, Wakeful
from wakeful.testing import Harness


def with_functions(new_app: NewApp) -> Wakeful:
    app = new_app()

    @app.function(max_attempts=1)
    async def add(first: int, second: int = 10, *, run: Launch | None = None) -> int:
        assert run is not None
        assert run.job == "add"
        return first + second

    @app.function()
    def text(value: str, **more: str) -> str:
        return value + "".join(more.values())

    @app.function()
    async def refuse() -> None:
        raise Permanent("no")

    app.test_functions = add, text, refuse  # type: ignore[attr-defined]
    return app


async def test_a_function_may_be_decorated_without_parentheses(new_app: NewApp):
    app = new_app()

    @app.function
    async def double(number: int) -> int:
        return 2 * number

    async with app:
        assert await app.enqueue(double, 4).result(PATIENCE) == 8


@pytest.mark.parametrize("name", ["cron", "every", "at"])
def test_a_decorator_without_its_schedule_is_refused(name: str):
    with pytest.raises(InvalidArgument, match=rf"write when the function runs: @app\.{name}\("):
        getattr(Wakeful("sqlite://"), name)(lambda run: None)


async def test_a_call_is_a_run_with_its_arguments_and_its_result(new_app: NewApp):
    app = with_functions(new_app)
    add, text, refuse = app.test_functions  # type: ignore[attr-defined]
    async with app:
        assert await app.enqueue(add, 1, second=2).result(PATIENCE) == 3
        assert await app.enqueue(add, 1).result(PATIENCE) == 11
        assert await app.enqueue(text, "5", more="6", other="7").result(PATIENCE) == "567"
        run = await app.enqueue(add, first=4)
        assert (run.job, run.payload, run.trigger) == ("add", {"first": 4}, "user")
        with pytest.raises(FailedPrecondition, match="failed: no"):
            await app.enqueue(refuse).result(PATIENCE)
        # Changed by a person, deleted, and called again.
        await app.jobs.delete("add")
        assert await app.enqueue(add, 2).result(PATIENCE) == 12


def test_results_have_the_types_of_the_functions():
    """mypy checks this test: also that wrong arguments are errors, whose comments would else be unused."""
    with Harness(Wakeful("sqlite://")) as harness:
        app = harness.app

        @app.function()
        async def halve(number: int) -> float:
            return number / 2

        @app.function()
        def name(number: int) -> str:
            return str(number)

        async def call() -> None:
            assert_type(await app.enqueue(halve, 1).result(), float)
            assert_type(await app.enqueue(name, 1).result(), str)
            app.enqueue(halve, "1")  # type: ignore[call-overload]

        halved, named = app.sync.enqueue(halve, 1), app.sync.enqueue(name, number=2)
        with pytest.raises(InvalidArgument):
            app.sync.enqueue(halve, other=1)  # type: ignore[call-overload]
        harness.run_due()
        assert assert_type(halved.result(), float) == 0.5
        assert assert_type(named.result(), str) == "2"


async def test_wrong_arguments_are_refused_at_the_call(new_app: NewApp):
    app = with_functions(new_app)
    add = app.test_functions[0]  # type: ignore[attr-defined]
    async with app:
        for args, kwargs, wrong in (
            ([], {}, "first"),
            ([1, 2, 3], {}, "too many"),
            ([1], {"third": 3}, "third"),
            ([1], {"second": object()}, "second"),
            ([1], {"in_": "20 parsecs"}, "parsecs"),
            ([1], {"in_": -1}, "past"),
            ([1], {"in_": float("nan")}, "past"),
            ([1], {"in_": float("inf")}, "9998"),
            ([1], {"in_": "1m", "at": datetime.now(UTC)}, "not both"),
            ([1], {"at": datetime(2030, 1, 1)}, "zone"),
        ):
            with pytest.raises(InvalidArgument, match=wrong):
                app.enqueue(add, *args, **kwargs)

        for window in ("0s", "400d", -1):
            with pytest.raises(InvalidArgument):
                app.enqueue(add, 1, key="once", unique_for=window)
        with pytest.raises(InvalidArgument, match="`key`"):
            app.enqueue(add, 1, unique_for="1h", in_="1m")

        def takes_key(key: str) -> None: ...

        with pytest.raises(InvalidArgument, match="option of `enqueue`"):
            app.enqueue(takes_key, "a")
        assert await app.jobs.list() == []


async def test_a_call_without_await_warns(new_app: NewApp):
    app = with_functions(new_app)
    add = app.test_functions[0]  # type: ignore[attr-defined]
    async with app:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            app.enqueue(add, 1)
        assert "await" in str(caught[0].message)


async def test_a_call_is_enqueued_once_however_often_it_is_awaited(new_app: NewApp):
    app = with_functions(new_app)
    add = app.test_functions[0]  # type: ignore[attr-defined]
    async with app:
        call = app.enqueue(add, 1)
        run = await call
        assert await call.result(PATIENCE) == await call.result(PATIENCE) == 11
        assert [each.id for each in await app.runs.list()] == [run.id]


async def test_a_call_does_not_change_another_job_of_that_name(new_app: NewApp):
    app = with_functions(new_app)
    add = app.test_functions[0]  # type: ignore[attr-defined]
    async with app:
        before = await app.jobs.create("add", schedule=SELDOM, target={"kind": "pull"})
        with pytest.raises(AlreadyExists, match="another name"):
            await app.enqueue(add, 1)
        assert (await app.jobs.get("add")).version == before.version


async def test_a_call_keeps_the_schedule_that_somebody_gave_its_job(new_app: NewApp):
    app = with_functions(new_app)
    add = app.test_functions[0]  # type: ignore[attr-defined]
    async with app:
        await app.jobs.create(
            "add", schedule=SELDOM, target=Function("add", arguments=True), payload={"first": 1}
        )
        assert await app.enqueue(add, 2).result(PATIENCE) == 12
        job = await app.jobs.get("add")
        assert (job.schedule is not None, job.payload, job.max_attempts) == (True, {"first": 1}, 1)
        with pytest.raises(InvalidArgument, match="schedule"):
            await app.jobs.create("echo", target={"kind": "echo", "arguments": True})


async def test_a_key_is_used_once_also_by_calls_at_the_same_time(new_app: NewApp):
    app = with_functions(new_app)
    add = app.test_functions[0]  # type: ignore[attr-defined]
    async with app:
        runs = await asyncio.gather(*(app.enqueue(add, n, key="once") for n in range(8)))
        assert len({run.id for run in runs}) == 1
        other = await app.enqueue(add, 1, key="twice")
        assert other.id != runs[0].id


async def test_a_delayed_call_waits(new_app: NewApp):
    app = with_functions(new_app)
    add = app.test_functions[0]  # type: ignore[attr-defined]
    async with app:
        later = await app.enqueue(add, 1, in_="1h")
        soon = await app.enqueue(add, 1, at=datetime.now(UTC) + timedelta(seconds=0.5))
        assert later.state == soon.state == "pending"
        ended = await app.runs.wait(soon.id)
        assert ended.started_at is not None
        assert ended.started_at >= soon.scheduled_at
        assert (await app.runs.get(later.id)).state == "pending"


async def test_a_function_with_a_schedule_is_enqueued_as_a_run_of_its_job(new_app: NewApp):
    app = new_app()

    @app.cron("0 0 1 1 *")
    async def yearly() -> str:
        return "done"

    async with app:
        assert await app.enqueue(yearly).result(PATIENCE) == "done"
        assert [job.name for job in await app.jobs.list()] == ["yearly"]


async def test_a_call_survives_a_restart(new_app: NewApp):
    app, again = with_functions(new_app), with_functions(new_app)
    async with app:
        run = await app.enqueue(app.test_functions[0], 1, in_="1s")  # type: ignore[attr-defined]
    async with again:
        assert (await again.runs.wait(run.id)).output == "11"


def test_a_sync_program_enqueues_from_threads(new_app: NewApp):
    app = new_app()
    seen: list[int] = []

    @app.function()
    def note(number: int) -> list[int]:
        seen.append(number)
        return [number]

    with app:
        with pytest.raises(FailedPrecondition, match=r"app\.sync\.enqueue"):
            app.enqueue(note, 1)
        threads = [threading.Thread(target=app.sync.enqueue, args=[note, n]) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert app.sync.enqueue(note, 4).result(timeout=PATIENCE) == [4]
        asyncio.run(eventually(lambda: sorted(seen) == [0, 1, 2, 3, 4]))


@pytest.mark.parametrize("window", ["10m", None, "3d"])
async def test_a_key_is_unique_within_its_window(database: str, window: str | None):
    app = Wakeful("sqlite://", secret_key="a key for tests")

    @app.function()
    def note(number: int) -> None: ...

    step = {"10m": "5m", None: "12h", "3d": "36h"}[window]
    async with Harness(app, at="2030-01-01T00:00:00Z", url=database) as harness:

        async def call(number: int, unique_for: str | None = window) -> str:
            return (await app.enqueue(note, number, key="once", unique_for=unique_for)).id

        first = await call(1)
        await harness.advance(step)
        assert await call(2) == first
        assert await call(2, "1s") == first, "the window of the first call counts"
        await app.enqueue(note, 0, key="other", unique_for="1h")  # deletes keys that have expired
        await harness.advance(step)
        assert await call(3) == first
        await harness.advance(0.001)
        seconds = await asyncio.gather(*(call(4) for _ in range(5)))
        assert len({first, *seconds}) == 2
        assert [run.payload for run in await harness.enqueued(note)] == [
            {"number": 1}, {"number": 0}, {"number": 4},
        ]  # fmt: skip


async def test_a_result_that_was_cut_is_an_error(new_app: NewApp):
    app = new_app()

    @app.function()
    def text(length: int) -> str:
        return "ü" * length

    @app.function()
    def numbers(count: int) -> list[int]:
        return [7] * count

    async with app:
        for function, longest in ((text, 8_000), (numbers, 8_000)):
            assert await app.enqueue(function, longest).result(PATIENCE) == function(longest)
            run = await app.enqueue(function, 9_000)
            with pytest.raises(FailedPrecondition, match="16 KB"):
                await app.enqueue(function, 9_000).result(PATIENCE)
            assert (await app.runs.wait(run.id)).state == "succeeded"


async def test_a_cell_of_a_notebook_defines_a_function_anew(new_app: NewApp):
    app = new_app()

    def cell(answer: int, attempts: int) -> Callable[[], int]:
        def work() -> int:
            return answer

        work.__module__ = "__main__"
        return app.function(max_attempts=attempts)(work)

    old = cell(1, 2)
    with pytest.raises(AlreadyExists):
        cell(0, 2)
    async with app:
        assert await app.enqueue(old).result(PATIENCE) == 1
        new = cell(2, 5)
        assert await app.enqueue(new).result(PATIENCE) == 2
        assert (await app.jobs.get("work")).max_attempts == 5
        with pytest.raises(AlreadyExists):
            app.function(name="work")(lambda: 3)
