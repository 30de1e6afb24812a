from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import cast

import pytest

from tests.unit.launch.launches import launch
from wakeful.errors import AlreadyExists, InvalidArgument, Permanent, ResourceExhausted
from wakeful.launch.function import Function, FunctionLauncher
from wakeful.launch.port import MAX_OUTPUT, Launch
from wakeful.launch.user_code import Threads
from wakeful.run.outcome import AwaitingCallback, Failed, Outcome, Skipped, Succeeded

TARGET = {"kind": "function", "name": "f"}


@pytest.fixture
async def launcher() -> AsyncIterator[FunctionLauncher]:
    launcher = FunctionLauncher(threads=2)
    await launcher.open()
    yield launcher
    await launcher.close()


async def start(launcher: FunctionLauncher, function: Function, payload: str | None = None) -> Outcome:
    launcher.register("f", function, replace=True)
    return await launcher.start(launch(TARGET, payload))


# --- how it is called -------------------------------------------------------------------------------


async def test_a_coroutine_function_runs_in_the_loop_and_gets_the_run(launcher: FunctionLauncher):
    async def function(run: Launch) -> str:
        assert threading.current_thread() is threading.main_thread()
        return f"{run.id} {run.payload}"

    assert await start(launcher, function, "[1]") == Succeeded("r1 [1]")


async def test_a_sync_function_runs_in_a_thread(launcher: FunctionLauncher):
    def function(run: Launch) -> str:
        assert threading.current_thread() is not threading.main_thread()
        return run.id

    assert await start(launcher, function) == Succeeded("r1")


class Greeter:
    def greet(self, run: Launch) -> str:
        return "method"

    async def __call__(self, run: Launch) -> str:
        return "called"


async def nothing() -> str:
    return "no parameter"


async def optional(run: Launch | None = None) -> str:
    return "no run" if run is None else "run"


async def days(days: int = 7) -> int:
    return days


async def anything(*args: object, **kwargs: object) -> int:
    return len(args)


@pytest.mark.parametrize(
    ("function", "output"),
    [
        (nothing, "no parameter"),
        (lambda: "sync, no parameter", "sync, no parameter"),
        (optional, "run"),
        (days, "7"),
        (anything, "1"),
        (Greeter(), "called"),
        (Greeter().greet, "method"),
        (functools.partial(anything, "bound"), "2"),
        (lambda run: nothing(), "no parameter"),
    ],
)
async def test_callables_with_one_or_no_argument_are_accepted(
    launcher: FunctionLauncher, function: Function, output: str
):
    assert await start(launcher, function) == Succeeded(output)


async def test_a_built_in_function_gets_the_run(launcher: FunctionLauncher):
    outcome = await start(launcher, len)
    assert isinstance(outcome, Failed)
    assert outcome.error == "TypeError: object of type 'Launch' has no len()"


async def needs_more(run: Launch, to: str) -> None: ...


async def needs_keyword(run: Launch, *, to: str) -> None: ...


async def yields(run: Launch) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "why"), [(needs_more, "needs to"), (needs_keyword, "needs to"), (yields, "yield")]
)
def test_other_callables_are_refused_at_registration(function: Function, why: str):
    with pytest.raises(InvalidArgument, match=why):
        FunctionLauncher().register("f", function)


def test_a_name_is_registered_once_unless_replaced():
    launcher = FunctionLauncher()
    launcher.register("f", nothing)
    launcher.register("f", nothing)
    with pytest.raises(AlreadyExists, match="'f'"):
        launcher.register("f", optional)
    launcher.register("f", optional, replace=True)
    assert "f" in launcher
    assert "g" not in launcher


async def test_an_unregistered_name_is_a_retryable_failure(launcher: FunctionLauncher):
    launcher.register("f", nothing)
    for target in ({"kind": "function", "name": "g"}, {"kind": "function"}, {"kind": "function", "name": []}):
        outcome = await launcher.start(launch(target))  # type: ignore[arg-type]
        assert isinstance(outcome, Failed)
        assert not outcome.permanent
        assert outcome.reason == "not_registered"
        assert "known: f" in outcome.error


def test_a_target_without_a_name_is_refused():
    FunctionLauncher().check(TARGET)
    for name in (None, "", 7):
        with pytest.raises(InvalidArgument, match="needs a name"):
            FunctionLauncher().check({"kind": "function", "name": name})


def test_an_unknown_field_of_a_target_is_refused():
    with pytest.raises(InvalidArgument, match="no field 'args'; it has name and arguments"):
        FunctionLauncher().check({**TARGET, "args": [1]})


async def test_the_context_of_the_caller_is_seen_in_the_thread(launcher: FunctionLauncher):
    request: ContextVar[str] = ContextVar("request")
    request.set("here")
    assert await start(launcher, lambda: request.get()) == Succeeded("here")


