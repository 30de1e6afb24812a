"""Deliveries despite all faults: no message arrives twice, and each delivery shows what became of it.

A service gets the messages and answers late, badly or not at all. Replicas crash and stall meanwhile, and the
clock is set. The journal of the service says which messages have arrived.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.simulation.faults import CALM, Odds
from tests.simulation.journal import Plain, Rules
from tests.simulation.virtual_loop import run_virtually
from tests.simulation.world import Replica, World
from tests.support.effort import part
from wakeful.deliver.channels import ACCEPTED, ChannelMessage, SendResult
from wakeful.deliver.deliverer import ATTEMPTS, Deliverer
from wakeful.engine.engine import EngineConfig
from wakeful.engine.loop import Loop
from wakeful.launch.port import Launch

SECONDS = 300
#: Longer than the lease of a delivery, all its retries, and the longest pause without a notification.
REST_S = 1_200
_DELIVERIES = """
    SELECT r.output, d.state, d.attempt FROM runs r LEFT JOIN deliveries d ON d.run_id = r.id
    WHERE r.state = 'succeeded'"""


class Service:
    """A messaging service, as the senders of all replicas see it."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.arrived: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def check(self, name: str, to: str | None) -> None:
        """Accept every channel and recipient."""

    def send(self, name: str, to: str | None, message: ChannelMessage) -> SendResult:
        fate = self.rng.random()
        if fate < 0.3:
            self.refused[message.body] += 1
            return SendResult("not_sent", "the service did not accept it")
        self.arrived[message.body] += 1
        if fate < 0.4:
            raise RuntimeError("the plugin failed after the message was sent")
        return ACCEPTED if fate < 0.9 else SendResult("unknown", "no response")


class SlowThread:
    """In place of threads, for which virtual time does not wait: the response takes some time."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    async def run(self, function: Callable[[], object], abandoned: Callable[[], None]) -> object:
        await asyncio.sleep(self._rng.choice((0, 0, 1)))
        result = function()
        await asyncio.sleep(self._rng.choice((0, 0, 0, 0, 1, 1, 20, 400)))
        return result

    def close(self) -> None:
        """Do nothing."""


class DeliveryWorld(World):
    """A world whose replicas send to one service."""

    messenger: Service

    def new_loops(self, replica: Replica) -> Sequence[Loop]:
        store: Any = replica.store
        sender: Any = self.messenger
        deliverer = Deliverer(store, store.clock, sender, lambda state: None)
        deliverer._threads._threads = SlowThread(self.messenger.rng)  # type: ignore[assignment]
        return [deliverer]


async def _run_id(run: Launch) -> str:
    await asyncio.sleep(1)
    return run.id


async def _tell(folder: Path, seed: int) -> None:
    rng = Random(f"deliveries {seed}")
    odds = Odds(
        crash=rng.choice((0, 2, 6)), refused=rng.choice((0, 3)), doubt=rng.choice((0, 3)),
        stall=rng.choice((0, 2)), stall_s=40,
    )  # fmt: skip
    config = EngineConfig(tick_ms=5_000, heartbeat_ms=10_000, lease_ms=40_000, retention_days=36_500)
    async with DeliveryWorld(folder, seed, config=config, odds=odds) as world:
        world.messenger = Service(rng)
        rules = Rules(overlap="allow", max_attempts=3)
        for number in range(3):
            await world.create(
                f"job-{number}", Plain(every_ms=rng.choice((7_000, 20_000))), rules, body=_run_id,
                deliver=True, channel=f"channel-{number % 2}",
            )  # fmt: skip
        set_clock = seed % 2 == 0
        ends_at = world.loop.time() + SECONDS
        while world.loop.time() < ends_at:
            if len(world.alive) < 2:
                await world.start()
            await world.sleep(rng.uniform(1, 60))
            if set_clock and rng.random() < 0.1:
                world.jump(rng.choice((-1_000_000, -60_000, 60_000, 1_000_000)))
            if world.alive and rng.random() < 0.2:
                await rng.choice(world.alive).stop()
        await _come_to_rest(world)
        _check(world)


async def _come_to_rest(world: DeliveryWorld) -> None:
    for life in world.journal.lives.values():
        await world.pause(life)
    for survivor in world.alive:
        survivor.store.odds = CALM
    await world.start(odds=CALM)
    if world.journal.jumped:  # what is due by a clock that was ahead is due some time later
        world.jump(10_000_000)
    await world.sleep(REST_S)


def _check(world: DeliveryWorld) -> None:
    arrived, refused = world.messenger.arrived, world.messenger.refused
    rows = [tuple(row) for row in world.recorder.execute(_DELIVERIES)]
    states = Counter(str(state) for _, state, _ in rows)
    assert states["delivered"] > 3, states
    assert set(states) <= {"delivered", "unknown", "failed"}, states
    for body, state, attempts in rows:
        what = f"{body}: {state}, {attempts} attempts, {arrived[str(body)]} arrived"
        assert arrived[str(body)] <= 1, what
        if state == "delivered":
            assert arrived[str(body)] == 1, what
        if state == "failed":
            assert arrived[str(body)] == 0, what
            assert refused[str(body)] <= ATTEMPTS == attempts, what


@pytest.mark.parametrize("seed", part(range(8)))
def test_no_message_arrives_twice_and_each_delivery_shows_what_became_of_it(seed: int) -> None:
    with TemporaryDirectory() as folder:
        run_virtually(_tell(Path(folder), seed))
