"""Checks of agent classes that do something else than they should, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from tests.simulation.virtual_loop import run_virtually
from tests.unit.launch.launches import launch
from wakeful.job.job import Work
from wakeful.launch.function import FunctionLauncher
from wakeful.launch.port import Launch
from wakeful.launch.verify import VerifiedLauncher, VerifyLaunch
from wakeful.run.outcome import Failed, Handled, Outcome, Succeeded
from wakeful.run.verification import MAX_TRIES, Verdict
from wakeful.values.json_value import Json

WORK = Work({"kind": "agent"}, verify={"kind": "function", "name": "is-done"})
HANDLED = Handled("default", "default", "default", 1, 1)


class _Checker(FunctionLauncher):
    """A launcher whose checks have a fault, the first ones or all."""

    def __init__(self, fault: Callable[[], Awaitable[Any]], times: int) -> None:
        super().__init__()
        self._fault, self._left = fault, times
        self.launches = self.checks = 0

    async def start(self, run: Launch) -> Outcome:
        self.launches += 1
        return Succeeded("done", handled=HANDLED)

    async def verify(self, run: VerifyLaunch, verify: Mapping[str, Json]) -> Verdict | Failed:
        self.checks += 1
        self._left -= 1
        if self._left >= 0:
            await self._fault()
        return Verdict(True)


async def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("times", [1, MAX_TRIES])
@pytest.mark.parametrize(
    "fault",
    [
        lambda: _raise(RuntimeError("a bug")),
        lambda: _raise(OSError("reset")),
        lambda: _raise(SystemExit(1)),
        lambda: _raise(asyncio.CancelledError()),
        lambda: asyncio.sleep(31),
        lambda: asyncio.Event().wait(),
    ],
    ids=["error", "reset", "exit", "cancelled", "late", "hangs"],
)
def test_a_fault_of_a_check_is_tried_again_without_a_launch(
    fault: Callable[[], Awaitable[Any]], times: int
) -> None:
    async def story() -> tuple[Outcome, _Checker]:
        checker = _Checker(fault, times)
        outcome = await VerifiedLauncher(checker, checker, WORK).start(launch({"kind": "agent"}))
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return outcome, checker

    outcome, checker = run_virtually(story())
    assert checker.launches == 1
    assert checker.checks == min(times + 1, MAX_TRIES)
    if times < MAX_TRIES:
        assert outcome == Succeeded("done", handled=HANDLED, evidence="")
    else:
        assert isinstance(outcome, Failed)
        assert outcome.reason == "unverified"
