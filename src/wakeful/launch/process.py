"""Programs of others: each in a group of its own, heard to its end, and ended with all that it started.

What a program says is read as fast as it says it, and only the beginning and the end of it are kept: it never
waits for us, and never fills the memory. asyncio's `Process` is not used: on some versions of Python it is
over only when every pipe is closed, and whatever a program leaves behind may hold one open for ever.
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, Final, NamedTuple, cast

from wakeful.launch.port import MAX_OUTPUT
from wakeful.logs import get_logger

#: Seconds that a program has between SIGTERM and SIGKILL.
GRACE_S: Final = 2.0
#: Seconds for which somebody may hold its pipes open when it has ended itself.
LINGER_S: Final = 1.0
#: Seconds after which nobody waits any more for one that not even SIGKILL ends.
_REAP_S: Final = 5.0
#: A character more than is kept: what is cut off in the middle of one is cut off again, at its edge.
_HEAD: Final = MAX_OUTPUT + 4
_TAIL: Final = 4096

log = get_logger("wakeful.launch.process")


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be run."""

    argv: tuple[str, ...]
    #: the file that is executed, whatever argv[0] says
    program: str
    env: Mapping[str, str]
    cwd: str | None = None
    #: what it reads; None: nothing
    stdin: str | None = None


class Said:
    """What a program said on one of its streams: the beginning, and the end."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0

    def add(self, data: bytes) -> None:
        """It said more."""
        self._size += len(data)
        if len(self._head) < _HEAD:
            self._head += data[: _HEAD - len(self._head)]
        self._tail += data[-_TAIL:]
        del self._tail[:-_TAIL]

    def beginning(self) -> str:
        """As it began, at most a little more than is kept of an output."""
        return self._head.decode("utf-8", "replace")

    def last_lines(self) -> str:
        """As it ended: whole lines, unless there is but one."""
        text = self._tail.decode("utf-8", "replace").strip()
        if self._size > _TAIL and "\n" in text:
            text = text.partition("\n")[2]
        return text


class Ended(NamedTuple):
    """How a program ended, and what it said."""

    #: the exit code; the number of a signal, below 0, where one ended it
    code: int
    out: Said
    err: Said


class Processes:
    """The programs that are under way here."""

    def __init__(self) -> None:
        self._lives: dict[asyncio.Task[Ended], _Life] = {}

    async def run(self, order: Order) -> Ended:
        """Run a program to its end. OSError: it cannot be begun.

        Cancelled, it ends the program and all of its group before it lets CancelledError pass.
        """
        life = _Life(order)
        # In a task of its own: whoever is cancelled twice still leaves nothing behind.
        task = asyncio.create_task(life.live(), name="wakeful-command")
        self._lives[task] = life
        task.add_done_callback(self._lives.pop)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            life.stop()
            await asyncio.wait({task})
            raise

    async def close(self) -> None:
        """End at once whatever is still under way."""
        for life in self._lives.values():
            life.stop(at_once=True)
        if self._lives:
            await asyncio.wait(set(self._lives))


class _Life:
    """One program, from its beginning to its end."""

    def __init__(self, order: Order) -> None:
        self._order = order
        loop = asyncio.get_running_loop()
        self._stopped: asyncio.Future[None] = loop.create_future()
        self._at_once: asyncio.Future[None] = loop.create_future()

    def stop(self, at_once: bool = False) -> None:
        """See to it that it ends: in good time, or at once."""
        _done(self._stopped)
        if at_once:
            _done(self._at_once)

    async def live(self) -> Ended:
        transport, child = await self._begin()
        group = transport.get_pid()
        try:
            await _first(child.exited, self._stopped)
            if not self._stopped.done():
                await _first(child.gone, self._stopped, within=LINGER_S)
            if self._stopped.done():
                _kill(group, signal.SIGTERM)
                await _first(child.gone, self._at_once, within=GRACE_S)
                _kill(group, signal.SIGKILL)  # also where it is gone: it may have left somebody behind
            elif not child.gone.done():
                _kill(group, signal.SIGKILL)  # what it left behind still holds its pipes
            await _first(child.exited, within=_REAP_S)
            if not child.exited.done():
                log.warning("command.unkillable", pid=group, program=self._order.program)
                return Ended(-signal.SIGKILL, child.out, child.err)
            return Ended(child.exited.result(), child.out, child.err)
        except BaseException:
            _kill(group, signal.SIGKILL)  # the event loop itself is at its end
            raise
        finally:
            transport.close()

    async def _begin(self) -> tuple[asyncio.SubprocessTransport, _Child]:
        order = self._order
        loop = asyncio.get_running_loop()
        with _reading(order.stdin) as stdin:
            # In UTF-8 whatever the locale of this process says: that is what jobs are written in.
            return await loop.subprocess_exec(
                _Child,
                *(each.encode() for each in order.argv),
                executable=order.program,
                stdin=stdin,
                stdout=PIPE,
                stderr=PIPE,
                env={os.fsencode(name): _encoded(value) for name, value in order.env.items()},
                cwd=order.cwd,
                start_new_session=True,
            )


class _Child(asyncio.SubprocessProtocol):
    """Hears what a program says, and when it ends."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.out, self.err = Said(), Said()
        #: with its exit code
        self.exited: asyncio.Future[int] = loop.create_future()
        #: when it has ended, and nobody holds its pipes any more
        self.gone: asyncio.Future[None] = loop.create_future()
        self._open = {1, 2}
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        (self.out if fd == 1 else self.err).add(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        self._look()

    def process_exited(self) -> None:
        assert self._transport is not None
        code = self._transport.get_returncode()
        if not self.exited.done():
            self.exited.set_result(-signal.SIGKILL if code is None else code)
        self._look()

    def _look(self) -> None:
        if not self._open and self.exited.done():
            _done(self.gone)


@contextmanager
def _reading(text: str | None) -> Iterator[int | IO[bytes]]:
    """What a program reads from: a file that has no name, so that it may read it, or not, as it likes."""
    if text is None:
        yield DEVNULL
        return
    with _nameless() as file:
        file.write(text.encode())
        file.seek(0)
        yield file


def _nameless() -> IO[bytes]:
    if hasattr(os, "memfd_create"):  # in memory: there may be no place to write to
        return os.fdopen(os.memfd_create("wakeful-stdin"), "w+b")
    return TemporaryFile()


def _kill(group: int, number: int) -> None:
    """Send a signal to a group: to those of it that are there, and ours to end."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _first(*futures: asyncio.Future[None] | asyncio.Future[int], within: float | None = None) -> None:
    """Wait until one of them is done, or so many seconds."""
    await asyncio.wait(futures, timeout=within, return_when=asyncio.FIRST_COMPLETED)


def _encoded(value: str) -> bytes:
    # What came from our own environment may hold bytes that are no UTF-8: they go on as they came.
    return value.encode("utf-8", "surrogateescape")
