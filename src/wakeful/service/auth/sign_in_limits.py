"""The limits of failed sign-ins: per client address, and for all addresses together.

They are counted in the database, so that an attacker gains nothing from using several replicas. A failure
counts only against the address that it comes from: others sign in as before. While the allowance of all
addresses together is used up, an address has one failure instead of its whole allowance.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from wakeful.service.auth.rate_limiter import Rate, RateLimited
from wakeful.store.port import Store

#: The row of all addresses together, and its allowance in terms of that of one address.
_ALL: Final = "*"
_ALL_TIMES: Final = 10
_UNKNOWN: Final = "unknown"
#: An IPv6 client has a whole network of this size.
_IPV6_PREFIX: Final = 64


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
