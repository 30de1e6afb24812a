"""Blocking calls while another thread closes the client, or another call ends its loop."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from wakeful.client.portal import Portal
from wakeful.errors import FailedPrecondition


@pytest.mark.parametrize("before", [True, False], ids=["before it is submitted", "while it waits"])
def test_a_call_ends_when_another_thread_closes_the_client(before: bool, monkeypatch: pytest.MonkeyPatch):
    submit = asyncio.run_coroutine_threadsafe
    may_close = threading.Event()

    async def on_close() -> None:
        await asyncio.to_thread(may_close.wait, 5)

    async def work() -> str:
        await asyncio.sleep(60)
        return "done"

    portal = Portal(on_close)
    closing = threading.Thread(target=portal.close)

    def submit_late(coroutine: Any, loop: Any) -> Any:
        if before:
            closing.start()
            closing.join(0.2)
        future = submit(coroutine, loop)
        if not before:
            closing.start()
        may_close.set()
        return future

    raised: list[BaseException] = []

    def call() -> None:
        try:
            portal.call(work())
        except BaseException as error:
            raised.append(error)

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", submit_late)
    calling = threading.Thread(target=call, daemon=True)
    calling.start()
    calling.join(10)
    assert not calling.is_alive()
    assert [type(error) for error in raised] == [FailedPrecondition]
    closing.join(10)
    assert not closing.is_alive()


def test_a_call_that_exits_ends_the_others_too():
    closed = threading.Event()

    async def on_close() -> None:
        closed.set()

    async def work() -> None:
        await asyncio.sleep(60)

    async def leave() -> None:
        raise SystemExit(3)

    raised: list[BaseException] = []

    def call() -> None:
        try:
            portal.call(work())
        except BaseException as error:
            raised.append(error)

    portal = Portal(on_close)
    waiting = threading.Thread(target=call, daemon=True)
    waiting.start()
    with pytest.raises(SystemExit):
        portal.call(leave(), 10)
    waiting.join(10)
    assert [type(error) for error in raised] == [FailedPrecondition]
    assert closed.wait(10)
    portal.close()
    with pytest.raises(FailedPrecondition):
        portal.call(work())


def test_an_iterator_that_is_collected_on_the_loop_does_not_block_it():
    closed = threading.Event()

    async def count() -> AsyncGenerator[int, None]:
        try:
            for number in range(100):
                yield number
        finally:
            closed.set()

    async def on_close() -> None:
        pass

    async def collect() -> None:
        gc.collect()

    portal = Portal(on_close)
    numbers = portal.each(count())
    assert next(numbers) == 0
    cycle: list[object] = [numbers]
    cycle.append(cycle)
    del numbers, cycle
    portal.call(collect(), 10)
    assert closed.wait(10)
    portal.close()


def test_a_loop_that_ends_by_itself_takes_no_calls_and_is_not_interrupted():
    closing, may_close, closed = threading.Event(), threading.Event(), threading.Event()

    async def on_close() -> None:
        closing.set()
        await asyncio.to_thread(may_close.wait, 10)
        closed.set()

    async def work() -> None:
        await asyncio.sleep(60)

    async def leave() -> None:
        raise SystemExit(3)

    raised: list[BaseException] = []

    def call() -> None:
        try:
            portal.call(work())
        except BaseException as error:
            raised.append(error)

    portal = Portal(on_close)
    with pytest.raises(SystemExit):
        portal.call(leave(), 10)
    assert closing.wait(10)
    late = threading.Thread(target=call, daemon=True)
    late.start()
    late.join(10)
    assert [type(error) for error in raised] == [FailedPrecondition]
    ending = threading.Thread(target=portal.close)
    ending.start()
    ending.join(0.2)
    may_close.set()
    ending.join(10)
    assert closed.is_set()
