"""A process of a server with several: its part of the socket, and its connection to the supervisor.

The process reports its state in a pipe, as JSON objects, one per line. It ends when the supervisor is gone:
the other pipe, which the supervisor only holds open, is then closed. A thread waits for that, so that a
process whose event loop hangs ends too.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Literal

from wakeful import errors
from wakeful.errors import WakefulError
from wakeful.logs import get_logger
from wakeful.service.admin.status import Status

#: Seconds before a restart: after the second end in a row, and at most.
FIRST_DELAY_S: Final = 0.5
LONGEST_DELAY_S: Final = 30.0
#: A process that worked for so long is restarted at once.
STABLE_S: Final = 60.0
#: So many starts in a row that never become ready end the server.
MAX_FAILED_STARTS: Final = 5
#: Seconds without a message after which a process hangs.
SILENT_S: Final = 60.0
Kind = Literal["status", "prepared", "ready", "alive", "stopping", "failed"]

#: Seconds between two messages of a process that works.
_EVERY_S: Final = 5.0
#: Seconds for the stop after the supervisor is gone.
_STOP_S: Final = 45.0

log = get_logger("wakeful.process")


@dataclass(frozen=True, slots=True)
class Restarts:
    """The history of a process that counts for its next restart.

    >>> history = Restarts()
    >>> for _ in range(4):
    ...     history = history.after_end(ready_for_s=0.1)
    ...     print(history.delay_s, end=" ")
    0.0 0.5 1.0 2.0
    >>> history.after_end(ready_for_s=3600).delay_s
    0.0
    """

    #: ends in a row without a stable time in between
    ends: int = 0
    #: starts in a row that did not become ready
    failed_starts: int = 0

    def after_end(self, ready_for_s: float | None, *, counts: bool = True) -> Restarts:
        """Return the history after an end; `ready_for_s` is None if the process was not ready.

        Without `counts` a start that failed is not one of those that end the server: the database was
        unavailable, for example.
        """
        if ready_for_s is None:
            return Restarts(self.ends + 1, self.failed_starts + 1 if counts else self.failed_starts)
        return Restarts(1 if ready_for_s >= STABLE_S else self.ends + 1)

    @property
    def delay_s(self) -> float:
        """The time before the next start."""
        if self.ends < 2:
            return 0.0
        return min(FIRST_DELAY_S * 2.0 ** min(self.ends - 2, 16), LONGEST_DELAY_S)

    @property
    def exhausted(self) -> bool:
        """Whether the process cannot be started."""
        return self.failed_starts >= MAX_FAILED_STARTS


@dataclass(frozen=True, slots=True)
class Message:
    """A message. `text` is a status, the reason why the process is not ready, or that of a failure."""

    kind: Kind
    text: str = ""
    #: `alive`: the loops that hang; `failed`: the class of the error
    names: tuple[str, ...] = ()
    #: `prepared`: what the first process did for all
    values: dict[str, str | bool | None] = field(default_factory=dict)

    def line(self) -> bytes:
        """Return the message as a line."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def of_line(cls, line: bytes) -> Message:
        """Return the message of a line.

        >>> Message.of_line(Message("alive", names=("planner",)).line()).names
        ('planner',)
        """
        read = json.loads(line)
        return cls(read["kind"], read["text"], tuple(read["names"]), read["values"])

    @classmethod
    def of_error(cls, error: WakefulError) -> Message:
        """Return the message of an error that ends the process."""
        return cls("failed", error.message, (type(error).__name__,))

    def error(self) -> WakefulError:
        """Return the error of a `failed` message.

        >>> Message.of_error(errors.Unavailable("no database")).error().code
        'unavailable'
        """
        kind = getattr(errors, self.names[0], None) if self.names else None
        if isinstance(kind, type) and issubclass(kind, WakefulError):
            return kind(self.text)
        return WakefulError(self.text)


class SupervisorLink:
    """Reports the state of this process to the supervisor, as `ServiceManager` does to systemd."""

    def __init__(self, reports: int, lifeline: int, folder: Path) -> None:
        self._reports = reports
        self._lifeline = lifeline
        self._folder = folder
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    def watch(self) -> None:
        """End this process when the supervisor has ended."""
        threading.Thread(target=self._end_with_supervisor, name="wakeful-supervisor", daemon=True).start()

    def starting(self, status: str) -> None:
        """Report what the process does before it is ready."""
        self.send(Message("status", status))

    def ready(self, status: str, health: Status) -> None:
        """Report that the process is ready, and that it works, until `close`."""
        self.send(Message("ready", status))
        self._task = asyncio.create_task(self._report(health), name="wakeful-supervisor-link")

    def stopping(self) -> None:
        """Report that the process stops."""
        if not self._stopping:
            self._stopping = True
            self.send(Message("stopping"))

    async def close(self) -> None:
        """Stop reporting."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def send(self, message: Message) -> None:
        """Send a message. The pipe is never full for long: the supervisor does nothing but read."""
        with suppress(OSError):  # the supervisor is gone, which the thread reports
            os.write(self._reports, message.line())

    async def _report(self, health: Status) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            try:
                reason = await health.ready()
            except Exception as error:  # the reports go on
                reason = f"{type(error).__name__}: {error}"
            # While the process stops, its loops stop too.
            hanging = () if self._stopping else tuple(health.hanging())
            self.send(Message("alive", reason or "", hanging))

    def _end_with_supervisor(self) -> None:
        with suppress(OSError):
            while os.read(self._lifeline, 1):
                pass
        log.error("process.supervisor_ended")
        shutil.rmtree(self._folder, ignore_errors=True)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_STOP_S)
        log.error("process.killed", reason="it did not stop in time")
        os._exit(1)


@dataclass(frozen=True, slots=True)
class Child:
    """What a process gets from its supervisor."""

    number: int
    #: whether it does what must happen once
    first: bool
    listener: socket.socket
    link: SupervisorLink
    #: the directory in which the processes exchange their metrics
    folder: Path