# --- what it returns --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "output"),
    [
        (None, None),
        ("", ""),
        ("grün", "grün"),
        (0, "0"),
        (False, "false"),
        ({"a": [1, "ü"]}, '{"a":[1,"ü"]}'),
        ({1, 2}, "{1, 2}"),
        ("x" * (MAX_OUTPUT + 1), "x" * MAX_OUTPUT),
        ("a\x00b", "a\ufffdb"),
    ],
)
async def test_the_return_value_is_the_output(launcher: FunctionLauncher, value: object, output: str | None):
    async def function() -> object:
        return value

    assert await start(launcher, function) == Succeeded(output)


async def test_a_returned_outcome_is_used_unchanged(launcher: FunctionLauncher):
    for outcome in (
        Succeeded("said", '{"tokens":7}'),
        Failed("no", retry_after_ms=5),
        AwaitingCallback(1000),
    ):

        async def function(outcome: Outcome = outcome) -> Outcome:
            return outcome

        assert await start(launcher, function) == outcome


async def test_a_value_without_json_or_repr_does_not_fail_the_run(launcher: FunctionLauncher):
    class Unprintable:
        def __repr__(self) -> str:
            raise RuntimeError

    circle: list[object] = []
    circle.append(circle)
    assert await start(launcher, lambda: circle) == Succeeded("[[...]]")
    assert await start(launcher, Unprintable) == Succeeded(
        "<Unprintable that cannot be printed: RuntimeError>"
    )


# --- what it raises ---------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("out of ink"), SystemExit(3), StopIteration("stop")])
@pytest.mark.parametrize("threaded", [False, True])
async def test_an_exception_fails_the_attempt_and_is_logged(
    launcher: FunctionLauncher, error: BaseException, threaded: bool, caplog: pytest.LogCaptureFixture
):
    def sync() -> None:
        raise error

    async def loop() -> None:
        raise error

    outcome = await start(launcher, sync if threaded else loop)
    assert isinstance(outcome, Failed)
    assert not outcome.permanent
    assert outcome.error == (
        "RuntimeError: coroutine raised StopIteration"
        if isinstance(error, StopIteration)
        else f"{type(error).__name__}: {error}"
    )
    assert [message.split()[0] for message in caplog.messages] == ["event=function.failed"]
    assert "Traceback" in caplog.text
    assert "raise error" in caplog.text


class NoCustomer(Permanent):
    def __init__(self, number: int) -> None:
        self.number = number


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Permanent("the customer has left"), "the customer has left"),
        (Permanent(cast(str, ValueError("no number 7"))), "Permanent: no number 7"),
        (NoCustomer(7), "NoCustomer: 7"),
    ],
)
async def test_permanent_is_final(launcher: FunctionLauncher, error: Permanent, text: str):
    async def function() -> None:
        raise error

    assert await start(launcher, function) == Failed(text, permanent=True, reason="permanent")
    assert await launcher.precheck(launch(TARGET), TARGET) == Failed(text, permanent=True)


async def test_a_cancelled_attempt_is_cancelled_inside_the_function(launcher: FunctionLauncher):
    entered, left = asyncio.Event(), asyncio.Event()

    async def function() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()

    task = asyncio.create_task(start(launcher, function))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left.is_set()


# --- threads ----------------------------------------------------------------------------------------


async def test_a_function_has_not_failed_if_the_system_starts_no_thread(launcher: FunctionLauncher):
    before = threading.stack_size(1 << 46)  # more than a process may have
    try:
        outcome = await start(launcher, lambda: None)
    finally:
        threading.stack_size(before)
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.counted) == ("not_started", False)
    assert await start(launcher, lambda: None) == Succeeded()


async def test_a_function_that_outlives_its_attempt_is_abandoned_and_gives_its_place_back(
    launcher: FunctionLauncher, caplog: pytest.LogCaptureFixture
):
    entered, release = threading.Semaphore(0), threading.Event()

    def hangs() -> None:
        entered.release()
        release.wait(120)

    try:
        tasks = [asyncio.create_task(start(launcher, hangs)) for _ in range(2)]
        for _ in tasks:
            await asyncio.to_thread(entered.acquire)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
        assert [message.split()[0] for message in caplog.messages] == ["event=function.abandoned"] * 2
        assert await start(launcher, lambda: "both places are free again") == Succeeded(
            "both places are free again"
        )
    finally:
        release.set()


