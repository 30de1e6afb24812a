"""The rules of evolution: better settings for a job, from the summary of its runs. Pure and deterministic.

A rule returns a proposal or None. It needs enough runs over enough time, since the job was last changed, so
that a single bad hour proves nothing. Every proposal lowers one figure (`suggestion.FIGURE`), by which
`evolution_evaluation` judges it later.

- `stagger_peak`: many jobs of the agent fire at one instant, and the job starts late then: add jitter.
- `widen_interval`: a run takes longer than the interval, so ticks overlap: a longer interval.
- `raise_timeout`: nearly every run ends at the timeout: twice the timeout.
- `pause_failing`: every run fails, and not at the timeout: pause the job.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from wakeful.evolution.suggestion import FIGURE, RuleName
from wakeful.job.job import Definition
from wakeful.schedule.schedules import At, CronSchedule, Every, Schedule
from wakeful.values.duration import DAY, HOUR, MINUTE, SECOND
from wakeful.values.json_value import Json

#: How far back runs are summarized.
WINDOW_MS: Final = 28 * DAY

#: How many jobs of an agent that fire at one instant are a peak.
PEAK_JOBS: Final = 5
_PEAK_TICKS: Final = 5
_PEAK_SHARE: Final = 0.5
#: How late a job starts at peaks, on average, and how many times as late as at other times.
_PEAK_DELAY_MS: Final = 5 * SECOND
_PEAK_FACTOR: Final = 2.0
_SHORTEST_JITTER_MS: Final = 30 * SECOND
_LONGEST_JITTER_MS: Final = 10 * MINUTE

_OVERLAP_TICKS: Final = 20
_OVERLAP_SHARE: Final = 0.3
_OVERLAP_SPAN_MS: Final = DAY
#: How much longer than nine of ten runs the new interval is.
_INTERVAL_MARGIN: Final = 1.2
_LONGEST_INTERVAL_MS: Final = 7 * DAY

_TIMEOUTS: Final = 10
_TIMEOUT_SHARE: Final = 0.8
_TIMEOUT_SPAN_MS: Final = DAY
_LONGEST_TIMEOUT_MS: Final = DAY

_FAILURES: Final = 5
_FAILURE_SPAN_MS: Final = 3 * DAY

_QUEUES: Final = ("queue", "queue_one")
_ROUND: Final = (
    *(amount * SECOND for amount in (1, 2, 3, 5, 10, 15, 20, 30, 45)),
    *(amount * MINUTE for amount in (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 45)),
    *(amount * HOUR for amount in (1, 2, 3, 4, 6, 8, 12)),
    *(amount * DAY for amount in (1, 2, 3, 4, 5, 6, 7)),
)
#: Cron expressions that divide an hour or a day evenly, by their interval.
_EVEN_CRON: Final[Mapping[int, str]] = {
    MINUTE: "* * * * *",
    **{n * MINUTE: f"*/{n} * * * *" for n in (2, 3, 4, 5, 6, 10, 12, 15, 20, 30)},
    HOUR: "0 * * * *",
    **{n * HOUR: f"0 */{n} * * *" for n in (2, 3, 4, 6, 8, 12)},
    DAY: "0 0 * * *",
}
_STEP: Final = re.compile(r"(\*|\*/([0-9]{1,2})) \* \* \* \*|0 (\*|\*/([0-9]{1,2})) \* \* \*")


class RunSummary(NamedTuple):
    """The runs of a job since it was last changed, within the window. Manual runs and replays do not count.

    A store computes it. Means are rounded to whole milliseconds.
    """

    #: the first and the last tick
    first_ms: int | None = None
    last_ms: int | None = None
    #: ticks that became a run or were skipped
    ticks: int = 0
    #: ticks that were skipped, replaced or dropped because an earlier run had not ended
    overlapped: int = 0
    succeeded: int = 0
    failed: int = 0
    #: failed runs whose last attempt ended at the timeout
    timed_out: int = 0
    #: how long nine of ten runs took, from when they were due to their end; None: no run has ended, or
    #: nothing overlapped
    duration_ms: int | None = None
    #: ticks that started, without those that were retried, and how late they started on average
    started: int = 0
    delay_ms: int = 0
    #: those of `started` that fired together with other jobs, `PEAK_JOBS` or more in all, and the mean number
    peak_ticks: int = 0
    peak_jobs: int = 0
    peak_delay_ms: int = 0

    @property
    def span_ms(self) -> int:
        """The time from the first to the last tick."""
        return 0 if self.first_ms is None or self.last_ms is None else self.last_ms - self.first_ms

    @property
    def ended(self) -> int:
        """The number of runs that succeeded or failed."""
        return self.succeeded + self.failed


NO_RUNS: Final = RunSummary()


class AnalyzedJob(NamedTuple):
    """What the rules need of an enabled job."""

    definition: Definition
    #: the timeout of its attempts, also if the job does not set one; None: they have none
    timeout_ms: int | None


class Proposal(NamedTuple):
    """What a rule suggests: the fields to change, the same fields now, and the figures."""

    rule: RuleName
    figures: Mapping[str, Json]
    change: Mapping[str, Json]
    before: Mapping[str, Json]

    @property
    def figure(self) -> float:
        """The figure that it is meant to lower."""
        value = self.figures[FIGURE[self.rule]]
        assert isinstance(value, int | float)
        return value


def propose(job: AnalyzedJob, runs: RunSummary) -> list[Proposal]:
    """Return what the rules suggest for a job."""
    return [found for rule in _RULES if (found := rule(job, runs)) is not None]


def measure(rule: RuleName, runs: RunSummary, timeout_ms: int | None, span_ms: int) -> float:
    """Return the figure that a rule wants to lower, measured over this time."""
    if rule == "stagger_peak":
        return runs.delay_ms
    if rule == "widen_interval":
        return _share(runs.overlapped, runs.ticks)
    if rule == "raise_timeout":
        return round(runs.timed_out * (timeout_ms or 0) / max(runs.ended, 1))
    return round(runs.failed * DAY / max(span_ms, DAY), 2)


def stagger_peak(job: AnalyzedJob, runs: RunSummary) -> Proposal | None:
    """Suggest a jitter for a job that mostly fires at peaks, and starts late only then.

    A job whose runs wait for each other, or for an executor, is left out: its delay has another reason.
    """
    policy, period_ms = job.definition.policy, runs.span_ms // max(runs.ticks - 1, 1)
    if (
        policy.overlap in _QUEUES
        or job.definition.work.pulled
        or runs.peak_ticks < _PEAK_TICKS
        or runs.peak_ticks < _PEAK_SHARE * runs.started
        or runs.peak_delay_ms < _PEAK_DELAY_MS
        or runs.peak_delay_ms < _PEAK_FACTOR * _other_delay_ms(runs)
    ):
        return None
    wanted_ms = _round_up(max(2 * runs.peak_delay_ms, _SHORTEST_JITTER_MS))
    jitter_ms = min(wanted_ms or _LONGEST_JITTER_MS, _LONGEST_JITTER_MS, _round_down(period_ms // 4))
    if jitter_ms < _SHORTEST_JITTER_MS or jitter_ms <= policy.jitter_ms:
        return None
    figures: dict[str, Json] = {
        "ticks": runs.started,
        "peakTicks": runs.peak_ticks,
        "peakJobs": runs.peak_jobs,
        "peakDelayMs": runs.peak_delay_ms,
        "otherDelayMs": _other_delay_ms(runs),
    }
    return _proposal(
        "stagger_peak", job, runs, figures, {"jitterMs": jitter_ms}, {"jitterMs": policy.jitter_ms}
    )


def widen_interval(job: AnalyzedJob, runs: RunSummary) -> Proposal | None:
    """Suggest the next round interval that is longer than nine of ten runs.

    If no run has ended, because each one is replaced by the next, it is twice the interval.
    """
    timing = job.definition.timing
    interval_ms = None if timing is None else _interval_ms(timing.schedule)
    if (
        timing is None
        or interval_ms is None
        or runs.ticks < _OVERLAP_TICKS
        or runs.span_ms < _OVERLAP_SPAN_MS
        or runs.overlapped < _OVERLAP_SHARE * runs.ticks
        or (runs.duration_ms is not None and runs.duration_ms <= interval_ms)
    ):
        return None
    needed_ms = 2 * interval_ms if runs.duration_ms is None else int(runs.duration_ms * _INTERVAL_MARGIN)
    wider = _wider(timing.schedule, max(needed_ms, interval_ms + 1))
    if wider is None:
        return None
    schedule, new_ms = wider
    figures: dict[str, Json] = {
        "ticks": runs.ticks,
        "overlapped": runs.overlapped,
        "durationMs": runs.duration_ms,
        "intervalMs": interval_ms,
        "newIntervalMs": new_ms,
    }
    return _proposal(
        "widen_interval", job, runs, figures, {"schedule": _json(schedule)},
        {"schedule": _json(timing.schedule)},
    )  # fmt: skip


def raise_timeout(job: AnalyzedJob, runs: RunSummary) -> Proposal | None:
    """Suggest twice the timeout, as a round number, for a job whose runs nearly all end at it."""
    timeout_ms = job.timeout_ms
    if timeout_ms is None or not _times_out(runs) or runs.span_ms < _TIMEOUT_SPAN_MS:
        return None
    raised_ms = min(_round_up(2 * timeout_ms) or _LONGEST_TIMEOUT_MS, _LONGEST_TIMEOUT_MS)
    if raised_ms <= timeout_ms:
        return None
    figures: dict[str, Json] = {
        "runs": runs.ended,
        "timedOut": runs.timed_out,
        "currentTimeoutMs": timeout_ms,
    }
    return _proposal(
        "raise_timeout", job, runs, figures, {"timeoutMs": raised_ms},
        {"timeoutMs": job.definition.policy.timeout_ms},
    )  # fmt: skip


def pause_failing(job: AnalyzedJob, runs: RunSummary) -> Proposal | None:
    """Suggest to pause a job none of whose runs succeeds. For timeouts there is `raise_timeout`."""
    if (
        runs.succeeded > 0
        or runs.failed < _FAILURES
        or runs.span_ms < _FAILURE_SPAN_MS
        or raise_timeout(job, runs) is not None
    ):
        return None
    figures: dict[str, Json] = {"failed": runs.failed, "days": round(runs.span_ms / DAY, 1)}
    return _proposal("pause_failing", job, runs, figures, {"enabled": False}, {"enabled": True})


_RULES: Final[tuple[Callable[[AnalyzedJob, RunSummary], Proposal | None], ...]] = (
    stagger_peak,
    widen_interval,
    raise_timeout,
    pause_failing,
)


def is_recurring(definition: Definition) -> bool:
    """Return whether the rules apply to a job: it fires more than once."""
    return definition.timing is None or not isinstance(definition.timing.schedule, At)


def _proposal(
    rule: RuleName,
    job: AnalyzedJob,
    runs: RunSummary,
    figures: Mapping[str, Json],
    change: Mapping[str, Json],
    before: Mapping[str, Json],
) -> Proposal:
    value = measure(rule, runs, job.timeout_ms, runs.span_ms)
    return Proposal(rule, {**figures, FIGURE[rule]: value}, change, before)


def _times_out(runs: RunSummary) -> bool:
    return runs.timed_out >= _TIMEOUTS and runs.timed_out >= _TIMEOUT_SHARE * runs.ended


def _other_delay_ms(runs: RunSummary) -> int:
    """Return how late the job starts on average when it does not fire at a peak."""
    others = runs.started - runs.peak_ticks
    if others <= 0:
        return 0
    return max(0, round((runs.delay_ms * runs.started - runs.peak_delay_ms * runs.peak_ticks) / others))


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def _interval_ms(schedule: Schedule) -> int | None:
    """Return the interval of an even schedule; None for any other.

    >>> _interval_ms(Every(90_000)), _interval_ms(CronSchedule("*/5 * * * *"))
    (90000, 300000)
    >>> _interval_ms(CronSchedule("0 9 * * 1-5")) is None
    True
    """
    if isinstance(schedule, Every):
        return schedule.every_ms
    step = _STEP.fullmatch(schedule.expr) if isinstance(schedule, CronSchedule) else None
    if step is None:
        return None
    interval = int(step[2] or 1) * MINUTE if step[1] else int(step[4] or 1) * HOUR
    return interval if interval in _EVEN_CRON else None


def _wider(schedule: Schedule, needed_ms: int) -> tuple[Schedule, int] | None:
    """Return the same kind of schedule with the next round interval that is at least this long."""
    if isinstance(schedule, Every):
        rounded = _round_up(needed_ms)
        if rounded is None or rounded > _LONGEST_INTERVAL_MS:
            return None
        return Every(rounded, schedule.tz), rounded
    for interval_ms, expr in _EVEN_CRON.items():
        if interval_ms >= needed_ms:
            return CronSchedule(expr, schedule.tz), interval_ms
    return None


def _round_up(ms: int) -> int | None:
    """Return the next round duration; None if there is none within a week.

    >>> _round_up(61_000), _round_up(60_000)
    (120000, 60000)
    """
    return next((each for each in _ROUND if each >= ms), None)


def _round_down(ms: int) -> int:
    return max((each for each in _ROUND if each <= ms), default=0)


def _json(schedule: Schedule) -> dict[str, Json]:
    written: dict[str, Json] = {}
    for key, value in schedule.to_json().items():
        assert isinstance(value, str | int)
        written[key] = value
    return written
