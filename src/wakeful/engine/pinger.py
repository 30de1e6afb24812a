"""The pinger: requests the URL of an external watchdog while this process is healthy.

A process that has died, hangs or has no database sends no pings, which the watchdog reports.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, cast

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout

from wakeful.engine.loop import Loop
from wakeful.launch.http.messages import MAX_INTERIM
from wakeful.logs import get_logger
from wakeful.values.clock import Clock

if TYPE_CHECKING:
    from aiohttp.connector import Connection

_SWITCHING_PROTOCOLS: Final = 101
_TIMEOUT_S: Final = 10.0
#: When to check again after the process was not ready.
_RECHECK_MS: Final = 1_000

log = get_logger("wakeful.pinger")


class TooManyInterimResponses(ClientError):
    """The receiver sent more interim responses than are accepted."""

    def __init__(self) -> None:
        super().__init__(
            f"the receiver sent more than {MAX_INTERIM} interim responses (1xx) and no final one"
        )


class LimitedResponse(ClientResponse):
    """A response with at most MAX_INTERIM interim responses before it: `ClientSession(response_class=…)`.

    aiohttp reads and drops interim responses without a limit, and without yielding to other tasks while there
    is more to read: a receiver that sends them endlessly would block the process until the timeout.
    """

    async def start(self, connection: Connection) -> ClientResponse:
        """Read up to the final response. Raises TooManyInterimResponses."""
        # aiohttp reads messages in a loop inside start(), so they are counted in the read() of the protocol.
        protocol = cast(Any, connection.protocol)
        read = protocol.read
        interim = 0

        async def limited_read() -> Any:
            nonlocal interim
            received = await read()
            code = received[0].code
            if 100 <= code < 200 and code != _SWITCHING_PROTOCOLS:
                interim += 1
                if interim > MAX_INTERIM:
                    raise TooManyInterimResponses
            return received

        protocol.read = limited_read
        try:
            return await super().start(connection)
        finally:
            del protocol.read


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
