"""A worker outside the server: claim runs, execute them with handlers, renew their leases, report outcomes.

- **Claims**: as many runs as there are free slots, in one long poll.
- **Leases**: one heartbeat for all runs. A run that is no longer this worker's is cancelled.
- **Outages**: handlers go on. Heartbeats and reports are repeated until the server answers; it decides by
  its fence (run and attempt) which of them still count.
- **Lost responses**: what a claim without a readable response may have given is returned to the server.
- **Stopping**: no more claims; handlers may finish; their outcomes are reported.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeVar

from wakeful.client.rest import RestClient
from wakeful.client.types import HeartbeatsShape, RunShape
from wakeful.errors import (
    InvalidArgument,
    NotFound,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
    WakefulError,
)
from wakeful.launch.function import Function, error_text
from wakeful.launch.port import truncate
from wakeful.logs import get_logger
from wakeful.model import Run
from wakeful.model.codec import from_json
from wakeful.remote.handlers import Handlers, Result, run_report, unreportable
from wakeful.remote.reporter import ReconnectBackoff, Reporter
from wakeful.values.json_value import Json

F = TypeVar("F", bound=Function)
T = TypeVar("T")

#: The most runs of one claim, and of one heartbeat.
_MAX_CLAIM: Final = 100
_MAX_HEARTBEATS: Final = 1_000
#: The most characters of what a run waits for.
_MAX_WAITING: Final = 1_000
#: How many unreported outcomes a worker keeps before it claims no more runs.
_MAX_UNREPORTED: Final = 1_000

log = get_logger("wakeful.remote")


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """The timing of a worker. The defaults suit the lease of 30 seconds."""

    #: how long the server may wait for a run before it answers a claim. With `timeout_s` less than a lease,
    #: so that what a claim without a response may have given is returned in time
    wait_ms: int = 15_000
    #: seconds between two heartbeats
    heartbeat_s: float = 10.0
    #: seconds until a request fails, without the wait of a claim
    timeout_s: float = 10.0
    #: after SIGTERM: seconds for handlers to finish, and then for their outcomes to be reported
    drain_s: float = 25.0
    report_s: float = 30.0
    #: whether running work outlives the worker: at its end nothing is reported for unfinished runs
    leave_running: bool = False
    backoff: ReconnectBackoff = field(default_factory=ReconnectBackoff)


class Worker:
    """Executes runs of `pull` jobs. Register functions, then call `run`.

    - `url`, `key`, `workspace`, `cert`, `cert_key`, `ca`: as for `AsyncClient`
    - `name`: a label that the runs show; by default the host and the process id
    - `agents`, `lanes`: only their runs; by default all that the key may claim
    - `concurrency`: how many runs it executes at once
    - `client`: a connection to use instead of `url` and `key`; `serve` closes it
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        name: str | None = None,
        workspace: str = "default",
        agents: Iterable[str] = (),
        lanes: Iterable[str] = (),
        concurrency: int = 10,
        config: WorkerConfig | None = None,
        cert: str | None = None,
        cert_key: str | None = None,
        ca: str | None = None,
        client: RestClient | None = None,
    ) -> None:
        if concurrency < 1:
            raise InvalidArgument("concurrency: write a whole number from 1")
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self.concurrency = concurrency
        self.config = config or WorkerConfig()
        self._agents, self._lanes = [*agents], [*lanes]
        timeout = self.config.timeout_s
        self._rest = client or RestClient(
            url, key, workspace=workspace, timeout=timeout, cert=cert, cert_key=cert_key, ca=ca, run_id=""
        )
        self._handlers = Handlers(concurrency)
        self._reporter: Reporter | None = None
        #: the handlers under way, and the attempt of every run that is held: running or not yet reported
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._held: dict[str, int] = {}
        self._lost: set[str] = set()
        #: what the work of runs waits for before it starts
        self._waiting: dict[str, str] = {}
        self._adopted: list[Run] = []
        #: the claims whose responses were lost: the server may hold runs for them
        self._unanswered: list[str] = []
        self._before_claim: Callable[[], Coroutine[object, object, None]] | None = None
        self._slot_freed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._reachable = False

    @property
    def reachable(self) -> bool:
        """Whether the server answered the last request."""
        return self._reachable

    @property
    def client(self) -> RestClient:
        """The connection to the server. It is closed when `serve` returns."""
        return self._rest

    @property
    def stopping(self) -> bool:
        """Whether it claims no more runs."""
        return self._stopping.is_set()

    @property
    def running(self) -> int:
        """How many runs are being executed."""
        return len(self._tasks)

    def function(self, name: str) -> Callable[[F], F]:
        """Register a function for the runs of the job of that name (`digest`, or `agent/digest`).

        A coroutine function runs in the event loop, another one in a thread. It takes the run, or nothing. It
        returns the output or a `Result`; an exception fails the attempt, `Permanent` without a retry.
        """
        if callable(name):
            raise InvalidArgument('write the name of the job: @worker.function("digest")')

        def register(function: F) -> F:
            self._handlers.add(name, function)
            return function

        return register

    def handler(self, function: F) -> F:
        """Register a function for all runs that have none by name: `@worker.handler`."""
        self._handlers.add(None, function)
        return function

    def before_claim(self, ready: Callable[[], Coroutine[object, object, None]]) -> None:
        """Claim runs only after this coroutine function has returned; it is called before each claim."""
        self._before_claim = ready

    def is_lost(self, run: Run) -> bool:
        """Return whether a run is no longer this worker's. A function in a thread checks it and returns."""
        return run.id in self._lost or self._held.get(run.id) != run.attempt

    def show_waiting(self, run: Run, reason: str | None) -> None:
        """Show what the work of a run waits for, from the next heartbeat on; None: it has started.

        The timeout of the run counts from the end of the wait.
        """
        if reason and not self.is_lost(run):
            self._waiting[run.id] = truncate(reason, _MAX_WAITING)
        else:
            self._waiting.pop(run.id, None)

    def run(self) -> None:
        """Execute runs until SIGTERM or SIGINT; then finish what is under way, and return."""
        asyncio.run(self.serve(signals=True))

    def stop(self) -> None:
        """Claim no more runs, and let `serve` return when the handlers have finished.

        A second call cancels the handlers at once.
        """
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    def adopt(self, run: Run) -> None:
        """Continue a run that was claimed before, for example by this program before a restart."""
        if self._reporter is None:
            self._adopted.append(run)
        else:
            self._begin(run)

    async def serve(self, *, signals: bool = False) -> None:
        """Execute runs until `stop` is called, or with `signals` until SIGTERM or SIGINT.

        Raises the error of the server if it refuses the worker: a wrong key, URL or workspace.
        """
        config = self.config
        self._reporter = Reporter(self._rest, config.backoff, self._note_request, self._release)
        background = [
            asyncio.create_task(self._keep(self._reporter.run), name="wakeful-remote-reports"),
            asyncio.create_task(self._keep(self._heartbeats), name="wakeful-remote-heartbeats"),
        ]
        with _on_signals(self.stop) if signals else contextlib.nullcontext():
            try:
                log.info("remote.started", worker=self.name, url=self._rest.url, slots=self.concurrency)
                for run in self._adopted:
                    self._begin(run)
                try:
                    await self._claims()
                except asyncio.CancelledError:
                    self._hurry.set()
                    raise
                finally:
                    self._stopping.set()
                    await self._drain()
            finally:
                for task in [*background, *self._tasks.values()]:
                    task.cancel()
                await asyncio.gather(*background, *self._tasks.values(), return_exceptions=True)
                self._handlers.close()
                await self._rest.close()
                log.info("remote.stopped", worker=self.name, unreported=len(self._reporter))

    async def _keep(self, doing: Callable[[], Coroutine[object, object, None]]) -> None:
        """Do something until cancelled. An unexpected error is logged, and it begins again."""
        for failures in itertools.count(1):
            try:
                await doing()
            except Exception:
                log.exception("remote.error", worker=self.name)
            await asyncio.sleep(self.config.backoff.delay(failures))

    # --- claims -----------------------------------------------------------------------------------

    async def _claims(self) -> None:
        """Claim runs until the worker stops."""
        failures, accepted = 0, False
        while not self._stopping.is_set():
            if self._before_claim is not None:
                await self._unless_stopping(self._before_claim())
                if self._stopping.is_set():
                    break
            free = self._free_slots()
            if free <= 0:
                self._slot_freed.clear()
                await self._unless_stopping(self._slot_freed.wait())
                continue
            try:
                claimed = await self._unless_stopping(self._claim(min(free, _MAX_CLAIM)))
            except Exception as error:
                failures += 1
                if not isinstance(error, WakefulError):
                    log.exception("remote.error", worker=self.name)
                    error = Unavailable(f"the claim failed: {type(error).__name__}: {error}")
                self._note_request(error)
                if _is_final(error, accepted):
                    raise
                await self._unless_stopping(asyncio.sleep(self.config.backoff.delay(failures)))
                continue
            if claimed is not None:
                failures, accepted = 0, True
                self._note_request(None)
                self._unanswered.clear()
                for run in claimed:
                    self._receive(run)

    async def _claim(self, limit: int) -> list[RunShape]:
        """Return what was claimed. It is among the unanswered ones until its response is processed."""
        await self._return_unanswered()
        claim_id = uuid.uuid4().hex
        # The first claim does not wait, so that it is soon known whether the server is reachable.
        wait_ms = self.config.wait_ms if self._reachable else 0
        self._unanswered.append(claim_id)
        try:
            return await self._rest.claim_runs(
                worker=self.name,
                agents=self._agents,
                lanes=self._lanes,
                limit=limit,
                wait_ms=wait_ms,
                claim_id=claim_id,
            )
        except (Unauthenticated, PermissionDenied, NotFound, InvalidArgument):  # refused: it claimed nothing
            self._unanswered.remove(claim_id)
            raise

    async def _return_unanswered(self) -> None:
        """Return the runs of claims whose responses were lost, so that others can execute them."""
        for claim_id in [*self._unanswered]:
            try:
                await self._rest.release_runs(worker=self.name, claim_id=claim_id)
            except Unavailable:
                raise
            except WakefulError as error:  # an older server, or a key that was revoked: their leases end
                log.warning("remote.not_returned", worker=self.name, error=error.message)
            self._unanswered.remove(claim_id)

    async def _return_at_end(self) -> None:
        """Return them before the worker ends, if the server can be reached soon."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.timeout_s):
                for failures in itertools.count(1):
                    try:
                        return await self._return_unanswered()
                    except Exception as error:
                        if not isinstance(error, Unavailable):
                            log.exception("remote.error", worker=self.name)
                        await asyncio.sleep(self.config.backoff.delay(failures))
        log.warning("remote.not_returned", worker=self.name, error="the server did not respond in time")

    def _receive(self, claimed: RunShape) -> None:
        """Begin a claimed run. One that this version cannot read fails."""
        assert self._reporter is not None
        try:
            run = from_json(Run, claimed)
        except WakefulError as error:
            given: Mapping[str, object] = {**claimed}
            run_id, attempt = given.get("id"), given.get("attempt")
            log.error("remote.unreadable", run_id=run_id, attempt=attempt, error=error.message)
            if isinstance(run_id, str) and isinstance(attempt, int):  # else its lease ends
                self._held[run_id] = attempt
                self._reporter.submit(unreportable({"id": run_id, "attempt": attempt}, error.message))
        else:
            self._begin(run)

    def _free_slots(self) -> int:
        assert self._reporter is not None
        return min(self.concurrency - len(self._tasks), _MAX_UNREPORTED - len(self._reporter))

    # --- handlers ---------------------------------------------------------------------------------

    def _begin(self, run: Run) -> None:
        earlier = self._tasks.get(run.id)
        self._lost.discard(run.id)
        self._waiting.pop(run.id, None)
        self._held[run.id] = run.attempt
        if earlier is not None:  # its lease expired before a heartbeat reported it
            earlier.cancel()
        task = asyncio.create_task(self._execute(run), name=f"wakeful-remote-{run.id}")
        self._tasks[run.id] = task

    async def _execute(self, run: Run) -> None:
        assert self._reporter is not None
        try:
            result = await self._handlers.call(run)
        except asyncio.CancelledError:
            if self.is_lost(run) or self.config.leave_running:
                self._release(run.id, run.attempt)
                raise
            result = Result(error="its worker stopped before it had finished")
        finally:
            if self._tasks.get(run.id) is asyncio.current_task():
                del self._tasks[run.id]
            self._slot_freed.set()
        if self.is_lost(run):
            self._release(run.id, run.attempt)
        else:
            self._reporter.submit(_report(run, result))

    def _release(self, run_id: str, attempt: int) -> None:
        """Forget an attempt that is reported or lost. A later one may be held already."""
        if self._held.get(run_id) == attempt:
            del self._held[run_id]
            self._lost.discard(run_id)
            self._waiting.pop(run_id, None)
        self._slot_freed.set()

    # --- leases -----------------------------------------------------------------------------------

    async def _heartbeats(self) -> None:
        failures = 0
        while True:
            # After a failure soon again: a lease has room for few of them.
            wait_s = self.config.backoff.delay(failures) if failures else self.config.heartbeat_s
            await asyncio.sleep(min(wait_s, self.config.heartbeat_s))
            failures = 0 if await self.heartbeat() else failures + 1

    async def heartbeat(self) -> bool:
        """Renew the leases of all runs, and cancel the handlers of those that are lost.

        Returns False if the server did not answer.
        """
        held = iter([*self._held.items()])
        while part := [*islice(held, _MAX_HEARTBEATS)]:
            try:
                beat = await self._renew(part)
            except WakefulError as error:  # the next one may succeed; the server decides what is lost
                self._note_request(error)
                return False
            self._note_request(None)
            attempts = dict(part)
            for run_id in beat["lost"]:
                if run_id in attempts and self._held.get(run_id) == attempts[run_id]:
                    self._lose(run_id)
        return True

    async def _renew(self, held: Sequence[tuple[str, int]]) -> HeartbeatsShape:
        attempts = [{"id": run_id, "attempt": attempt} for run_id, attempt in held]
        waiting = {run_id: self._waiting[run_id] for run_id, _ in held if run_id in self._waiting}
        try:
            return await self._rest.heartbeat_runs(runs=attempts, waiting_for=waiting or None)
        except InvalidArgument:
            if not waiting:
                raise
            self._waiting.clear()  # an older server does not know it
            return await self._rest.heartbeat_runs(runs=attempts)

    def _lose(self, run_id: str) -> None:
        assert self._reporter is not None
        self._reporter.drop(run_id, self._held[run_id])
        task = self._tasks.get(run_id)
        if task is not None:
            log.warning("remote.lost", run_id=run_id, attempt=self._held[run_id], worker=self.name)
            self._lost.add(run_id)
            task.cancel()

    # --- the end ----------------------------------------------------------------------------------

    async def _drain(self) -> None:
        assert self._reporter is not None
        config = self.config
        log.info("remote.draining", worker=self.name, running=len(self._tasks))
        returning = asyncio.create_task(self._return_at_end())
        if self._tasks and not config.leave_running:
            finished = asyncio.create_task(asyncio.wait([*self._tasks.values()]))
            hurry = asyncio.create_task(self._hurry.wait())
            await asyncio.wait({hurry, finished}, timeout=config.drain_s, return_when=asyncio.FIRST_COMPLETED)
            hurry.cancel()
            finished.cancel()
        left = [*self._tasks.values()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=config.report_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(config.report_s):
                await self._reporter.flush()
        await returning

    async def _unless_stopping(self, doing: Coroutine[object, object, T]) -> T | None:
        """Return the result of a coroutine; None if the worker stops before."""
        task = asyncio.create_task(doing)
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
            return None if task.cancelled() else task.result()
        finally:
            task.cancel()
            stopping.cancel()

    def _note_request(self, error: WakefulError | None) -> None:
        """Log when the server becomes unreachable, and when it is reachable again."""
        if error is None and not self._reachable:
            log.info("remote.connected", worker=self.name, url=self._rest.url)
        elif error is not None and self._reachable:
            log.warning("remote.unreachable", worker=self.name, error=error.message)
        self._reachable = error is None


def _report(run: Run, result: Result) -> dict[str, Json]:
    """Return the report of a result, or of a failure if the result cannot be encoded."""
    try:
        return run_report(run.id, run.attempt, result)
    except BaseException as error:  # the values are those of the handler: even `repr` may raise anything
        log.warning("remote.unencodable", run_id=run.id, attempt=run.attempt, exc_info=error)
        return unreportable(
            {"id": run.id, "attempt": run.attempt}, f"it cannot be encoded: {error_text(error)}"
        )


def _is_final(error: WakefulError, accepted: bool) -> bool:
    """Return whether the same claim fails again. A proxy without a server behind it may respond anything."""
    if isinstance(error, Unauthenticated | PermissionDenied):
        return True
    return isinstance(error, NotFound | InvalidArgument) and not accepted


@contextlib.contextmanager
def _on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` for SIGTERM and SIGINT. Outside of the main thread and on Windows they end the process."""
    loop, numbers = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
    unsupported = contextlib.suppress(NotImplementedError, RuntimeError, ValueError)
    for number in numbers:
        with unsupported:
            loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            with unsupported:
                loop.remove_signal_handler(number)
