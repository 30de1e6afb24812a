"""Tell systemd, or another service manager, about the state of this process (the protocol of sd_notify(3)).

`NOTIFY_SOCKET` names a datagram socket. `READY=1` is sent once requests are accepted and the engine runs,
`STOPPING=1` when the process begins to stop, and `STATUS=` says what it does. With `WATCHDOG_USEC`,
`WATCHDOG=1` is sent at half that interval while the event loop and all loops of the engine make progress; a
service manager restarts the process when it stops.

A database that is unavailable does not stop these messages: a restart would not help, and would lose outcomes
that are not written yet. Without `NOTIFY_SOCKET` nothing is sent.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Final

from wakeful.logs import get_logger
from wakeful.service.admin.status import Status

#: Seconds between two updates of the status without a watchdog.
_INTERVAL_S: Final = 30.0
_VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")

log = get_logger("wakeful.server")


class ServiceManager:
    """The connection to the service manager. `address` is None if there is none."""

    def __init__(self, address: str | None, watchdog_s: float | None = None) -> None:
        self._address = address
        #: the interval of the watchdog in seconds; None: there is none
        self.watchdog_s = watchdog_s
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._hanging: list[str] = []

    @classmethod
    def of_environment(cls, environment: MutableMapping[str, str] = os.environ) -> ServiceManager:
        """Read the variables of the service manager and remove them: commands must not have them."""
        address, interval, pid = (environment.pop(name, "") for name in _VARIABLES)
        watched = interval.isdecimal() and int(interval) > 0 and pid in ("", str(os.getpid()))
        return cls(address or None, int(interval) / 1_000_000 if watched else None)

    def starting(self, status: str) -> None:
        """Report what a process does that is not ready yet."""
        self._send(f"STATUS={status}")

    def ready(self, status: str, health: Status) -> None:
        """Report that the process is ready, and report its health until `close`."""
        if self._address is None:
            return
        self.ready_now(status)
        self._task = asyncio.create_task(self._report(status, health), name="wakeful-service-manager")

    def ready_now(self, status: str) -> None:
        """Report that the process is ready, once."""
        self._send("READY=1", f"STATUS={status}")

    def alive(self) -> None:
        """Report that the process works, if there is a watchdog."""
        if self.watchdog_s is not None:
            self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Report that the process stops."""
        if not self._stopping:
            self._stopping = True
            self._send("STOPPING=1", "STATUS=stopping")

    async def close(self) -> None:
        """Stop reporting."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _report(self, status: str, health: Status) -> None:
        interval_s = _INTERVAL_S if self.watchdog_s is None else self.watchdog_s / 2
        while True:
            # While the process stops, its loops stop too; the service manager has a timeout for that.
            hanging = [] if self._stopping else health.hanging()
            if not hanging:
                self.alive()
            if hanging != self._hanging:
                self._hanging = hanging
                log.error("watchdog.withheld", loops=hanging) if hanging else log.info("watchdog.resumed")
            try:
                reason = await health.ready()
            except Exception as error:  # the watchdog goes on
                reason = f"{type(error).__name__}: {error}"
            if not self._stopping:
                self._send(f"STATUS={status if reason is None else f'not ready: {reason}'}")
            await asyncio.sleep(interval_s)

    def _send(self, *lines: str) -> None:
        if self._address is None:
            return
        # A leading @ stands for the zero byte of an abstract address.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        message = "\n".join(line.replace("\n", " ") for line in lines).encode()
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(message, address)
        except OSError as error:
            log.warning("service_manager.unreachable", error=str(error))
