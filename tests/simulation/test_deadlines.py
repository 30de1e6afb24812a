"""Attempts whose timeouts, stops and answers fall into the same milliseconds."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from random import Random

import pytest

from tests.simulation.journal import Plain, Rules
from tests.simulation.stories import simulated
from tests.simulation.world import World
from tests.support import effort
from wakeful.engine.engine import EngineConfig
from wakeful.errors import FailedPrecondition
from wakeful.launch.port import Launch
from wakeful.service.auth.access import LOCAL

NOON = Plain(cron="0 12 * * *")
TIMEOUTS_MS = (1_000, 2_000, 2_001, 5_000, 12_000)
#: when attempts answer or are stopped: many together with a timeout, or with the end of its ten seconds
INSTANTS_MS = (999, 1_000, 1_999, 2_000, 2_001, 5_000, 11_000, 11_999, 12_000, 12_001, 60_000)
_STOP_MS = 10_000


@dataclass
class Case:
    """What happens to one attempt, in ms after its start."""

    run_id: str
    began_ms: int
    timeout_ms: int
    answer_ms: int
    #: whether it ignores cancellation
    stubborn: bool
    stop_ms: int | None

    def expected(self) -> set[tuple[str, int]]:
        """Return the possible states, each with its instant: several if two things happen at once."""
        end_ms = min(self.timeout_ms, self.answer_ms)
        ends = {("succeeded", end_ms)} if self.answer_ms == end_ms else set()
        if self.timeout_ms == end_ms:
            # It ends when it lets itself be stopped; one that does not is abandoned.
            end_ms = min(self.answer_ms, self.timeout_ms + _STOP_MS) if self.stubborn else self.timeout_ms
            ends.add(("failed", end_ms))
        if self.stop_ms is not None:
            stopped = ("cancelled", self.stop_ms)
            ends = {each for each in ends if each[1] <= self.stop_ms} | (
                {stopped} if any(each[1] >= self.stop_ms for each in ends) else set()
            )
        return ends


@pytest.mark.parametrize("count", [5, 50, effort.cases(1000, 1000)])
@simulated(config=EngineConfig(lanes={"main": 2000, "cron": 2000}, retention_days=36_500))
async def test_each_attempt_ends_once_and_at_its_own_deadline(world: World, count: int):
    rng, cases = Random(count), dict[str, Case]()
    loop = asyncio.get_running_loop()

    async def body(run: Launch) -> None:
        stop_ms = rng.choice(INSTANTS_MS) if rng.random() < 0.3 else None
        timeout_ms = int((run.job or "").removeprefix("timeout-"))
        case = Case(
            run.id, world.clock.now_ms(), timeout_ms, rng.choice(INSTANTS_MS), rng.random() < 0.3, stop_ms
        )
        cases[run.id] = case
        until = loop.time() + case.answer_ms / 1000
        while loop.time() < until:
            try:
                await asyncio.sleep(until - loop.time())
            except asyncio.CancelledError:
                if not case.stubborn:
                    raise

    rules = Rules(overlap="allow", max_attempts=1)
    jobs = [
        await world.create(f"timeout-{each}", NOON, rules, body=body, timeoutMs=each) for each in TIMEOUTS_MS
    ]
    replica = await world.start()
    for n in range(count):
        await world.trigger(jobs[n % len(jobs)], replica)
    while len(cases) < count:
        await world.sleep(0.001)

    async def stop(case: Case) -> None:
        assert case.stop_ms is not None
        await world.until(case.began_ms + case.stop_ms)
        with contextlib.suppress(FailedPrecondition):  # it has just ended
            await world.run_service(replica).stop(LOCAL, "default", case.run_id)

    await asyncio.gather(*(stop(case) for case in cases.values() if case.stop_ms is not None))
    await world.sleep(100)
    for run in [run for job in jobs for run in world.recorded(job)]:
        case = cases.pop(run.id)
        assert run.finished_ms is not None
        # A timer may be a millisecond late.
        took_ms = run.finished_ms - case.began_ms
        assert (run.state, took_ms) in case.expected() or (run.state, took_ms - 1) in case.expected(), (
            f"{run.state} after {took_ms} ms: {case}"
        )
        assert run.reason == ("timeout" if run.state == "failed" else run.reason)
        assert len([each for each in world.journal.launches if each.run_id == run.id]) == 1
    assert not cases
