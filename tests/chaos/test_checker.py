"""Tests of the checker: valid records, and the violation it reports for each defect."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace

import pytest

from tests.chaos.checker import TOGETHER, check
from tests.chaos.jobs import Life, Plain, Rules, Stretch
from tests.chaos.launches import Launched
from tests.chaos.records import Attempt, Records, Run, Step
from wakeful.run.run import tick_key

BEGIN = 1_800_000_000_000


@dataclass
class Story:
    """A job with three ticks, one per second: the first is retried, the second skipped, the third missed."""

    life: Life
    records: Records
    launches: list[Launched]

    def complaints(self) -> list[str]:
        return check([self.life], self.records, self.launches, lead_ms=50, lease_ms=1000).complaints


def story() -> Story:
    life = Life("j", "job", Rules(grace_ms=1000), [Stretch(Plain(every_ms=1000), BEGIN, BEGIN)])
    life.stretches[0].end(BEGIN + 3500)
    runs = [_run(1, "succeeded", 2), _run(2, "skipped", 0), _run(3, "missed", 0, created_ms=BEGIN + 4100)]
    runs[2] = replace(runs[2], reason="downtime", until_ms=runs[2].scheduled_ms)
    steps = [
        _step(1, 1000, "r1", None, "running", 1, "w"),
        _step(2, 1200, "r1", "running", "retrying", 1, None, due_ms=BEGIN + 1500),
        _step(3, 1600, "r1", "retrying", "running", 2, "v"),
        _step(4, 2000, "r2", None, "skipped", 0, None),
        _step(5, 2700, "r1", "running", "succeeded", 2, "v"),
        _step(6, 4100, "r3", None, "missed", 0, None),
    ]
    launches = [_launch(1, "w", 1001, "failed", 1100), _launch(2, "v", 1601, "succeeded", 2600)]
    return Story(life, Records(runs, steps, [Attempt("r1", 1, "w", BEGIN + 1200, "no")], []), launches)


def _run(number: int, state: str, attempt: int, created_ms: int = 0) -> Run:
    tick = BEGIN + number * 1000
    return Run(
        f"r{number}", "j", tick, tick, "schedule", state, None, 1, None, attempt, None, True, None,
        created_ms or tick, tick_key("j", tick), None,
    )  # fmt: skip


def _step(
    seq: int, at_ms: int, run: str, was: str | None, state: str, attempt: int, worker: str | None,
    due_ms: int | None = None,
) -> Step:  # fmt: skip
    return Step(seq, seq, (BEGIN + at_ms) * 1000, run, was, state, attempt, worker, due_ms)


def _launch(attempt: int, worker: str, at_ms: int, end: str, ended_ms: int, tick: int = 1) -> Launched:
    key = tick_key("j", BEGIN + tick * 1000)
    return Launched(f"r{tick}", attempt, key, worker, (BEGIN + at_ms) * 1000, end, (BEGIN + ended_ms) * 1000)


def _doubled(told: Story) -> None:
    told.records.runs.append(replace(told.records.runs[1], id="r9"))
    told.records.steps.append(_step(9, 2000, "r9", None, "skipped", 0, None))


def _lost(told: Story) -> None:
    del told.records.runs[1], told.records.steps[3]


def _without_a_tick(told: Story) -> None:
    tick = BEGIN + 2500
    told.records.runs[1] = replace(told.records.runs[1], scheduled_ms=tick, key=tick_key("j", tick))


def _early(told: Story) -> None:
    told.launches[1].at_us -= 200_000


def _twice(told: Story) -> None:
    told.launches.append(replace(told.launches[1]))


def _other_key(told: Story) -> None:
    told.launches[1].key = "another"


def _by_another(told: Story) -> None:
    told.launches[1].worker = "u"


def _not_launched(told: Story) -> None:
    del told.launches[1]


def _killed_before_the_second_start(told: Story) -> None:
    told.life.rules = replace(told.life.rules, on_lost="fail")
    told.launches[0].end = None


def _changed_afterwards(told: Story) -> None:
    told.records.steps.append(_step(9, 2800, "r1", "succeeded", "failed", 2, "v"))


def _not_over(told: Story) -> None:
    told.records.runs[0] = replace(told.records.runs[0], state="running")
    del told.records.steps[4]


def _vanished(told: Story) -> None:
    told.records.steps.append(_step(9, 2800, "r9", None, "skipped", 0, None))


def _hardly_late(told: Story) -> None:
    told.records.runs[2] = replace(told.records.runs[2], created_ms=BEGIN + 3100)


def _side_by_side(told: Story) -> None:
    told.records.runs[1] = replace(told.records.runs[1], state="cancelled", attempt=1)
    told.records.steps[3] = _step(4, 2000, "r2", None, "running", 1, "v")
    told.records.steps.insert(4, _step(5, 2100, "r2", "running", "cancelled", 1, "v"))
    told.launches.append(_launch(1, "v", 2050, "cut", 2090, tick=2))


def _worker_died(told: Story) -> None:
    """Change the first attempt: its worker died, and its job allows one attempt."""
    told.life.rules = replace(told.life.rules, max_attempts=1)
    told.launches[0].end = None
    told.records.attempts[0] = replace(told.records.attempts[0], error="its worker w died")


def _lost_in_company(told: Story) -> None:
    """Change the first attempt: it was lost with other runs, and its run does not know that."""
    told.launches[0].end = None
    told.records.attempts[0] = replace(told.records.attempts[0], error=f"its worker w {TOGETHER}")


BREAKS: dict[Callable[[Story], None], str] = {
    _doubled: "has another record",
    _lost: "has no record",
    _without_a_tick: "a run without a tick",
    _early: "ms too early",
    _twice: "launched twice",
    _other_key: "with another key",
    _by_another: "who never held it",
    _not_launched: "its attempt 2 was None",
    _killed_before_the_second_start: "not to start twice",
    _changed_afterwards: "was changed though it was succeeded",
    _not_over: "is not over",
    _vanished: "was recorded and vanished",
    _hardly_late: "though only 100 ms late",
    _side_by_side: "ran beside",
    _worker_died: "had 2 attempts of 1",
    _lost_in_company: "has 0 losses, and was lost 1 times",
}


def test_valid_records_have_no_violations() -> None:
    assert story().complaints() == []


def test_a_prefetched_attempt_whose_start_was_not_recorded_does_not_count() -> None:
    told = story()
    _worker_died(told)
    told.records.steps[1] = replace(told.records.steps[1], unstarted=True)
    assert told.complaints() == []


def test_an_attempt_that_was_lost_with_other_runs_does_not_count() -> None:
    told = story()
    _worker_died(told)
    _lost_in_company(told)
    told.records.runs[0] = replace(told.records.runs[0], losses=1)
    assert told.complaints() == []


def test_an_attempt_that_ends_by_itself_clears_the_losses_before_it() -> None:
    told = story()
    _lost_in_company(told)
    run, lost = told.records.runs[0], told.records.attempts[0]
    told.records.attempts.insert(1, replace(lost, attempt=lost.attempt + 1, error="exit status 1"))
    told.records.runs[0] = replace(run, attempt=run.attempt + 1)
    assert not any("losses" in complaint for complaint in told.complaints())
    told.records.runs[0] = replace(told.records.runs[0], losses=1)
    assert any("has 1 losses, and was lost 0 times" in complaint for complaint in told.complaints())


@pytest.mark.parametrize("breaks", BREAKS, ids=lambda breaks: breaks.__name__.strip("_"))
def test_each_violation_is_reported(breaks: Callable[[Story], None]) -> None:
    told = deepcopy(story())
    breaks(told)
    assert any(BREAKS[breaks] in complaint for complaint in told.complaints())
