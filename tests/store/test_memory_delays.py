"""Delays in memory: their signals are sent once, and only if the outcome of their run is written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.factories import NOW, alone
from tests.support.instances import agent_class, done, given_sent, key_of, taken
from wakeful.agents.memory_delays import MemoryDelays
from wakeful.engine.launcher_registry import build_launch
from wakeful.errors import Unavailable
from wakeful.job.job import NO_WORK
from wakeful.job.policy import DEFAULT_POLICY
from wakeful.launch.port import Launch
from wakeful.run.instances import Send
from wakeful.store.instances import Received
from wakeful.store.port import Store
from wakeful.store.rows import RunFilter

DELAY = Send("report", "eu", "report.again", '{"type":"report.again"}', "/tests")


async def _given_handled(store: Store) -> Launch:
    """Return the attempt of a signal that succeeded."""
    await store.put_class(agent_class(), NOW)
    await given_sent(store, "eu")
    (run,) = await taken(store)
    await store.finish("w1", [done(run)], alone)
    return build_launch(run, DEFAULT_POLICY, NO_WORK, None, run)


async def test_a_signal_whose_answer_was_lost_is_not_sent_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = await _given_handled(store)
    send, sent = store.send, asyncio.Event()
    tries = 0

    async def losing_the_first_answer(*args: Any) -> list[Received]:
        nonlocal tries
        tries += 1
        received = await send(*args)
        if tries == 1:
            raise Unavailable("the connection was lost")
        sent.set()
        return received

    monkeypatch.setattr(store, "send", losing_the_first_answer)
    delays = MemoryDelays(store)
    delays.keep(
        launch,
        [
            DELAY,
        ],
    )
    await asyncio.wait_for(sent.wait(), 30)
    await delays.close()
    waiting = await store.runs(RunFilter("default", instance_id=key_of(), states=("pending",)))
    assert (tries, [run.signal for run in waiting]) == (2, ["report.again"])
