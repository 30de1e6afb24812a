"""Time to compute one tick: Wakeful, cronsim and croniter, from the same run.

    python -m benchmarks.cron           a table
    python -m benchmarks.cron --json    the same numbers as JSON

**Cold** is `Cron.uncached_next`, without cached ticks: each tick is computed from the previous one. cronsim
and croniter do the same with one iterator each. Parsing and the creation of the iterator are not measured.
State between two ticks is kept: the position of an iterator, and the piece of constant offset in Wakeful.

All compute the same number of ticks of the same expressions, starting a day before a clock change. They take
turns within a round, and the best of several rounds counts. CPU time is measured: wall time on a busy machine
would favour the faster library, since only long measurements are interrupted.

The ticks are compared first: those of cronsim must be equal, and for croniter the number of differences is
printed.

**Warm** is `Cron.shared(expr, tz).next(after)`, the call of the engine, including the look-up of the shared
expression: once through cached ticks, and once for the same tick repeatedly.

**The floor** is the least cost in Python: the conversion of an aware datetime to a UTC second, and of another
UTC second to an aware datetime.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from importlib.metadata import version
from itertools import repeat
from statistics import geometric_mean
from time import thread_time_ns
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim

from wakeful.cron import Cron

ZONE = "Europe/Berlin"
START = datetime(2025, 3, 29, 12, 0, tzinfo=ZoneInfo(ZONE))
ROUNDS = 9

# Common expressions, and how many ticks are computed: a day of minutes, a year of days, decades of leap days.
EXPRESSIONS = {
    "* * * * *": 1440,
    "*/5 * * * *": 1440,
    "*/15 9-17 * * MON-FRI": 720,
    "0 * * * *": 720,
    "0,30 8-18/2 * * *": 720,
    "0 9 * * MON-FRI": 365,
    "30 2 * * *": 365,
    "15 10 1,15 * FRI": 120,
    "0 0 * * SUN": 120,
    "0 0 1 * *": 60,
    "0 0 L * *": 60,
    "0 9 * * MON#2": 60,
    "0 12 1 1 *": 20,
    "0 0 29 2 *": 10,
}

Walk = Callable[[int], list[datetime]]


@dataclass(frozen=True)
class Row:
    """One expression: microseconds per tick."""

    expression: str
    ticks: int
    ours: float
    cronsim: float
    croniter: float
    warm_walk: float
    warm_same: float
    floor: float
    croniter_differs: int


@dataclass(frozen=True)
class Ratios:
    """How many times as long another library takes."""

    total_time: float
    geometric_mean: float
    worst: float


@dataclass(frozen=True)
class Report:
    """All numbers of one run. The overall ones are the total time divided by all ticks."""

    zone: str
    versions: dict[str, str]
    rows: list[Row]
    overall: dict[str, float]
    cronsim: Ratios
    croniter: Ratios


def wakeful_walk(expression: str) -> Walk:
    """Compute ticks with Wakeful, without the cache."""
    ask = Cron(expression, ZONE).uncached_next

    def walk(ticks: int) -> list[datetime]:
        found: list[datetime] = []
        tick: datetime | None = START
        for _ in range(ticks):
            assert tick is not None
            tick = ask(tick)
            assert tick is not None
            found.append(tick)
        return found

    return walk


def cronsim_walk(expression: str) -> Walk:
    """Compute ticks with one cronsim iterator."""
    iterator: Iterator[datetime] = CronSim(expression, START)

    def walk(ticks: int) -> list[datetime]:
        return [next(iterator) for _ in range(ticks)]

    return walk


def croniter_walk(expression: str) -> Walk:
    """Compute ticks with one croniter iterator."""
    iterator = croniter(expression, START)

    def walk(ticks: int) -> list[datetime]:
        return [iterator.get_next(datetime) for _ in range(ticks)]

    return walk


def warm_walk(expression: str) -> Walk:
    """Read cached ticks of the shared expression."""

    def walk(ticks: int) -> list[datetime]:
        found: list[datetime] = []
        tick: datetime | None = START
        for _ in range(ticks):
            assert tick is not None
            tick = Cron.shared(expression, ZONE).next(tick)
            assert tick is not None
            found.append(tick)
        return found

    walk(EXPRESSIONS[expression])
    return walk


def warm_same(expression: str) -> Walk:
    """Read the same cached tick of the shared expression, as many jobs do."""

    def walk(ticks: int) -> list[datetime]:
        return [answer for _ in repeat(None, ticks) if (answer := Cron.shared(expression, ZONE).next(START))]

    walk(1)
    return walk


def border_walk(_: str) -> Walk:
    """Measure the floor: the conversion between datetimes and seconds."""
    zone = ZoneInfo(ZONE)

    def walk(ticks: int) -> list[datetime]:
        found: list[datetime] = []
        tick = START
        for _ in range(ticks):
            tick = datetime.fromtimestamp(math.floor(tick.timestamp()) + 86400, zone)
            found.append(tick)
        return found

    return walk


WALKS: dict[str, Callable[[str], Walk]] = {
    "ours": wakeful_walk,
    "cronsim": cronsim_walk,
    "croniter": croniter_walk,
    "warm_walk": warm_walk,
    "warm_same": warm_same,
    "floor": border_walk,
}


def best_times(expression: str, ticks: int) -> dict[str, float]:
    """Return the microseconds per tick of each walk: the best of several rounds."""
    best = dict.fromkeys(WALKS, math.inf)
    for _ in range(ROUNDS):
        for name, make in WALKS.items():
            walk = make(expression)
            start = thread_time_ns()
            walk(ticks)
            best[name] = min(best[name], (thread_time_ns() - start) / 1000 / ticks)
    return best


def differences(ours: list[datetime], theirs: list[datetime]) -> int:
    """Return how many ticks differ."""
    return sum(one.timestamp() != other.timestamp() for one, other in zip(ours, theirs, strict=True))


def measure(expression: str, ticks: int) -> Row:
    """Compare the ticks, then measure."""
    ours = wakeful_walk(expression)(ticks)
    if differences(ours, cronsim_walk(expression)(ticks)):
        sys.exit(f"{expression!r}: cronsim answers differently, so the times would not be of the same work")
    differing = differences(ours, croniter_walk(expression)(ticks))
    return Row(expression, ticks, **best_times(expression, ticks), croniter_differs=differing)


def overall(rows: list[Row], time: Callable[[Row], float]) -> float:
    """Return the microseconds per tick over all walks."""
    return sum(time(row) * row.ticks for row in rows) / sum(row.ticks for row in rows)


def ratios(rows: list[Row], peer: Callable[[Row], float]) -> Ratios:
    """Return the ratios to another library: in total, as geometric mean, and the smallest."""
    each = [peer(row) / row.ours for row in rows]
    total = overall(rows, peer) / overall(rows, lambda row: row.ours)
    return Ratios(total_time=total, geometric_mean=geometric_mean(each), worst=min(each))


def run() -> Report:
    """Measure everything once, with the garbage collector off."""
    gc.disable()
    rows = [measure(expression, ticks) for expression, ticks in EXPRESSIONS.items()]
    gc.enable()
    return Report(
        zone=ZONE,
        versions={"python": platform.python_version()}
        | {name: version(name) for name in ("cronsim", "croniter")},
        rows=rows,
        overall={
            "ours": overall(rows, lambda row: row.ours),
            "cronsim": overall(rows, lambda row: row.cronsim),
            "croniter": overall(rows, lambda row: row.croniter),
            "warm_walk": overall(rows, lambda row: row.warm_walk),
            "warm_same": overall(rows, lambda row: row.warm_same),
            "floor": overall(rows, lambda row: row.floor),
        },
        cronsim=ratios(rows, lambda row: row.cronsim),
        croniter=ratios(rows, lambda row: row.croniter),
    )


def show(report: Report) -> None:
    """Print a table."""
    named = ", ".join(f"{name} {number}" for name, number in report.versions.items())
    print(f"µs of CPU time per tick in {report.zone}, best of {ROUNDS} rounds ({named})\n")
    print(
        f"{'':<24}{'ticks':>6}{'ours':>8}{'cronsim':>10}{'':>8}{'croniter':>10}{'':>8}{'warm':>8}{'same':>8}"
    )
    for row in report.rows:
        print(
            f"{row.expression:<24}{row.ticks:>6}{row.ours:>8.2f}"
            f"{row.cronsim:>10.1f}{row.cronsim / row.ours:>7.1f}x"
            f"{row.croniter:>10.1f}{row.croniter / row.ours:>7.1f}x"
            f"{row.warm_walk:>8.2f}{row.warm_same:>8.2f}"
        )
    mean = report.overall
    print(
        f"{'total':<24}{sum(row.ticks for row in report.rows):>6}{mean['ours']:>8.2f}"
        f"{mean['cronsim']:>10.1f}{report.cronsim.total_time:>7.1f}x"
        f"{mean['croniter']:>10.1f}{report.croniter.total_time:>7.1f}x"
        f"{mean['warm_walk']:>8.2f}{mean['warm_same']:>8.2f}\n"
    )
    for name, against in (("cronsim", report.cronsim), ("croniter", report.croniter)):
        print(
            f"{name + ' takes':<16}{against.total_time:>7.1f}x in total time, "
            f"{against.geometric_mean:.1f}x as geometric mean, {against.worst:.1f}x at least"
        )
    cold, warm = mean["ours"] / mean["floor"], mean["warm_walk"] / mean["floor"]
    print(f"{'floor':<16}{mean['floor']:>7.2f} µs; cold takes {cold:.1f} times that, warm {warm:.1f} times")
    differing = sum(row.croniter_differs for row in report.rows)
    print(f"{'croniter differs':<16}{differing:>7} times; cronsim never")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print the numbers for a program")
    wanted = parser.parse_args()
    report = run()
    if wanted.json:
        print(json.dumps(asdict(report), indent=2))
    else:
        show(report)


if __name__ == "__main__":
    main()
