"""The journal of a simulation: what actually happened, for the checker.

Nothing here comes from the engine. The world records changes of jobs, launches and their ends, and when
replicas were awake; the checker compares the database with it. `…_ms` is the time of the database clock, `at`
the time of the loop, which never jumps, and `seq` counts the changes of run rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

DAY_MS = 86_400_000
MINUTE = 60_000


@dataclass(frozen=True)
class Plain:
    """A simple schedule whose ticks are computed here: an interval, a simple cron, or a single time."""

    every_ms: int | None = None
    cron: str | None = None
    at_ms: int | None = None

    def document(self) -> object:
        """Return the schedule of the job document."""
        if self.every_ms is not None:
            return {"kind": "every", "everyMs": self.every_ms}
        if self.cron is not None:
            return {"kind": "cron", "expr": self.cron, "tz": "UTC"}
        return {"kind": "at", "atMs": self.at_ms}

    def ticks(self, anchor_ms: int, after_ms: int, until_ms: int) -> list[int]:
        """Return every tick later than `after_ms`, up to and including `until_ms`."""
        if self.at_ms is not None:
            return [self.at_ms] if after_ms < self.at_ms <= until_ms else []
        if self.every_ms is not None:
            first = anchor_ms + max(1, (after_ms - anchor_ms) // self.every_ms + 1) * self.every_ms
            return list(range(first, until_ms + 1, self.every_ms))
        assert self.cron is not None
        minutes, hours, day, month, weekdays = self.cron.split()
        assert (day, month) == ("*", "*"), "the checker steps through days of the week only"
        found = []
        for midnight in range(after_ms // DAY_MS * DAY_MS, until_ms + 1, DAY_MS):
            weekday = datetime.fromtimestamp(midnight / 1000, UTC).isoweekday() % 7
            if weekday in _numbers(weekdays, 7):
                found += [
                    midnight + hour * 60 * MINUTE + minute * MINUTE
                    for hour in _numbers(hours, 24)
                    for minute in _numbers(minutes, 60)
                ]
        return [tick for tick in found if after_ms < tick <= until_ms]


def _numbers(text: str, size: int) -> list[int]:
    """Return the numbers that a cron field matches: `*`, `*/n`, `n`, `a-b` or a list of these."""
    numbers: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        start, end = (0, size - 1) if span == "*" else (int(low), int(high or low))
        numbers.update(range(start, end + 1, int(step or 1)))
    return sorted(numbers)


@dataclass(frozen=True)
class Rules:
    """The policies of a job that the checker verifies."""

    overlap: str = "skip"
    catchup: str = "none"
    window_ms: int = DAY_MS
    grace_ms: int = 60_000
    jitter_ms: int = 0
    max_attempts: int = 5
    on_lost: str = "retry"
    lost_limit: int = 3
    max_runs: int | None = None
    max_queued: int = 100


@dataclass
class Era:
    """A period during which a job was enabled with one schedule and one set of rules."""

    schedule: Plain | None
    rules: Rules
    anchor_ms: int
    from_ms: int
    #: the latest time of the database clock in it; None while it lasts
    until_ms: int | None = None
    #: whether the next era continues its ticks: an edit that does not change the schedule
    goes_on: bool = False

    def ticks(self, until_ms: int) -> list[int]:
        """Return its ticks up to that time."""
        return self.schedule.ticks(self.anchor_ms, self.from_ms, until_ms) if self.schedule else []


@dataclass
class Life:
    """The eras of a job from its creation to its deletion."""

    job_id: str
    name: str
    eras: list[Era] = field(default_factory=list)
    deleted: bool = False
    #: fires after a run of this job ends in `after_on`
    after: str | None = None
    after_on: str = "succeeded"

    @property
    def now(self) -> Era | None:
        """The current era, or None while the job is paused or deleted."""
        return self.eras[-1] if self.eras and self.eras[-1].until_ms is None and not self.deleted else None


@dataclass
class Launched:
    """A launch that happened."""

    run_id: str
    job_id: str | None
    attempt: int
    key: str
    worker: str
    #: the last step recorded when it began
    seq: int
    began_ms: int
    #: the maximum of the database clock until then
    high_ms: int
    began_at: float
    ended_at: float | None = None
    #: succeeded, failed, permanent, parked, cut short, crashed
    end: str | None = None


@dataclass
class Awake:
    """A period during which one replica was up and without faults."""

    from_ms: int
    until_ms: int | None = None


@dataclass
class Journal:
    """Everything that happened in one simulation."""

    lives: dict[str, Life] = field(default_factory=dict)
    launches: list[Launched] = field(default_factory=list)
    awake: list[Awake] = field(default_factory=list)
    #: the database clock was set, forward or back
    jumped: bool = False
    #: store calls were slow or failed: replicas may act on old data
    slow: bool = False
    #: the maximum delay until an awake replica notices a job changed by another process
    tick_ms: int = 1_000
    #: how long before its time a tick may be recorded
    lead_ms: int = 0
    end_ms: int = 0
