"""The pinger: tells a watchdog outside that this process does its work. Silence is what it listens for.

While the process is healthy it asks for a url every so often. A process that has died, hangs or has no
database cannot do so, and whoever watches the url hears that nothing comes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import ClientError, ClientSession, ClientTimeout

from wakeful.clock import Clock
from wakeful.engine.loop import Loop
from wakeful.launch.http_response import LimitedResponse
from wakeful.logs import get_logger

_TIMEOUT_S: Final = 10.0
#: When to look again whether all is well, where it is not.
_AGAIN_MS: Final = 1_000

log = get_logger("wakeful.pinger")


class Pinger(Loop):
    """Pings while all is well. Whether it is answered changes nothing here: it is logged and counted.

    `ready` says what keeps the process from doing its work, or None. The url is the operator's own, so it may
    lead anywhere.
    """

    name = "pinger"

    def __init__(
        self,
        clock: Clock,
        url: str,
        every_ms: int,
        ready: Callable[[], Awaitable[str | None]],
    ) -> None:
        super().__init__(clock, every_ms)
        self._url = url
        self._every_ms = every_ms
        self._ready = ready
        #: called after each ping with whether it was answered with 2xx
        self.on_ping: Callable[[bool], None] = lambda answered: None

    async def step(self) -> int | None:
        """One ping, if all is well."""
        now_ms = self.clock.now_ms()
        reason = await self._ready()
        if reason is not None:
            log.warning("ping.withheld", reason=reason)
            return now_ms + min(self._every_ms, _AGAIN_MS)
        try:
            async with (
                ClientSession(
                    timeout=ClientTimeout(total=_TIMEOUT_S), response_class=LimitedResponse
                ) as session,
                session.get(self._url) as response,
            ):
                answered = 200 <= response.status < 300
                if not answered:
                    log.warning("ping.refused", status=response.status)
        except (ClientError, OSError, ValueError) as error:
            answered = False
            log.warning("ping.failed", error=f"{type(error).__name__}: {error}")
        self.on_ping(answered)
        return now_ms + self._every_ms
