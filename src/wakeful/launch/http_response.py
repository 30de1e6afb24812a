"""An aiohttp client response that limits the number of interim responses (1xx).

aiohttp reads and drops interim responses without a limit, and without yielding to other tasks while there
is more to read: a receiver that sends them endlessly would block the process until the timeout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from aiohttp import ClientError, ClientResponse

from wakeful.launch.http.errors import MAX_INTERIM

if TYPE_CHECKING:
    from aiohttp.connector import Connection

_SWITCHING_PROTOCOLS: Final = 101


class TooManyInterimResponses(ClientError):
    """The receiver sent more interim responses than are accepted."""

    def __init__(self) -> None:
        super().__init__(
            f"the receiver sent more than {MAX_INTERIM} interim responses (1xx) and no final one"
        )


class LimitedResponse(ClientResponse):
    """A response with at most MAX_INTERIM interim responses before it: `ClientSession(response_class=…)`."""

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
