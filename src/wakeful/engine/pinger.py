"""The pinger: requests the URL of an external watchdog while this process is healthy.

A process that has died, hangs or has no database sends no pings, which the watchdog reports.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import ClientError, ClientSession, ClientTimeout

from wakeful.engine.loop import Loop
from wakeful.launch.http_response import LimitedResponse
from wakeful.logs import get_logger
from wakeful.values.clock import Clock

_TIMEOUT_S: Final = 10.0
#: When to check again after the process was not ready.
_RECHECK_MS: Final = 1_000

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
            async with (
                ClientSession(
                    timeout=ClientTimeout(total=_TIMEOUT_S), response_class=LimitedResponse
                ) as session,
                session.get(self._url) as response,
            ):
                succeeded = 200 <= response.status < 300
                if not succeeded:
                    log.warning("ping.refused", status=response.status)
        except (ClientError, OSError, ValueError) as error:
            succeeded = False
            log.warning("ping.failed", error=f"{type(error).__name__}: {error}")
        self._on_ping(succeeded)
        return now_ms + self._every_ms
