"""What the page of a job shows as charts and lists: days, runs, ticks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from wakeful.dashboard.charts import Bar, DayBar
from wakeful.dashboard.formats import at, duration, local, money, state_word
from wakeful.dashboard.run_items import RunItem, bar_title

DAY_MS: Final = 86_400_000
#: How many runs a chart shows.
SLOTS: Final = 60


class TickItem(NamedTuple):
    """A planned tick."""

    at_ms: int
    #: in the zone of the job
    text: str
    #: what is special about it: the clocks change before it
    mark: str


class Series(NamedTuple):
    """Values of the last runs, oldest first, with a tooltip for each; 0 where there is no run yet."""

    values: list[float]
    titles: list[str]
    #: half of the values are at most `p50`, 95 of 100 at most `p95`; None: there are no values
    p50: float | None
    p95: float | None


class DayItem(NamedTuple):
    """The finished runs of a day (UTC)."""

    at_ms: int
    counts: dict[str, int]
    #: the mean duration of its runs
    mean_ms: int | None

    @property
    def runs(self) -> int:
        """How many runs ended on this day."""
        return sum(self.counts.values())


def day_items(counts: Sequence[tuple[int, str, int, int]], now_ms: int, days: int) -> list[DayItem]:
    """Return the last days, oldest first, from counts of (day, state, runs, duration)."""
    today = now_ms // DAY_MS
    found: list[DayItem] = []
    for day in range(today - days + 1, today + 1):
        of_day = [each for each in counts if each[0] == day]
        by_state = {state: runs for _, state, runs, _ in of_day if runs}
        timed = sum(runs for _, state, runs, _ in of_day if state in ("succeeded", "failed"))
        took = sum(ms for _, state, _, ms in of_day if state in ("succeeded", "failed"))
        found.append(DayItem(day * DAY_MS, by_state, took // timed if timed else None))
    return found


def day_bars(items: Sequence[DayItem], link: Callable[[int, int], str]) -> list[DayBar]:
    """Return days as bars; `link` returns the address of the runs between two instants."""
    return [
        DayBar(
            item.counts,
            f"{local(item.at_ms):%Y-%m-%d}: {_counted(item.counts)}",
            link(item.at_ms, item.at_ms + DAY_MS) if item.counts else None,
        )
        for item in items
    ]


def _counted(counts: Mapping[str, int]) -> str:
    if not counts:
        return "no runs"
    return ", ".join(f"{runs:,} {state_word(state).lower()}" for state, runs in sorted(counts.items()))


def run_bars(items: Sequence[RunItem], link: Callable[[str], str]) -> list[Bar]:
    """Return runs, given newest first, as bars, oldest first; the height is the duration."""
    return [Bar(item.state, _height(item), bar_title(item), link(item.run.id)) for item in reversed(items)]


def _height(item: RunItem) -> float | None:
    return None if item.duration_ms is None else float(item.duration_ms)


def series_of(
    items: Sequence[RunItem], value: Callable[[RunItem], float | None], text: Callable[[float | None], str]
) -> Series:
    """Return a value of each run that has it, oldest first."""
    values, titles = [], []
    for item in reversed(items[:SLOTS]):
        one = value(item)
        if one is not None:
            values.append(float(one))
            titles.append(f"{at(item.run.scheduled_ms)}: {text(one)}, {state_word(item.state).lower()}")
    ordered = sorted(values)
    p50, p95 = (ordered[-(-len(ordered) * part // 100) - 1] if ordered else None for part in (50, 95))
    missing = SLOTS - len(values)
    return Series([0.0] * missing + values, [""] * missing + titles, p50, p95)


def durations(items: Sequence[RunItem]) -> Series:
    """Return how long runs took."""
    return series_of(items, lambda item: item.duration_ms if item.run.finished_ms else None, duration)


def delays(items: Sequence[RunItem]) -> Series:
    """Return how late runs started."""
    return series_of(items, lambda item: item.delay_ms, duration)


def costs(items: Sequence[RunItem]) -> Series:
    """Return what runs cost; runs without a reported cost are left out."""
    return series_of(items, lambda item: item.spent.cost if item.spent and item.spent.cost else None, money)


def tick_items(ticks_ms: Sequence[int], tz: str, now_ms: int) -> list[TickItem]:
    """Return ticks in the zone of the job; the first after a change of its clocks is marked.

    >>> saturday, sunday = 1_774_659_600_000, 1_774_764_000_000
    >>> [tick.mark for tick in tick_items([saturday, sunday], "Europe/Berlin", saturday - 1)]
    ['', 'clocks go forward 1 h before it']
    """
    found = []
    offset = local(now_ms, tz).utcoffset() or timedelta()
    for ms in ticks_ms:
        there = local(ms, tz)
        now = there.utcoffset() or timedelta()
        mark = ""
        if now != offset:
            which = "forward" if now > offset else "back"
            mark = f"clocks go {which} {duration(abs(now - offset) / timedelta(milliseconds=1))} before it"
        found.append(TickItem(ms, f"{there:%a %Y-%m-%d %H:%M:%S %Z}", mark))
        offset = now
    return found
