"""Limits how often something may happen, per key, and how often sign-ins may fail.

A key may use up the amount of a whole minute at once; then it recovers evenly. For each key it is enough to
keep when its allowance is full again (`Rate`): in this process (`RateLimiter`), or in the database.

Failed sign-ins (`SignInLimits`) are counted per client address, and for all addresses together, in the
database, so that an attacker gains nothing from using several replicas. A failure counts only against the
address that it comes from: others sign in as before. While the allowance of all addresses together is used
up, an address has one failure instead of its whole allowance.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from wakeful.errors import ResourceExhausted
from wakeful.store.port import Store

K = TypeVar("K", bound=Hashable)

_MINUTE_MS: Final = 60_000
#: How many keys are kept before those that have recovered are dropped.
_CLEAN_AT: Final = 10_000

#: The row of all addresses together, and its allowance in terms of that of one address.
_ALL: Final = "*"
_ALL_TIMES: Final = 10
_UNKNOWN: Final = "unknown"
#: An IPv6 client has a whole network of this size.
_IPV6_PREFIX: Final = 64


class RateLimited(ResourceExhausted):
    """There are too many requests."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Rate:
    """How often something may happen in a minute; 0 is no limit.

    >>> Rate(2).wait_s(0, 1_000), Rate(2).wait_s(61_000, 1_000)
    (0, 30)
    """

    per_minute: int

    def wait_s(self, full_ms: float, now_ms: int) -> int:
        """Return after how many seconds it may happen again; 0: now. `full_ms` is what `counted` returned."""
        if not self.per_minute:
            return 0
        # Whole milliseconds: a sum of fractions may be a little more than the minute.
        wait_ms = round(_after(full_ms, now_ms) + _MINUTE_MS / self.per_minute - (now_ms + _MINUTE_MS))
        return max(0, -(-wait_ms // 1_000))

    def counted(self, full_ms: float, now_ms: int) -> float:
        """Return when the allowance is full again after it has happened once more."""
        if not self.per_minute:
            return now_ms
        return min(_after(full_ms, now_ms) + _MINUTE_MS / self.per_minute, now_ms + _MINUTE_MS)


def _after(full_ms: float, now_ms: int) -> float:
    # Later than possible: the clock was set back.
    return now_ms if full_ms > now_ms + _MINUTE_MS else max(full_ms, now_ms)


class RateLimiter(Generic[K]):
    """Allows `per_minute` per key in this process; 0 allows everything. An idle key needs no memory.

    >>> limiter = RateLimiter[str](per_minute=2)
    >>> limiter.take("a", 0), limiter.take("a", 0), limiter.take("a", 0), limiter.take("a", 30_000)
    (0, 0, 30, 0)
    """

    def __init__(self, per_minute: int) -> None:
        self._rate = Rate(per_minute)
        self._full_ms: dict[K, float] = {}
        self._clean_at = _CLEAN_AT

    def take(self, key: K, now_ms: int) -> int:
        """Count one for the key and return 0, or return after how many seconds it may happen again."""
        wait_s = self.wait_s(key, now_ms)
        if wait_s or not self._rate.per_minute:
            return wait_s
        if len(self._full_ms) >= self._clean_at:
            self._full_ms = {each: ms for each, ms in self._full_ms.items() if ms > now_ms}
            self._clean_at = max(_CLEAN_AT, 2 * len(self._full_ms))
        self._full_ms[key] = self._rate.counted(self._full_ms.get(key, 0), now_ms)
        return 0

    def wait_s(self, key: K, now_ms: int) -> int:
        """Return after how many seconds it may happen again; 0: now. Counts nothing."""
        return self._rate.wait_s(self._full_ms.get(key, 0), now_ms)


class SignInLimits:
    """Counts failed sign-ins; `per_minute` per address, 0 is no limit."""

    def __init__(self, store: Store, per_minute: int) -> None:
        self._store = store
        self._rates = {_ALL: Rate(per_minute * _ALL_TIMES)}
        self._rate = Rate(per_minute)

    async def check(self, address: str | None) -> None:
        """Raise RateLimited if sign-ins from this address have failed too often."""
        if not self._rate.per_minute:
            return
        name, now_ms = limited_address(address), self._store.clock.now_ms()
        full = await self._store.sign_in_limits([name, _ALL])
        own_ms = full.get(name, 0)
        wait_s = self._rate.wait_s(own_ms, now_ms)
        if not wait_s and own_ms > now_ms and self._rates[_ALL].wait_s(full.get(_ALL, 0), now_ms):
            wait_s = -(-(own_ms - now_ms) // 1_000)
        if wait_s:
            raise RateLimited(f"too many failed sign-ins from this address; try again in {wait_s} s", wait_s)

    async def count(self, address: str | None) -> None:
        """Count a failed sign-in from this address."""
        if not self._rate.per_minute:
            return
        now_ms = self._store.clock.now_ms()

        def later(name: str, full_ms: int) -> int:
            return round(self._rates.get(name, self._rate).counted(full_ms, now_ms))

        await self._store.count_failed_sign_in([limited_address(address), _ALL], now_ms, later)


def limited_address(address: str | None) -> str:
    """Return what failures of a client are counted for: its IPv4 address, or its IPv6 network.

    >>> limited_address("192.0.2.7"), limited_address("::ffff:192.0.2.7"), limited_address("2001:db8::7")
    ('192.0.2.7', '192.0.2.7', '2001:db8::/64')
    """
    try:
        parsed = ipaddress.ip_address(address or "")
    except ValueError:
        return _UNKNOWN
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))
