"""Generated months of runs, as a scheduler would have recorded them, and what they amount to.

It shares no code with the rules of evolution: a month is played event by event, and the summary counts the
recorded runs one by one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from wakeful.evolution.rules import RunSummary

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
#: Friday, 15 January 2027, 00:00 UTC, and the end of the month of 28 days
START = 1_799_971_200_000
END = START + 28 * DAY


@dataclass(frozen=True)
class Recorded:
    """A run as it is in the database."""

    job: str
    scheduled: int
    fire: int
    state: str
    reason: str | None = None
    started: int | None = None
    finished: int | None = None
    attempt: int = 1
    trigger: str = "schedule"


def overlapping(
    job: str, interval: int, duration: Callable[[int], int], *, overlap: str = "skip", until: int = END
) -> list[Recorded]:
    """Play a job whose run number n takes `duration(n)`, one run at a time."""
    runs: list[Recorded] = []
    busy_until, number = START, 0
    for at in range(START, until, interval):
        if at < busy_until and overlap == "skip":
            runs.append(Recorded(job, at, at, "skipped", "overlap", finished=at))
            continue
        if at < busy_until and overlap == "replace":
            runs[-1] = replace(runs[-1], state="cancelled", reason="replaced", finished=at)
        number += 1
        busy_until = at + duration(number)
        runs.append(Recorded(job, at, at, "succeeded", started=at, finished=busy_until))
    return runs


def timing_out(
    job: str, interval: int, timeout: int, duration: Callable[[int], int], *, attempts: int = 1
) -> list[Recorded]:
    """Play a job that is stopped at its timeout, and tried again so many times."""
    runs = []
    for number, at in enumerate(range(START, END, interval)):
        takes = duration(number)
        if takes <= timeout:
            runs.append(Recorded(job, at, at, "succeeded", started=at, finished=at + takes))
        else:
            last = at + (attempts - 1) * (timeout + 2 * SECOND)
            runs.append(Recorded(job, at, at, "failed", "timeout", last, last + timeout, attempt=attempts))
    return runs


def failing(job: str, interval: int, fails: Callable[[int], bool], *, until: int = END) -> list[Recorded]:
    """Play a job whose run number n fails at once, or succeeds at once."""
    return [
        Recorded(job, at, at, "failed", "permanent", at, at + SECOND)
        if fails(number)
        else Recorded(job, at, at, "succeeded", started=at, finished=at + SECOND)
        for number, at in enumerate(range(START, until, interval))
    ]


def sharing_slots(
    jobs: Sequence[tuple[str, int, int]], slots: int, duration: int, *, until: int = END
) -> list[Recorded]:
    """Play jobs (name, offset, interval) that wait for one of a few slots when they fire together."""
    due = sorted((at, name) for name, offset, every in jobs for at in range(START + offset, until, every))
    free = [START] * slots
    runs = []
    for at, name in due:
        slot = min(range(slots), key=free.__getitem__)
        begins = max(at, free[slot])
        free[slot] = begins + duration
        runs.append(Recorded(name, at, at, "succeeded", started=begins, finished=free[slot]))
    return runs


def varying(typical: int, part: float, seed: int) -> Callable[[int], int]:
    """Return durations around a typical one, up to this part of it shorter or longer."""
    chance = random.Random(seed)
    return lambda _: round(typical * (1 + chance.uniform(-part, part)))


def summarize(month: Iterable[Recorded], job: str, *, since: int = START, peak: int = 5) -> RunSummary:
    """Count the runs of a job by hand."""
    month = list(month)
    own = [run for run in month if run.job == job and run.scheduled >= since]
    own = [run for run in own if run.trigger in ("schedule", "chain") and run.state != "missed"]
    blocked = {("skipped", "overlap"), ("skipped", "queue_full"), ("cancelled", "replaced")}
    blocked.add(("cancelled", "superseded"))
    overlapped = sum((run.state, run.reason) in blocked for run in own)
    ended = [run for run in own if run.state in ("succeeded", "failed")]
    took = sorted(run.finished - run.fire for run in ended if run.finished is not None)
    started = [run for run in own if run.started is not None and run.attempt == 1]
    late = [run.started - run.fire for run in started if run.started is not None]
    crowds: dict[int, int] = {}
    for run in month:
        if run.started is not None and run.attempt == 1 and run.trigger in ("schedule", "chain"):
            crowds[run.fire] = crowds.get(run.fire, 0) + 1
    crowded = [run for run in started if crowds[run.fire] >= peak]
    crowded_late = [run.started - run.fire for run in crowded if run.started is not None]
    return RunSummary(
        first_ms=min((run.scheduled for run in own), default=None),
        last_ms=max((run.scheduled for run in own), default=None),
        ticks=len(own),
        overlapped=overlapped,
        succeeded=sum(run.state == "succeeded" for run in ended),
        failed=sum(run.state == "failed" for run in ended),
        timed_out=sum(run.state == "failed" and run.reason == "timeout" for run in ended),
        duration_ms=_most(took) if overlapped else None,
        started=len(started),
        delay_ms=_mean(late),
        peak_ticks=len(crowded),
        peak_jobs=_mean([crowds[run.fire] for run in crowded]),
        peak_delay_ms=_mean(crowded_late),
    )


def _most(took: list[int]) -> int | None:
    """Return the duration that nine of ten do not exceed."""
    return took[math.ceil(0.9 * len(took)) - 1] if took else None


def _mean(values: Sequence[int]) -> int:
    return round(sum(values) / len(values)) if values else 0
