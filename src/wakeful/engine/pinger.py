"""The pinger: requests the URL of an external watchdog while this process is healthy.

A process that has died, hangs or has no database sends no pings, which the watchdog reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from yarl import URL

from wakeful.engine.loop import Loop
from wakeful.launch.address_guard import AddressGuard
from wakeful.launch.http.client import HttpClient
from wakeful.launch.http.messages import HttpError
from wakeful.logs import get_logger
from wakeful.values.clock import Clock
from wakeful.values.package import VERSION

_TIMEOUT_S: Final = 10.0
#: When to check again after the process was not ready.
_RECHECK_MS: Final = 1_000
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS: Final = 10
_HEADERS: Final = {"accept": "*/*", "user-agent": f"wakeful/{VERSION}"}

log = get_logger("wakeful.pinger")


class Pinger(Loop):
    """Pings while the process is ready. The result is logged and counted, and changes nothing else.

    `ready` returns why the process is not ready, or None. The URL is set by the operator, so any address is
    allowed.
    """

    name = "pinger"

    def __init__(
        self,
        clock: Clock,
        url: str,
        every_ms: int,
        ready: Callable[[], Awaitable[str | None]],
        on_ping: Callable[[bool], None],
    ) -> None:
        super().__init__(clock, every_ms)
        self._url = url
        self._every_ms = every_ms
        self._ready = ready
        #: called after each ping with whether the response was 2xx
        self._on_ping = on_ping

    async def step(self) -> int | None:
        """Send one ping, if the process is ready."""
        now_ms = self.clock.now_ms()
        reason = await self._ready()
        if reason is not None:
            log.warning("ping.withheld", reason=reason)
            return now_ms + min(self._every_ms, _RECHECK_MS)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                status = await _request(self._url)
            succeeded = 200 <= status < 300
            if not succeeded:
                log.warning("ping.refused", status=status)
        except (HttpError, OSError, ValueError) as error:
            succeeded = False
            log.warning("ping.failed", error=f"{type(error).__name__}: {error}")
        self._on_ping(succeeded)
        return now_ms + self._every_ms


async def _request(address: str) -> int:
    """Request a URL, follow redirects, and return the last status."""
    guard, url = AddressGuard(allow_private=True), URL(address)
    client = HttpClient(guard, connections=1, per_host=1)
    try:
        for _ in range(_MAX_REDIRECTS):
            if url.scheme not in ("http", "https") or not url.raw_host:
                raise ValueError("the URL of the watchdog, or a redirect, is not an HTTP URL")
            response = await client.request("GET", url, _HEADERS, None, 0)
            location = response.header(b"location")
            if response.status not in _REDIRECTS or location is None:
                return response.status
            url = _redirect(url, location)
        raise HttpError(f"more than {_MAX_REDIRECTS} redirects")
    finally:
        await client.close()


def _redirect(url: URL, location: str) -> URL:
    """Return the URL of a redirect. The credentials of a URL go with it to the same origin.

    >>> str(_redirect(URL("https://me:pw@a.example/ping"), "https://a.example/ping/"))
    'https://me:pw@a.example/ping/'
    >>> str(_redirect(URL("https://me:pw@a.example/ping"), "https://b.example/ping"))
    'https://b.example/ping'
    """
    to = url.join(URL(location))
    if url.user is None or to.user is not None or (to.scheme, to.host, to.port) != (
        url.scheme, url.host, url.port,
    ):  # fmt: skip
        return to
    return to.with_user(url.user).with_password(url.password)