async def test_a_function_that_gets_no_thread_has_not_failed(launcher: FunctionLauncher):
    entered, release = threading.Semaphore(0), threading.Event()

    def hangs() -> None:
        entered.release()
        release.wait(120)

    try:
        for _ in range(8):
            task = asyncio.create_task(start(launcher, hangs))
            await asyncio.to_thread(entered.acquire)
            task.cancel()
            await asyncio.wait([task])
        refused = await start(launcher, lambda: "not called")
        assert isinstance(refused, Failed)
        assert (refused.counted, refused.permanent, refused.reason) == (False, False, "not_started")
        checked = await launcher.precheck(launch(TARGET), TARGET)
        assert isinstance(checked, Failed)
        assert not checked.counted
    finally:
        release.set()


async def test_the_number_of_threads_is_limited(launcher: FunctionLauncher):
    lock, running, most = threading.Lock(), 0, 0
    both = threading.Barrier(2)

    def function() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        both.wait(120)
        with lock:
            running -= 1

    launcher.register("f", function)
    await asyncio.gather(*[launcher.start(launch(TARGET)) for _ in range(10)])
    assert most == 2


async def test_one_that_was_cancelled_before_it_began_is_not_called_abandoned():
    threads, release, entered = Threads(1), threading.Event(), threading.Event()
    told: list[str] = []

    def hangs() -> bool:
        entered.set()
        return release.wait(120)

    first = asyncio.create_task(threads.run(hangs, lambda: told.append("first")))
    second = asyncio.create_task(threads.run(hangs, lambda: told.append("second")))
    await asyncio.to_thread(entered.wait)
    second.cancel()
    await asyncio.wait([second])
    assert told == []
    release.set()
    assert await first is True
    assert threads.abandoned == 0
    threads.close()


async def test_one_that_had_just_ended_when_it_was_cancelled_is_not_called_abandoned():
    class Late(Threads):
        def _end_call(self, *args: object) -> None:
            super()._end_call(*args)  # type: ignore[arg-type]
            task.cancel()

    threads, told = Late(1), list[str]()
    task = asyncio.create_task(threads.run(lambda: None, lambda: told.append("abandoned")))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (told, threads.abandoned) == ([], 0)
    threads.close()


async def test_threads_end_when_the_pool_is_closed():
    def ours() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "wakeful-function"]

    threads, before = Threads(2), ours()
    release = threading.Barrier(2)
    await asyncio.gather(*[threads.run(lambda: release.wait(120), lambda: None) for _ in range(2)])
    mine = [thread for thread in ours() if thread not in before]
    assert len(mine) == 2
    threads.close()
    for thread in mine:
        await asyncio.to_thread(thread.join, 10)
        assert not thread.is_alive()


async def test_the_number_of_abandoned_threads_is_limited():
    threads, release = Threads(1), threading.Event()
    ended = threading.Semaphore(0)

    def hangs() -> None:
        release.wait(120)
        ended.release()

    for _ in range(4):
        task = asyncio.create_task(threads.run(hangs, lambda: None))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    assert threads.abandoned == 4
    with pytest.raises(ResourceExhausted, match="outlived"):
        await threads.run(lambda: None, lambda: None)
    release.set()
    for _ in range(4):
        await asyncio.to_thread(ended.acquire)
    while threads.abandoned:
        await asyncio.sleep(0)
    assert await threads.run(lambda: "again", lambda: None) == "again"
    threads.close()


@pytest.mark.parametrize(
    "outcome",
    [
        Succeeded(5),  # type: ignore[arg-type]
        Succeeded(usage=5),  # type: ignore[arg-type]
        Succeeded(usage="[" + MAX_OUTPUT * "1" + "]"),
        Succeeded(response_code=10**12),
        Succeeded(response_code=True),
        Succeeded(handled=5),  # type: ignore[arg-type]
        Failed(None),  # type: ignore[arg-type]
        Failed("no", reason=5),  # type: ignore[arg-type]
        Failed("no", counted=None),  # type: ignore[arg-type]
        Failed("no", retry_after_ms=10**18),
        AwaitingCallback(10**18),
        AwaitingCallback(None),  # type: ignore[arg-type]
        Skipped(reason=None),  # type: ignore[arg-type]
    ],
)
async def test_an_outcome_that_could_not_be_written_is_a_failure(
    launcher: FunctionLauncher, outcome: Outcome
):
    ended = await start(launcher, lambda: outcome)
    assert isinstance(ended, Failed)
    assert "its outcome is not valid" in ended.error


async def test_the_texts_of_an_outcome_are_truncated_and_its_other_values_stay(launcher: FunctionLauncher):
    usage = '{"tokens":5}'
    outcome = Failed("e" * 2 * MAX_OUTPUT, True, 5, True, "r" * 5_000, usage, 503, False, output="a\x00")
    assert await start(launcher, lambda: outcome) == outcome._replace(
        error="e" * MAX_OUTPUT, reason="r" * 100, output="a\ufffd"
    )
