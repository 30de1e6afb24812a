"""Limits how often something may happen, per key, in this process.

A key may use up the amount of a whole minute at once; then it recovers evenly.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_MINUTE_MS: Final = 60_000
#: How many keys are kept before those that have recovered are dropped.
_CLEAN_AT: Final = 10_000


class RateLimiter(Generic[K]):
    """Allows `per_minute` per key; 0 allows everything.

    For each key it keeps when its allowance is full again. So an idle key needs no memory.

    >>> limiter = RateLimiter[str](per_minute=2)
    >>> limiter.take("a", 0), limiter.take("a", 0), limiter.take("a", 0), limiter.take("a", 30_000)
    (0, 0, 30, 0)
    """

    def __init__(self, per_minute: int) -> None:
        self._interval_ms = _MINUTE_MS / per_minute if per_minute else 0.0
        self._full_ms: dict[K, float] = {}
        self._clean_at = _CLEAN_AT

    def take(self, key: K, now_ms: int) -> int:
        """Count one for the key and return 0, or return after how many seconds it may happen again."""
        wait_s = self.wait_s(key, now_ms)
        if wait_s or not self._interval_ms:
            return wait_s
        if len(self._full_ms) >= self._clean_at:
            self._full_ms = {each: ms for each, ms in self._full_ms.items() if ms > now_ms}
            self._clean_at = max(_CLEAN_AT, 2 * len(self._full_ms))
        self._full_ms[key] = self._full(key, now_ms) + self._interval_ms
        return 0

    def wait_s(self, key: K, now_ms: int) -> int:
        """Return after how many seconds it may happen again; 0: now. Counts nothing."""
        if not self._interval_ms:
            return 0
        wait_ms = self._full(key, now_ms) + self._interval_ms - (now_ms + _MINUTE_MS)
        return max(0, int(-(-wait_ms // 1_000)))

    def _full(self, key: K, now_ms: int) -> float:
        full_ms = self._full_ms.get(key, 0)
        # Later than possible: the clock was set back.
        return now_ms if full_ms > now_ms + _MINUTE_MS else max(full_ms, now_ms)
