"""Wakeful in a thread with an event loop of its own, for programs that are not asynchronous."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

from wakeful.app import Wakeful
from wakeful.errors import Unavailable

#: Seconds that `stop` waits for the thread beyond the grace period of running work.
_STOP_S: Final = 15.0


class EngineThread:
    """Runs a `Wakeful` from `start` to `stop`."""

    def __init__(self, app: Wakeful, grace_s: float) -> None:
        self._app = app
        self._grace_s = grace_s
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="wakeful", daemon=True)

    def start(self) -> None:
        """Start, and return when the engine runs. Raises what prevents it."""
        self._thread.start()
        self._started.wait()
        self.check()

    def check(self) -> None:
        """Raise the error that has ended the engine, if it has ended."""
        if self._error is not None:
            raise self._error
        if not self._thread.is_alive():
            raise Unavailable("the scheduler has stopped")

    def stop(self) -> None:
        """Stop launching, let running work end within the grace period, and return."""
        loop, stopping = self._loop, self._stopping
        if loop is not None and stopping is not None and self._thread.is_alive():
            loop.call_soon_threadsafe(stopping.set)
            self._thread.join(self._grace_s + _STOP_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._app.on_error = self._stopping.set
        async with self._app:
            self._started.set()
            await self._stopping.wait()
        if self._app.error is not None:
            raise self._app.error
