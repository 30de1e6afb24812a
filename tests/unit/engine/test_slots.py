"""Who has used a lane lately."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from wakeful.engine.in_flight import InFlight
from wakeful.engine.slots import LaneUsage


def _run(number: int) -> InFlight:
    return cast(InFlight, SimpleNamespace(lane="cron", owner=("acme", f"agent-{number}")))


def test_the_owners_that_are_remembered_are_bounded_and_the_last_ones_are_among_them() -> None:
    usage = LaneUsage(["cron"])
    for second in range(10):
        for number in range(1_000):
            usage.record_start(_run(1_000 * second + number))
        use = usage.measure([], ["cron"], float(second))["cron"]
    assert len(use.owners) == 1_000
    assert {number // 1_000 for number in map(_number, use.owners)} == {9}
    assert 0 < use.workspaces["acme"] <= 1


def _number(owner: tuple[str, str]) -> int:
    return int(owner[1].removeprefix("agent-"))
