"""The threads in which messages are sent: Apprise blocks until a service responds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from wakeful.deliver.channels import SendResult
from wakeful.errors import ResourceExhausted
from wakeful.launch.user_code import Threads

#: The most messages at once, and those to one channel: a service that does not respond holds up no other.
MAX_CONCURRENT: Final = 32
MAX_PER_CHANNEL: Final = 8


class SenderThreads:
    """Sends messages in threads, which are started on demand."""

    def __init__(self) -> None:
        self._threads: Threads | None = None

    async def send(
        self,
        send: Callable[[], SendResult],
        seconds: float,
        *,
        on_error: Callable[[], None],
        abandoned: Callable[[], None] = lambda: None,
    ) -> SendResult:
        """Send a message and return the result. An error before it begins is raised.

        It may have arrived if it does not end within `seconds`, or if a plugin raises an error: `on_error` is
        called. `abandoned` is called if the thread goes on.
        """
        if self._threads is None:
            self._threads = Threads(MAX_CONCURRENT)
        began = False

        def begin() -> SendResult:
            nonlocal began
            began = True
            return send()

        try:
            async with asyncio.timeout(seconds):
                result = await self._threads.run(begin, abandoned)
            assert isinstance(result, SendResult)
        except (ResourceExhausted, TimeoutError):
            if began:
                return SendResult("unknown", f"no response within {seconds:g} s; it may have arrived")
            return SendResult("not_sent", "too many messages wait for services that do not respond")
        except asyncio.CancelledError:
            raise
        except BaseException:
            if not began:
                raise
            on_error()
            return SendResult("unknown", "an unexpected error, see the log; it may have arrived")
        return result

    def close(self) -> None:
        """Stop the threads. One that waits for a service ends with its socket timeout."""
        if self._threads is not None:
            self._threads.close()
            self._threads = None
