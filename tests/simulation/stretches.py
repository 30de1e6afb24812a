"""Stretches: consecutive eras of a job with the same ticks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from tests.simulation.journal import Era, Journal, Rules
from tests.simulation.records import Run


@dataclass
class Stretch:
    """Consecutive eras with the same ticks."""

    end_ms: int
    rules: list[Rules]
    #: all ticks that may have a record, including those that may fire or be recorded early
    ticks: list[int]

    @property
    def jitter_ms(self) -> int:
        """The maximum distance of a launch from its tick."""
        return max(rules.jitter_ms for rules in self.rules)

    def must(self) -> list[int]:
        """Return the ticks that were due before its end: each must have a record."""
        return self.ticks[: bisect_right(self.ticks, self.end_ms - self.jitter_ms)]

    def __contains__(self, tick: int) -> bool:
        index = bisect_left(self.ticks, tick)
        return index < len(self.ticks) and self.ticks[index] == tick

    def between(self, first_ms: int, last_ms: int) -> list[int]:
        """Return its ticks from the first to the last, both included."""
        return self.ticks[bisect_left(self.ticks, first_ms) : bisect_right(self.ticks, last_ms)]


def stretches_of(eras: list[Era], journal: Journal) -> Iterator[Stretch]:
    index = 0
    while index < len(eras):
        first = last = eras[index]
        rules = [first.rules]
        while last.goes_on and index + 1 < len(eras):
            index += 1
            last = eras[index]
            rules.append(last.rules)
        index += 1
        if first.schedule is not None:
            until_ms = journal.end_ms if last.until_ms is None else last.until_ms
            early_ms = max(each.jitter_ms for each in rules) + journal.lead_ms
            ticks = first.schedule.ticks(first.anchor_ms, first.from_ms, until_ms + early_ms)
            yield Stretch(until_ms, rules, ticks)


def home_of(run: Run, stretches: list[Stretch]) -> Stretch | None:
    """Return the stretch of a record; around an edit two stretches may contain its tick."""
    homes = [each for each in stretches if run.scheduled_ms in each]
    whole = [each for each in homes if run.until_ms is not None and run.until_ms in each]
    return next(iter(whole + homes), None)
