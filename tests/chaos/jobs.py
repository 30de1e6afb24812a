"""The jobs of the chaos, and what is known of each life: enough to say by hand which ticks it had."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

MINUTE_MS = 60_000


@dataclass(frozen=True)
class Plain:
    """A schedule that is simple enough to step through by hand: an interval, or seconds of every minute."""

    every_ms: int | None = None
    seconds: str = ""

    def document(self) -> object:
        """The same as a job document says it."""
        if self.every_ms is not None:
            return {"kind": "every", "everyMs": self.every_ms}
        return {"kind": "cron", "expr": f"{self.seconds} * * * * *", "tz": "UTC"}

    def ticks(self, anchor_ms: int, after_ms: int, until_ms: int) -> list[int]:
        """Every tick later than `after_ms`, up to `until_ms`."""
        if self.every_ms is not None:
            first = anchor_ms + max(1, (after_ms - anchor_ms) // self.every_ms + 1) * self.every_ms
            return list(range(first, until_ms + 1, self.every_ms))
        if self.seconds.startswith("*/"):
            seconds = list(range(0, 60, int(self.seconds[2:])))
        else:
            seconds = sorted(int(second) for second in self.seconds.split(","))
        minutes = range(after_ms // MINUTE_MS * MINUTE_MS, until_ms + 1, MINUTE_MS)
        ticks = [minute + second * 1000 for minute in minutes for second in seconds]
        return [tick for tick in ticks if after_ms < tick <= until_ms]


@dataclass(frozen=True)
class Rules:
    """What a job was promised, as far as the checker goes into it."""

    overlap: str = "skip"
    catchup: str = "none"
    grace_ms: int = 60_000
    window_ms: int = 86_400_000
    jitter_ms: int = 0
    max_attempts: int = 5
    on_lost: str = "retry"
    max_queued: int = 100
    lane: str = "cron"
    #: how long the function takes, and how many attempts of a hundred fail
    ms: int = 0
    fails: int = 0

    def document(self) -> dict[str, Any]:
        """The same as a job document says it."""
        return {
            "target": {"kind": "function", "name": "work"},
            "overlapPolicy": self.overlap,
            "catchupPolicy": self.catchup,
            "misfireGraceMs": self.grace_ms,
            "catchupWindowMs": self.window_ms,
            "jitterMs": self.jitter_ms,
            "maxAttempts": self.max_attempts,
            "backoff": {"base": "200ms", "max": "1s"},
            "onLost": self.on_lost,
            "maxQueued": self.max_queued,
            "lane": self.lane,
            "payload": {"ms": self.ms, "fails": self.fails},
        }


@dataclass
class Stretch:
    """A part of a job's life with one schedule, during which it was enabled. Instants are the database's."""

    schedule: Plain
    anchor_ms: int
    after_ms: int
    #: when it ended, at the earliest and at the latest; None while it lasts
    until_ms: int | None = None
    until_at_latest_ms: int | None = None

    def end(self, at_ms: int, at_latest_ms: int | None = None) -> None:
        """It ended then."""
        self.until_ms, self.until_at_latest_ms = at_ms, at_latest_ms or at_ms


@dataclass
class Life:
    """A job from its creation to its end."""

    job_id: str
    name: str
    rules: Rules
    stretches: list[Stretch] = field(default_factory=list)
    deleted: bool = False

    @property
    def schedule(self) -> Plain:
        """The schedule that it has now, or had last."""
        return self.stretches[-1].schedule

    @property
    def lasts(self) -> Stretch | None:
        """The stretch that lasts, or None: it is paused, or gone."""
        return self.stretches[-1] if self.stretches[-1].until_ms is None else None


def any_schedule(dice: random.Random, pace: int) -> Plain:
    """One of many schedules; with a higher pace, rarer ticks."""
    every = dice.choice([1000, 1000, 2000, 3000, 3500, 5000, 7000]) * pace
    seconds = [
        f"*/{dice.choice([2, 3, 5]) * pace}",
        ",".join(str(second) for second in sorted(dice.sample(range(60), max(1, 20 // pace)))),
    ]
    return dice.choice([Plain(every_ms=every), Plain(every_ms=every), Plain(seconds=dice.choice(seconds))])


def any_rules(dice: random.Random) -> Rules:
    """Some of all there is to promise."""
    slow = dice.random() < 0.25
    return Rules(
        overlap=dice.choice(["allow", "skip", "skip", "queue", "queue_one", "replace"]),
        catchup=dice.choice(["none", "none", "latest", "fire_immediately", "spread"]),
        grace_ms=dice.choice([1000, 1500, 3000, 60_000]),
        window_ms=dice.choice([2000, 86_400_000, 86_400_000, 86_400_000]),
        jitter_ms=dice.choice([0, 0, 0, 300, 2000]),
        max_attempts=dice.choice([1, 3, 5]),
        on_lost=dice.choice(["retry", "retry", "retry", "fail"]),
        max_queued=dice.choice([2, 100]),
        lane=dice.choice(["cron"] * 9 + ["narrow"]),
        ms=dice.choice([300, 800, 1500, 3000]) if slow else dice.choice([0, 0, 5, 50]),
        fails=dice.choice([0, 0, 0, 10, 50]),
    )
