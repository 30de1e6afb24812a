"""Runs programs, each in a process group of its own, and ends them with all that they started.

Output is read at once, and only its beginning and end are kept: a program never blocks on a full pipe, and
never fills the memory. asyncio's `Process` is not used: on some versions of Python it ends only when every
pipe is closed, and a child that a program leaves behind may keep one open for ever.
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
#: Seconds that pipes may stay open after the program has exited.
LINGER_S: Final = 1.0
#: Seconds to wait for the exit after SIGKILL.
_REAP_S: Final = 5.0
#: One character more than is kept, so that the cut is at the edge of a character.
_MORE: Final = 4
_TAIL: Final = 4096

log = get_logger("wakeful.launch.process")


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """A program to run."""

    argv: tuple[str, ...]
    #: the file to execute; argv[0] may differ
    program: str
    env: Mapping[str, str]
    cwd: str | None = None
    #: its standard input; None: empty
    stdin: str | None = None
    #: how many bytes of its output are kept
    max_output: int = MAX_OUTPUT


class StreamBuffer:
    """The beginning and the end of an output stream."""

    def __init__(self, max_output: int = MAX_OUTPUT) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0
        self._max_head = max_output + _MORE

    def add(self, data: bytes) -> None:
        """Add data."""
        self._size += len(data)
        if len(self._head) < self._max_head:
            self._head += data[: self._max_head - len(self._head)]
        self._tail += data[-_TAIL:]
        del self._tail[:-_TAIL]

    def beginning(self) -> str:
        """Return the beginning of the stream: slightly more than is kept of an output."""
        return self._head.decode("utf-8", "replace")

    def last_lines(self) -> str:
        """Return the end of the stream, in whole lines unless there is only one."""
        text = self._tail.decode("utf-8", "replace").strip()
        if self._size > _TAIL and "\n" in text:
            text = text.partition("\n")[2]
        return text


class ProcessResult(NamedTuple):
    """The exit code and the output of a program."""

    #: the exit code; if a signal ended it, its negative number
    code: int
    out: StreamBuffer
    err: StreamBuffer


class ProcessGroups:
    """The running programs of this process."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[ProcessResult], _RunningProcess] = {}

    async def run(self, spec: ProcessSpec) -> ProcessResult:
        """Run a program to its end. Raises OSError if it cannot be started.

        On cancellation it ends the program and its whole group before CancelledError passes.
        """
        process = _RunningProcess(spec)
        # In a task of its own, so that a second cancellation leaves nothing behind.
        task = asyncio.create_task(process.run(), name="wakeful-command")
        self._running[task] = process
        task.add_done_callback(self._running.pop)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            process.stop()
            await asyncio.wait({task})
            raise

    async def close(self) -> None:
        """Kill all running programs."""
        for process in self._running.values():
            process.stop(at_once=True)
        if self._running:
            await asyncio.wait(set(self._running))


class _RunningProcess:
    """One program, from start to exit."""

    def __init__(self, spec: ProcessSpec) -> None:
        self._spec = spec
        loop = asyncio.get_running_loop()
        self._stopped: asyncio.Future[None] = loop.create_future()
        self._at_once: asyncio.Future[None] = loop.create_future()

    def stop(self, at_once: bool = False) -> None:
        """Stop the program: SIGTERM with a grace period, or SIGKILL at once."""
        _set_done(self._stopped)
        if at_once:
            _set_done(self._at_once)

    async def run(self) -> ProcessResult:
        transport, child = await self._begin()
        group = transport.get_pid()
        try:
            await _first(child.exited, self._stopped)
            if not self._stopped.done():
                await _first(child.closed, self._stopped, within=LINGER_S)
            if self._stopped.done():
                _kill(group, signal.SIGTERM)
                await _first(child.closed, self._at_once, within=GRACE_S)
                _kill(group, signal.SIGKILL)  # also after its exit: it may have left children
            elif not child.closed.done():
                _kill(group, signal.SIGKILL)  # a child still holds its pipes
            await _first(child.exited, within=_REAP_S)
            if not child.exited.done():
                log.warning("command.unkillable", pid=group, program=self._spec.program)
                return ProcessResult(-signal.SIGKILL, child.out, child.err)
            return ProcessResult(child.exited.result(), child.out, child.err)
        except BaseException:
            _kill(group, signal.SIGKILL)  # the event loop is closing
            raise
        finally:
            transport.close()

    async def _begin(self) -> tuple[asyncio.SubprocessTransport, _Child]:
        spec = self._spec
        loop = asyncio.get_running_loop()
        with _stdin_file(spec.stdin) as stdin:
            # Encode as UTF-8, whatever the locale: jobs are UTF-8.
            return await loop.subprocess_exec(
                lambda: _Child(spec.max_output),
                *(each.encode() for each in spec.argv),
                executable=spec.program,
                stdin=stdin,
                stdout=PIPE,
                stderr=PIPE,
                env={os.fsencode(name): _encode(value) for name, value in spec.env.items()},
                cwd=spec.cwd,
                start_new_session=True,
            )


class _Child(asyncio.SubprocessProtocol):
    """Receives the output and the exit of a program."""

    def __init__(self, max_output: int) -> None:
        loop = asyncio.get_running_loop()
        self.out, self.err = StreamBuffer(max_output), StreamBuffer()
        #: the exit code
        self.exited: asyncio.Future[int] = loop.create_future()
        #: done after the exit, once all pipes are closed
        self.closed: asyncio.Future[None] = loop.create_future()
        self._open = {1, 2}
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        (self.out if fd == 1 else self.err).add(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        self._check_closed()

    def process_exited(self) -> None:
        assert self._transport is not None
        code = self._transport.get_returncode()
        if not self.exited.done():
            self.exited.set_result(-signal.SIGKILL if code is None else code)
        self._check_closed()

    def _check_closed(self) -> None:
        if not self._open and self.exited.done():
            _set_done(self.closed)


@contextmanager
def _stdin_file(text: str | None) -> Iterator[int | IO[bytes]]:
    """Open the standard input: an anonymous file, which the program may read or ignore."""
    if text is None:
        yield DEVNULL
        return
    with _anonymous_file() as file:
        file.write(text.encode())
        file.seek(0)
        yield file


def _anonymous_file() -> IO[bytes]:
    if hasattr(os, "memfd_create"):  # in memory: the disk may not be writable
        return os.fdopen(os.memfd_create("wakeful-stdin"), "w+b")
    return TemporaryFile()


def _kill(group: int, number: int) -> None:
    """Send a signal to a process group, if it exists and belongs to us."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _first(*futures: asyncio.Future[None] | asyncio.Future[int], within: float | None = None) -> None:
    """Wait until one future is done, at most `within` seconds."""
    await asyncio.wait(futures, timeout=within, return_when=asyncio.FIRST_COMPLETED)


def _encode(value: str) -> bytes:
    # Values from our own environment may have bytes that are not UTF-8: pass them on unchanged.
    return value.encode("utf-8", "surrogateescape")
