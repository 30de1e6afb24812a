"""How a job behaves when things are not ideal: overlap, catch-up, jitter, retries, limits. All values."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

Overlap = Literal["allow", "skip", "queue", "queue_one", "replace"]
Catchup = Literal["none", "latest", "fire_immediately", "spread"]
OnLost = Literal["retry", "fail"]

DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait between two attempts: min(base·2^n, max), give or take a quarter.

    >>> Backoff().delay_ms(failures=1, seed="r1") in range(1500, 2501)
    True
    """

    base_ms: int = 2_000
    max_ms: int = 30_000

    @property
    def base(self) -> timedelta:
        """The first wait."""
        return timedelta(milliseconds=self.base_ms)

    @property
    def max(self) -> timedelta:
        """The longest wait."""
        return timedelta(milliseconds=self.max_ms)

    def delay_ms(self, failures: int, seed: str) -> int:
        """The wait after so many failed attempts. The same seed gives the same answer, on every replica."""
        whole = min(self.base_ms << min(failures - 1, 62), self.max_ms)
        return whole + spread_evenly(f"{seed}:{failures}", whole // 4)


@dataclass(frozen=True, slots=True)
class Policy:
    """The policies of a job, each with its default."""

    overlap: Overlap = "skip"
    max_queued: int = 100
    catchup: Catchup = "none"
    catchup_window_ms: int = DAY_MS
    misfire_grace_ms: int = 60_000
    jitter_ms: int = 0
    max_runs: int | None = None
    max_attempts: int = 5
    backoff: Backoff = Backoff()
    timeout_ms: int | None = None
    on_lost: OnLost = "retry"
    disable_after: int | None = None
    delete_after_run: bool = False
    claim_timeout_ms: int = 3_600_000


DEFAULT_POLICY: Final = Policy()


def spread_evenly(seed: str, limit_ms: int) -> int:
    """A number in ±limit, uniform over seeds, and always the same for one seed."""
    if limit_ms <= 0:
        return 0
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8])
    return number % (2 * limit_ms + 1) - limit_ms
