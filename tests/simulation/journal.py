"""What really happened in a simulated world, written down as it happened: the checker's only witness.

Nothing here comes from the engine. The world writes what was asked of a job and when, what was launched and
how it ended, and who was awake; the checker holds the database's records against it. Instants `…_ms` are the
database clock's, `at` is the loop's time, which never jumps, and `seq` counts the changes of run rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

DAY_MS = 86_400_000
MINUTE_MS = 60_000


@dataclass(frozen=True)
class Plain:
    """A schedule that is simple enough to step through by hand: an interval, a few crons, or once."""

    every_ms: int | None = None
    cron: str | None = None
    at_ms: int | None = None

    def document(self) -> object:
        """The same as a job document says it."""
        if self.every_ms is not None:
            return {"kind": "every", "everyMs": self.every_ms}
        if self.cron is not None:
            return {"kind": "cron", "expr": self.cron, "tz": "UTC"}
        return {"kind": "at", "atMs": self.at_ms}

    def ticks(self, anchor_ms: int, after_ms: int, until_ms: int) -> list[int]:
        """Every tick later than `after_ms`, up to `until_ms`, one step at a time."""
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
                    midnight + hour * 60 * MINUTE_MS + minute * MINUTE_MS
                    for hour in _numbers(hours, 24)
                    for minute in _numbers(minutes, 60)
                ]
        return [tick for tick in found if after_ms < tick <= until_ms]


def _numbers(text: str, size: int) -> list[int]:
    """`*`, `*/n`, `n`, `a-b` or a list of these: what a field of a simple expression stands for."""
    numbers: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        start, end = (0, size - 1) if span == "*" else (int(low), int(high or low))
        numbers.update(range(start, end + 1, int(step or 1)))
    return sorted(numbers)


@dataclass(frozen=True)
class Rules:
    """What a job was promised, as far as the checker goes into it."""

    overlap: str = "skip"
    catchup: str = "none"
    window_ms: int = DAY_MS
    grace_ms: int = 60_000
    jitter_ms: int = 0
    max_attempts: int = 5
    on_lost: str = "retry"
    max_runs: int | None = None
    max_queued: int = 100


@dataclass
class Era:
    """A stretch of a job's life with one schedule and one set of rules, during which it was enabled."""

    schedule: Plain | None
    rules: Rules
    anchor_ms: int
    from_ms: int
    #: the latest that the database's clock showed in it; None while it lasts
    until_ms: int | None = None
    #: whether the next era goes on with its ticks: an edit that leaves the schedule alone
    goes_on: bool = False

    def ticks(self, until_ms: int) -> list[int]:
        """Its ticks up to then."""
        return self.schedule.ticks(self.anchor_ms, self.from_ms, until_ms) if self.schedule else []


@dataclass
class Life:
    """A job from its creation to its end."""

    job_id: str
    name: str
    eras: list[Era] = field(default_factory=list)
    deleted: bool = False
    #: fires after a run of this job ends so
    after: str | None = None
    after_on: str = "succeeded"

    @property
    def now(self) -> Era | None:
        """The era that lasts, or None while it is paused."""
        return self.eras[-1] if self.eras and self.eras[-1].until_ms is None and not self.deleted else None


@dataclass
class Launched:
    """A launch that really happened."""

    run_id: str
    job_id: str | None
    attempt: int
    key: str
    worker: str
    #: how much of the history of run rows was written when it began
    seq: int
    began_ms: int
    #: the latest that the database's clock had ever shown then
    high_ms: int
    began_at: float
    ended_at: float | None = None
    #: succeeded, failed, permanent, parked, cut short, crashed
    end: str | None = None


@dataclass
class Awake:
    """A stretch of time during which one replica was up and nothing went wrong with it."""

    from_ms: int
    until_ms: int | None = None


@dataclass
class Journal:
    """All of it."""

    lives: dict[str, Life] = field(default_factory=dict)
    launches: list[Launched] = field(default_factory=list)
    awake: list[Awake] = field(default_factory=list)
    #: the database's clock was set, forward or back
    jumped: bool = False
    #: store calls took time, or failed: what is known of the database may be old
    slow: bool = False
    #: how long a replica that is awake may take to notice a job that another process changed
    tick_ms: int = 1_000
    #: how long before its instant a tick may be recorded
    lead_ms: int = 0
    end_ms: int = 0
