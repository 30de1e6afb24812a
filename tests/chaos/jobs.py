"""The jobs of the chaos test and their histories, from which the checker computes their ticks."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

MINUTE = 60_000
#: The timeout of webhooks.
HOOK_TIMEOUT_MS = 2_000


@dataclass(frozen=True)
class Plain:
    """A simple schedule whose ticks are computed here: an interval, or seconds of every minute."""

    every_ms: int | None = None
    seconds: str = ""

    def document(self) -> object:
        """Return the schedule of the job document."""
        if self.every_ms is not None:
            return {"kind": "every", "everyMs": self.every_ms}
        return {"kind": "cron", "expr": f"{self.seconds} * * * * *", "tz": "UTC"}

    def ticks(self, anchor_ms: int, after_ms: int, until_ms: int) -> list[int]:
        """Return every tick later than `after_ms`, up to and including `until_ms`."""
        if self.every_ms is not None:
            first = anchor_ms + max(1, (after_ms - anchor_ms) // self.every_ms + 1) * self.every_ms
            return list(range(first, until_ms + 1, self.every_ms))
        if self.seconds.startswith("*/"):
            seconds = list(range(0, 60, int(self.seconds[2:])))
        else:
            seconds = sorted(int(second) for second in self.seconds.split(","))
        minutes = range(after_ms // MINUTE * MINUTE, until_ms + 1, MINUTE)
        ticks = [minute + second * 1000 for minute in minutes for second in seconds]
        return [tick for tick in ticks if after_ms < tick <= until_ms]


@dataclass(frozen=True)
class Rules:
    """The policies of a job that the checker verifies."""

    overlap: str = "skip"
    catchup: str = "none"
    grace_ms: int = 60_000
    window_ms: int = 86_400_000
    jitter_ms: int = 0
    max_attempts: int = 5
    on_lost: str = "retry"
    max_queued: int = 100
    lane: str = "cron"
    #: duration of the function; attempts that fail and that end their process, in percent
    ms: int = 0
    fails: int = 0
    kills: int = 0
    #: the address of a webhook; empty: a function
    hook: str = ""

    def document(self) -> dict[str, Any]:
        """Return the fields of the job document."""
        return {
            **self._target(),
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
            "payload": {"ms": self.ms, "fails": self.fails, "kills": self.kills},
        }

    def _target(self) -> dict[str, Any]:
        if self.hook:
            return {"target": {"kind": "webhook", "url": self.hook}, "timeoutMs": HOOK_TIMEOUT_MS}
        return {"target": {"kind": "function", "name": "work"}}


@dataclass
class Stretch:
    """A period during which a job was enabled with one schedule. Times are those of the database."""

    schedule: Plain
    anchor_ms: int
    after_ms: int
    #: the earliest and the latest possible end; None while it lasts
    until_ms: int | None = None
    until_at_latest_ms: int | None = None

    def end(self, at_ms: int, at_latest_ms: int | None = None) -> None:
        """Record the end."""
        self.until_ms, self.until_at_latest_ms = at_ms, at_latest_ms or at_ms


@dataclass
class Life:
    """The stretches of a job from its creation to its deletion."""

    job_id: str
    name: str
    rules: Rules
    stretches: list[Stretch] = field(default_factory=list)
    deleted: bool = False

    @property
    def schedule(self) -> Plain:
        """The current or last schedule."""
        return self.stretches[-1].schedule

    @property
    def lasts(self) -> Stretch | None:
        """The current stretch, or None if the job is paused or deleted."""
        return self.stretches[-1] if self.stretches[-1].until_ms is None else None


def any_schedule(dice: random.Random, pace: int) -> Plain:
    """Return a random schedule; a higher pace makes its ticks rarer."""
    every = dice.choice([1000, 1000, 2000, 3000, 3500, 5000, 7000]) * pace
    seconds = [
        f"*/{dice.choice([2, 3, 5]) * pace}",
        ",".join(str(second) for second in sorted(dice.sample(range(60), max(1, 20 // pace)))),
    ]
    return dice.choice([Plain(every_ms=every), Plain(every_ms=every), Plain(seconds=dice.choice(seconds))])


def any_rules(dice: random.Random, hook: str) -> Rules:
    """Return random policies. `hook` is the address of webhooks."""
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
        kills=5 if dice.random() < 0.05 else 0,
        hook=hook if dice.random() < 0.25 else "",
    )
