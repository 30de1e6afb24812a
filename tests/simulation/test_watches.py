"""Watches despite all faults: each state is written with the success that it belongs to, or not at all.

A source changes now and then. The precheck of a job compares it with its state, and wakes the target with
what changed. Replicas crash and stall meanwhile, launches fail, and the job is edited. The revision that each
check sees identifies the state that it sees, so that all writes can be told apart afterwards.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest

from tests.simulation.faults import CALM, Odds
from tests.simulation.journal import Plain, Rules
from tests.simulation.virtual_loop import run_virtually
from tests.simulation.world import Replica, World
from tests.support.effort import part
from wakeful.engine.engine import EngineConfig
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.launch.function import FunctionLauncher
from wakeful.launch.port import Launch
from wakeful.values.json_value import Json

SECONDS = 600
_RUNS = "SELECT id, state, reason, context, precheck FROM runs WHERE job_id = ?"
_JOB = "SELECT precheck_state, precheck_revision FROM jobs WHERE id = ?"
_LIVE = "SELECT 1 FROM runs WHERE state IN ('pending', 'retrying', 'running')"


class Checked(NamedTuple):
    """A check: what it saw and what it answered."""

    run_id: str
    revision: int
    state: Json
    found: int


class WatchWorld(World):
    """A world with a source that changes, and a precheck that watches it."""

    source = 0
    checks: list[Checked]
    launched: list[tuple[str, Json]]
    rng: Random

    def new_targets(self, replica: Replica | None) -> LauncherRegistry:
        targets = super().new_targets(replica)
        functions = targets.launcher("function")
        assert isinstance(functions, FunctionLauncher)
        functions.register("source", self._check)
        return targets

    async def _check(self, run: Launch) -> dict[str, Any]:
        assert run.watch is not None
        await asyncio.sleep(self.rng.choice((0, 0, 0.5, 3)))
        self.checks.append(Checked(run.id, run.watch.revision, run.state, self.source))
        if run.state == self.source:
            return {"run": False}
        return {"run": True, "context": [run.state, self.source], "state": self.source}

    async def body(self, run: Launch) -> None:
        self.launched.append((run.id, run.context))
        await asyncio.sleep(self.rng.choice((0, 1, 5, 15)))
        if self.rng.random() < 0.2:
            raise RuntimeError("not yet")


async def _tell(folder: Path, seed: int) -> None:
    rng = Random(f"watch {seed}")
    odds = Odds(
        crash=rng.choice((0, 2, 6)), refused=rng.choice((0, 3)), doubt=rng.choice((0, 3)),
        stall=rng.choice((0, 2)), stall_s=40,
    )  # fmt: skip
    config = EngineConfig(tick_ms=5_000, heartbeat_ms=5_000, lease_ms=20_000, retention_days=36_500)
    world = WatchWorld(folder, seed, config=config, odds=odds)
    world.checks, world.launched, world.rng = [], [], rng
    async with world:
        rules = Rules(overlap=rng.choice(("skip", "queue", "allow")), max_attempts=rng.choice((1, 3)))
        life = await world.create(
            "watch", Plain(every_ms=8_000), rules, body=world.body,
            precheck={"kind": "function", "name": "source"},
        )  # fmt: skip
        edits = 0
        edited = rng.random() < 0.5
        for second in range(SECONDS):
            await world.sleep(1)
            world.source += rng.random() < 0.04
            if edited and rng.random() < 0.02:
                edits += 1
                await world.edit(life, description=f"edit {second}")
            while len(world.alive) < 2:
                await world.start()
            if rng.random() < 0.005:
                rng.choice(world.alive).crash()
        for survivor in world.alive:
            survivor.store.odds = CALM
        await world.start(odds=CALM)
        await world.sleep(120)
        await world.pause(life)
        for _ in range(300):
            if not world.recorder.execute(_LIVE):
                break
            await world.sleep(5)
        for replica in world.alive:
            await replica.stop()
        runs = world.recorder.execute(_RUNS, life.job_id)
        ((state, revision),) = world.recorder.execute(_JOB, life.job_id)
        assert isinstance(revision, int)
        last = None if state is None else json.loads(str(state))
        _verify(world, runs, last, revision, edits, serial=rules.overlap != "allow")


def _verify(
    world: WatchWorld, runs: list[Any], last: Json, revision: int, edits: int, *, serial: bool
) -> None:
    """Check that the states which the checks saw are those that successes left."""
    states: dict[int, Json] = {0: None}
    for check in world.checks:
        assert states.setdefault(check.revision, check.state) == check.state, (
            f"two states of {check.revision}"
        )
    assert states.setdefault(revision, last) == last
    contexts = dict(world.launched)
    left: dict[int, list[Json]] = {}
    for run_id, state, reason, context, precheck in runs:
        if run_id in contexts:
            assert (state, reason) != ("skipped", "precheck"), "a run that was launched is not skipped"
            assert json.loads(context) == contexts[run_id]
        if state == "succeeded":
            decided = json.loads(precheck)
            assert decided["revision"] < revision, "its state was lost"
            left.setdefault(decided["revision"], []).append(decided["state"])
    for run_id, context in world.launched:
        assert context == contexts[run_id], "every attempt carries the same context"
    if serial:
        twice = {number for number, found in left.items() if len(found) > 1}
        assert not twice, "a run that starts after a success sees its state"
    seen = sorted(states)
    for before, after in zip(seen, seen[1:], strict=False):
        written = {each for number in range(before, after) for each in left.get(number, ())}
        assert states[after] == states[before] or states[after] in written, "a state without a success"
    assert revision <= edits + len(left)
    assert revision >= edits
    assert last == world.source, "the last change was found"
    assert len(left) > 10, "the source changes often, and its changes are found"


@pytest.mark.parametrize("seed", part(range(8)), ids=lambda seed: f"seed_{seed}")
def test_every_state_belongs_to_a_success(seed: int):
    with TemporaryDirectory() as folder:
        run_virtually(_tell(Path(folder), seed))
