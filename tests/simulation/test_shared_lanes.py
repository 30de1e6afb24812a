"""Workspaces and agents that want more of a lane than it has: the real engine with random work."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from pathlib import Path
from random import Random

import pytest

from tests.simulation.virtual_loop import run_virtually
from tests.simulation.world import Replica, World
from tests.support.effort import cases
from tests.support.factories import asked, asleep
from wakeful.engine.engine import EngineConfig
from wakeful.launch.port import Launch
from wakeful.store.accounts import WorkspaceRow
from wakeful.store.lane_shares import Owner

#: In seconds: how long an attempt takes at most, and how long the slots of a workspace are averaged. It is
#: judged when it has wanted more than it has for so long before that every slot was free once.
LONGEST = 2.0
AVERAGED = 5.0
SETTLED = LONGEST + 1.0


class Lane:
    """The runs of a lane: what waits, what runs, and since when an owner wants more than it has."""

    def __init__(self, world: World, replica: Replica) -> None:
        self._world = world
        self._store = replica._inner
        self._jobs = 0
        self.waiting: Counter[Owner] = Counter()
        self.running: Counter[Owner] = Counter()
        self.since: dict[Owner, float] = {}
        #: when an owner that waits had its last run started, or began to wait
        self.served: dict[Owner, float] = {}
        #: what ran at the last moments, as often as `remember` is called
        self.moments: deque[Counter[str]] = deque(maxlen=round(AVERAGED / 0.05))

    def remember(self) -> None:
        """Count the slots of each workspace."""
        slots: Counter[str] = Counter()
        for (workspace, _), count in self.running.items():
            slots[workspace] += count
        self.moments.append(slots)

    async def weigh(self, weights: dict[str, float]) -> None:
        """Create workspaces with these weights."""
        for name, weight in weights.items():
            await self._store.put_workspace(WorkspaceRow(name, None, "", 0, 0, lane_weight=weight))

    async def add(self, owner: Owner, durations: list[float]) -> None:
        """Add due runs that take these times."""
        self._jobs += 1
        workspace, agent = owner
        fields = {
            "workspace": workspace,
            "agent": agent,
            "policy": "{}",
            "timing": None,
            "next_ms": None,
            "wake_ms": None,
        }
        row = asleep(f"job-{self._jobs}", work='{"target":{"kind":"function","name":"body"}}', **fields)
        left = list(durations)

        async def body(run: Launch) -> None:
            self._begin(owner)
            try:
                await asyncio.sleep(left.pop())
            finally:
                self.running[owner] -= 1

        self._world.bodies[row.name] = body
        now = self._world.loop.time()
        self.since.setdefault(owner, now)
        self.served.setdefault(owner, now)
        self.waiting[owner] += len(durations)
        await self._store.create_jobs([row])
        at_ms = self._world.clock.now_ms()
        await self._store.add_runs(
            [asked(row, at_ms, serial=False, requires="function:body") for _ in durations]
        )

    def _begin(self, owner: Owner) -> None:
        self.running[owner] += 1
        self.waiting[owner] -= 1
        self.served[owner] = self._world.loop.time()
        if not self.waiting[owner]:
            del self.waiting[owner], self.since[owner], self.served[owner]


async def _work(lane: Lane, random: Random, owners: list[Owner]) -> None:
    """Let one owner flood the lane, and the others add work at random times."""
    await lane.add(owners[0], [random.uniform(0.1, LONGEST) for _ in range(150)])
    for _ in range(30):
        await asyncio.sleep(random.expovariate(4))
        count = random.choice([1, 1, 3, 20])
        await lane.add(random.choice(owners[1:]), [random.uniform(0.02, LONGEST) for _ in range(count)])


@pytest.mark.parametrize("seed", range(cases(3, 40)))
def test_slots_are_shared_and_none_is_idle(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    size = random.randint(2, 8)
    weights = {name: random.choice([0.5, 1, 1, 2, 4]) for name in "abcd"[: random.randint(2, 4)]}
    owners = [(name, f"agent-{number}") for name in weights for number in range(random.randint(1, 3))]
    random.shuffle(owners)

    async def story() -> None:
        config = EngineConfig(lanes={"cron": size}, retention_days=36_500)
        async with World(tmp_path, seed, config=config) as world:
            lane = Lane(world, await world.start())
            await lane.weigh(weights)
            work = asyncio.create_task(_work(lane, random, owners))
            while lane.waiting or not work.done():
                await asyncio.sleep(0.05)
                lane.remember()
                _check(lane, world.loop.time(), size, weights)
            await work

    run_virtually(story())


def _check(lane: Lane, now: float, size: int, weights: dict[str, float]) -> None:
    used = lane.running.total()
    assert used <= size
    long = [owner for owner, since in lane.since.items() if now - since > 0.1]
    assert used == size or not long, f"{size - used} slots are idle, and {long} wait"
    for workspace in weights:
        since = [since for owner, since in lane.since.items() if owner[0] == workspace]
        if since and now - min(since) > SETTLED + AVERAGED:
            share = size * weights[workspace] / sum(weights.values())
            has = sum(slots[workspace] for slots in lane.moments) / len(lane.moments)
            assert has >= share - 1, f"{workspace} has {has} slots of {share}, and wants more"
    for owner, served in lane.served.items():
        assert now - served < 20 * LONGEST, f"{owner} had no slot for {now - served} s"
