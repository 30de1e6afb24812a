"""Starts the processes of a server, restarts those that end, and stops them all.

The supervisor binds the port once, and the processes inherit the socket: the kernel gives each connection to
one of them. It does nothing else, so that nothing can stop it: no event loop, no database, no threads.

The first process starts alone and does what must happen once (migrations, the first key); the others follow
when it is ready. SIGTERM and SIGINT stop all processes, and a second signal kills them.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from wakeful.errors import FailedPrecondition, IncompatibleSchema, Unavailable, WakefulError
from wakeful.logs import get_logger
from wakeful.server.processes.child import SILENT_S, Child, Message, Restarts, SupervisorLink
from wakeful.server.service_manager import ServiceManager
from wakeful.values.process_share import SUPERVISOR, ProcessShare, set_share

#: Seconds for a stop: as long as docs/operations/deploy.md says.
_STOP_S: Final = 45.0
#: The longest sleep: hanging processes are noticed, and the service manager hears of this one.
_TICK_S: Final = 5.0
#: A unix socket has a path of at most 107 bytes; the names in the directory need a few.
_LONGEST_FOLDER: Final = 80
#: The signals that stop the server.
_STOPS: Final = (signal.SIGTERM, signal.SIGINT)

log = get_logger("wakeful.supervisor")

#: Runs a process and returns its exit code.
RunChild = Callable[[Child], int]
#: Gets what the first process has prepared, when all are ready.
Started = Callable[[Mapping[str, str | bool | None]], None]


@dataclass(slots=True)
class _Process:
    """A process by its number; it may have ended and wait for its next start."""

    number: int
    #: when to start it, in monotonic seconds; None: it runs, or waits for the first process
    start_at: float | None = None
    pid: int | None = None
    reports: int | None = None
    unread: bytes = b""
    history: Restarts = field(default_factory=Restarts)
    ready_at: float | None = None
    heard_at: float = 0.0
    hanging_since: float | None = None
    failure: Message | None = None
    #: why it is not ready, although it runs
    problem: str = ""


class Supervisor:
    """Runs `count` processes on one listening socket until a signal."""

    def __init__(
        self,
        count: int,
        listener: socket.socket,
        manager: ServiceManager,
        run_child: RunChild,
        started: Started,
        *,
        status: str,
    ) -> None:
        self._listener = listener
        self._manager = manager
        self._run_child = run_child
        self._started = started
        self._status = status
        self._shown = ""
        self._alive_at = 0.0
        self._processes = [_Process(number) for number in range(1, count + 1)]
        self._prepared: Mapping[str, str | bool | None] | None = None
        self._announced = False
        self._signals: list[int] = []
        self._handled = 0
        self._stop_until: float | None = None
        self._error: WakefulError | None = None
        self._selector = selectors.DefaultSelector()
        self._lifeline = os.pipe()
        temporary = tempfile.gettempdir()
        self._folder = Path(
            tempfile.mkdtemp(prefix="wakeful-", dir=temporary if len(temporary) < _LONGEST_FOLDER else "/tmp")
        )

    def run(self) -> None:
        """Run until all processes have stopped. Raises why they could not start, or not stop in order."""
        set_share(ProcessShare(SUPERVISOR, len(self._processes), os.getpid()))
        try:
            with self._receiving_signals():
                log.info("supervisor.started", processes=len(self._processes))
                gc.collect()
                gc.freeze()  # the processes share the memory of what they have in common
                self._processes[0].start_at = time.monotonic()
                while self._stop_until is None or any(each.pid for each in self._processes):
                    self._step()
        finally:
            for each in self._processes:
                self._kill(each)
            self._listener.close()
            shutil.rmtree(self._folder, ignore_errors=True)
        log.info("supervisor.stopped")
        if self._error is not None:
            raise self._error

    def _step(self) -> None:
        now = time.monotonic()
        due = [each.start_at - now for each in self._processes if each.start_at is not None]
        waits = [_TICK_S, *due, *([self._stop_until - now] if self._stop_until is not None else [])]
        if self._manager.watchdog_s is not None:
            waits.append(self._manager.watchdog_s / 2)
        for key, _ in self._selector.select(max(0.0, min(waits))):
            if isinstance(key.data, _Process):
                self._read(key.data)
            else:
                os.read(key.fd, 512)
        while self._handled < len(self._signals):
            self._handled += 1
            self._stop(again=self._handled > 1)
        for each in self._processes:
            self._reap(each)
        now = time.monotonic()
        if self._stop_until is None:
            for each in self._processes:
                if each.start_at is not None and each.start_at <= now:
                    self._start(each)
                self._check_hanging(each, now)
        elif now >= self._stop_until:
            self._stop(again=True)
        self._report()

    # --- starting --------------------------------------------------------------------------------

    def _start(self, process: _Process) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()  # otherwise both processes would write what is buffered
        pid = reading = writing = -1
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)  # until the new process has its handlers
        try:
            reading, writing = os.pipe()
            pid = os.fork()
        except OSError as error:  # files, processes or memory have run out
            for end in (reading, writing):
                with contextlib.suppress(OSError):
                    os.close(end)
            if not self._announced:
                raise
            self._start_later(process, error)
            return
        finally:
            if pid != 0:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
        if pid == 0:
            os.close(reading)
            self._become(process.number, writing)
        os.close(writing)
        os.set_blocking(reading, False)
        process.pid, process.reports, process.unread = pid, reading, b""
        process.start_at = process.ready_at = process.hanging_since = process.failure = None
        process.problem = ""
        self._selector.register(reading, selectors.EVENT_READ, process)
        log.info("process.started", number=process.number, pid=pid)

    def _start_later(self, process: _Process, error: OSError) -> None:
        """Try again after a while to start a process in place of one that ended. The others go on."""
        process.history = process.history.after_end(None, counts=False)
        process.start_at = time.monotonic() + process.history.delay_s
        log.error(
            "process.not_started",
            number=process.number,
            error=str(error),
            restart_in_s=process.history.delay_s,
        )

    def _become(self, number: int, reports: int) -> None:
        """Run the process, in the fork. Does not return."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for each in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(each, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: the supervisor sends SIGTERM
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
            self._selector.close()
            os.close(self._lifeline[1])
            for other in self._processes:
                if other.reports is not None:
                    os.close(other.reports)
            os.set_blocking(reports, False)
            set_share(ProcessShare(number, len(self._processes), os.getppid()))
            link = SupervisorLink(reports, self._lifeline[0], self._folder)
            link.watch()
            child = Child(number, self._prepared is None, self._listener, link, self._folder)
            try:
                code = self._run_child(child)
            except WakefulError as error:
                link.send(Message.of_error(error))
            except BaseException:
                sys.excepthook(*sys.exc_info())
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
        finally:
            os._exit(code)

    def _announce(self) -> None:
        if self._announced or not all(each.ready_at for each in self._processes):
            return
        self._announced = True
        log.info("supervisor.ready", processes=len(self._processes))
        self._manager.ready_now(self._status)
        self._started(self._prepared or {})

    # --- messages --------------------------------------------------------------------------------

    def _read(self, process: _Process) -> None:
        """Handle the messages of a process. A process that has ended has none left."""
        assert process.reports is not None
        try:
            data = os.read(process.reports, 65_536)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(process.reports)
            os.close(process.reports)
            process.reports = None
            return
        *lines, process.unread = (process.unread + data).split(b"\n")
        for line in lines:
            self._handle(process, Message.of_line(line))

    def _handle(self, process: _Process, message: Message) -> None:
        process.heard_at = time.monotonic()
        if message.kind == "status":
            process.problem = message.text
        elif message.kind == "prepared":
            self._prepared = message.values
        elif message.kind == "ready":
            process.problem = ""
            process.ready_at = process.heard_at
            self._prepared = self._prepared or {}
            for other in self._processes:
                if other.pid is None and other.start_at is None:
                    other.start_at = process.heard_at
            self._announce()
        elif message.kind == "failed":
            process.failure = message
        elif message.kind == "alive":
            process.problem = message.text and f"process {process.number} is not ready: {message.text}"
            if not message.names:
                self._resume(process)
            elif process.hanging_since is None:
                process.hanging_since = process.heard_at
                log.error(
                    "process.hanging", number=process.number, pid=process.pid, loops=list(message.names)
                )

    def _check_hanging(self, process: _Process, now: float) -> None:
        if process.pid is None or process.ready_at is None:
            return
        if process.hanging_since is None and now - process.heard_at > SILENT_S:
            process.hanging_since = process.heard_at
            seconds = round(now - process.heard_at)
            log.error("process.hanging", number=process.number, pid=process.pid, seconds=seconds)
        limit = self._manager.watchdog_s
        if limit is not None and process.hanging_since is not None and now - process.hanging_since > limit:
            log.error("process.killed", number=process.number, pid=process.pid, reason="it hangs")
            self._kill(process)
            process.hanging_since = now  # it may take a moment to end

    def _resume(self, process: _Process) -> None:
        if process.hanging_since is not None:
            process.hanging_since = None
            log.info("process.resumed", number=process.number, pid=process.pid)

    def _report(self) -> None:
        """Tell the service manager that this process works, and the state of the others if it has changed."""
        watchdog_s, now = self._manager.watchdog_s, time.monotonic()
        if watchdog_s is not None and self._announced and now - self._alive_at >= watchdog_s / 2:
            self._alive_at = now
            self._manager.alive()
        problem = next((each.problem for each in self._processes if each.problem), "")
        status = problem or (self._status if self._announced else "starting")
        if self._stop_until is None and status != self._shown:
            self._shown = status
            self._manager.starting(status)

    # --- ends ------------------------------------------------------------------------------------

    def _reap(self, process: _Process) -> None:
        if process.pid is None:
            return
        pid, status = os.waitpid(process.pid, os.WNOHANG)
        if pid == 0:
            return
        while process.reports is not None:  # its last messages
            before = process.reports, process.unread
            self._read(process)
            if (process.reports, process.unread) == before:
                self._selector.unregister(process.reports)  # a program that it started holds the pipe
                os.close(process.reports)
                process.reports = None
        process.pid = None
        self._end_child(process, pid, os.waitstatus_to_exitcode(status))

    def _end_child(self, process: _Process, pid: int, code: int) -> None:
        failure = process.failure.error() if process.failure is not None else None
        if self._stop_until is not None:
            self._error = self._error or failure
            return
        now = time.monotonic()
        ready_for = None if process.ready_at is None else now - process.ready_at
        process.history = process.history.after_end(ready_for, counts=not isinstance(failure, Unavailable))
        process.ready_at, process.problem = None, ""
        log.error(
            "process.ended",
            number=process.number,
            pid=pid,
            reason=_ending(code),
            error=failure and failure.message,
            restart_in_s=process.history.delay_s,
        )
        if failure is not None and (not self._announced or isinstance(failure, IncompatibleSchema)):
            self._give_up(failure)
        elif process.history.exhausted:
            cause = failure.message if failure is not None else _ending(code)
            self._give_up(
                FailedPrecondition(
                    f"process {process.number} ended {process.history.failed_starts} times before it was "
                    f"ready, the last time with: {cause}; the log has the reason"
                )
            )
        else:
            process.start_at = now + process.history.delay_s

    def _give_up(self, error: WakefulError) -> None:
        self._error = self._error or error
        self._stop()

    def _stop(self, *, again: bool = False) -> None:
        alive = [each for each in self._processes if each.pid is not None]
        if self._stop_until is None:
            log.info("supervisor.stopping", processes=len(alive))
            self._manager.stopping()
            self._stop_until = time.monotonic() + _STOP_S
            self._listener.close()  # otherwise connections would wait for a process until this one ends
            for each in self._processes:
                each.start_at = None
                if each.pid is not None:
                    os.kill(each.pid, signal.SIGTERM)
        elif again:
            self._stop_until = time.monotonic() + _STOP_S
            for each in alive:
                log.error("process.killed", number=each.number, pid=each.pid, reason="it did not stop")
                self._kill(each)
            self._error = self._error or WakefulError(
                f"killed {len(alive)} processes that had not stopped; their runs start again after 30 s"
            )

    def _kill(self, process: _Process) -> None:
        if process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)

    @contextlib.contextmanager
    def _receiving_signals(self) -> Iterator[None]:
        """Record signals, and end the sleep of the selector at each."""
        ended, telling = os.pipe()
        for end in (ended, telling):
            os.set_blocking(end, False)
        self._selector.register(ended, selectors.EVENT_READ)
        before = {
            signal.SIGTERM: signal.signal(signal.SIGTERM, lambda number, _: self._signals.append(number)),
            signal.SIGINT: signal.signal(signal.SIGINT, lambda number, _: self._signals.append(number)),
            signal.SIGCHLD: signal.signal(signal.SIGCHLD, lambda *_: None),
        }
        signal.set_wakeup_fd(telling, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(ended)
            os.close(telling)
            self._selector.close()


def _ending(code: int) -> str:
    """Return how a process ended.

    >>> _ending(1), _ending(-9)
    ('exit code 1', 'SIGKILL')
    """
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"
