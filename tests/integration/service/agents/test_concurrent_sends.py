"""Signals sent concurrently share a commit, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest

from tests.integration.conftest import NewApp
from tests.support.agents import counter
from tests.support.waiting import PATIENCE, eventually
from wakeful import FailedPrecondition, ResourceExhausted, Run, Signal, Wakeful
from wakeful.run.signal_rules import Arrival


async def _paused(app: Wakeful, *instances: str) -> None:
    for each in instances:
        await app.agents.start("counter", each)
        await app.agents.pause("counter", each)


async def test_a_refused_send_does_not_fail_concurrent_ones(new_app: NewApp):
    app = new_app()
    app.agent(counter(mailbox=3))
    async with app:
        await _paused(app, "a", "b", "full")
        await app.agents.start("counter", "stopped")
        await app.agents.stop("counter", "stopped")
        await app.agents.send("counter", "full", [Signal("add")] * 3)
        names = ["a", "full", "b", "stopped", "a", "b"]
        answers = await asyncio.gather(
            *[app.agents.send("counter", name, Signal("add", number)) for number, name in enumerate(names)],
            return_exceptions=True,
        )
        kinds = [type(each) for each in answers]
        assert kinds == [Run, ResourceExhausted, Run, FailedPrecondition, Run, Run]
        assert "instance 'full'" in str(answers[1])
        assert "instance 'stopped'" in str(answers[3])
        waiting = [(await app.agents.instance("counter", name)).waiting for name in ("a", "b", "full")]
        assert waiting == [2, 2, 3]


async def test_concurrent_duplicates_have_one_run(new_app: NewApp):
    app = new_app()
    app.agent(counter())
    async with app:
        await _paused(app, "a")
        signal = Signal("add", id="1", source="/bank")
        runs = await asyncio.gather(*[app.agents.send("counter", "a", signal) for _ in range(5)])
        assert len({run.id for run in runs}) == 1
        assert sorted(run.duplicate for run in runs) == [False, True, True, True, True]


async def test_sends_during_a_transaction_share_the_next_one_in_their_order(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    app = new_app()
    app.agent(counter())
    batches: list[list[str | None]] = []
    all_wait = asyncio.Event()
    real, batchers = app.store.send, app.services.agents.signals._batchers

    async def send(arrivals: Sequence[Arrival], *args: object) -> object:
        batches.append([each.run.instance for each in arrivals])
        await all_wait.wait()
        return await real(arrivals, *args)  # type: ignore[arg-type]

    async with app:
        await _paused(app, "a", "b")
        monkeypatch.setattr(app.store, "send", send)
        sends: list[asyncio.Task[Run]] = []

        def _are_waiting(number: int) -> bool:
            return bool(batches) and len(batchers["default", "counter"]._waiting) == number

        for number, name in enumerate("abab"):
            sends.append(asyncio.ensure_future(app.agents.send("counter", name, Signal("add"))))
            await eventually(partial(_are_waiting, number))
        all_wait.set()
        await asyncio.gather(*sends)
    assert batches == [["a"], ["b", "a", "b"]]


async def test_a_send_whose_caller_is_cancelled_does_not_fail_others(new_app: NewApp):
    app = new_app()
    app.agent(counter())
    async with app:
        await _paused(app, "a")
        tasks = [asyncio.create_task(app.agents.send("counter", "a", Signal("add"))) for _ in range(4)]
        await asyncio.sleep(0)
        tasks[2].cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(each, Run) for each in answers] == [True, True, False, True]


async def test_a_send_that_waits_holds_up_no_other_agent(new_app: NewApp, monkeypatch: pytest.MonkeyPatch):
    app = new_app()
    other = counter()
    other.name = "other"
    app.agent(counter()), app.agent(other)
    real, continued, waits = app.store.send, asyncio.Event(), asyncio.Event()

    async def send(arrivals: Sequence[Arrival], *args: object) -> object:
        if arrivals[0].run.agent == "counter":  # such as one whose instance is locked
            waits.set()
            await continued.wait()
        return await real(arrivals, *args)  # type: ignore[arg-type]

    async with app:
        monkeypatch.setattr(app.store, "send", send)
        waiting = asyncio.create_task(app.agents.send("counter", "a", Signal("add")))
        await waits.wait()
        async with asyncio.timeout(PATIENCE):
            assert (await app.agents.send("other", "a", Signal("add"))).agent == "other"
        continued.set()
        assert (await waiting).agent == "counter"
