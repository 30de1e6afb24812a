"""Runs the scheduler of a program on a database of its own and a clock that the test moves.

Nothing happens by itself: the harness moves the clock from one due time to the next, and waits at each until
all that is due has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import tempfile
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self
from urllib.parse import urlsplit

from wakeful.app.arguments import engine_config
from wakeful.app.calls import read_due_ms
from wakeful.app.embedded import Wakeful
from wakeful.app.home import Done, running_loop
from wakeful.client.instances import SignalLike
from wakeful.client.portal import Portal, blocking
from wakeful.engine.engine import EngineConfig
from wakeful.errors import FailedPrecondition, NotFound
from wakeful.model import Run
from wakeful.store.port import Store
from wakeful.store.sqlite import SqliteStore
from wakeful.testing.clock import MovableClock

#: Real seconds that work may take at one moment.
PATIENCE_S: Final = 10.0
#: How often in a row the engine must be idle: a notification may be on its way.
_QUIET: Final = 5
#: How many runs are read at once.
_PAGE: Final = 200
#: They would report each move of the clock.
_QUIET_LOGS: Final = ("wakeful.pruner", "wakeful.rescuer")


class Harness:
    """Runs a scheduler on a clock that the test moves: `async with Harness(app) as harness:`.

    In a sync test, `with Harness(app) as harness:` has the same methods without `await` (`SyncHarness`).

    - `app`: the scheduler of the program, with its declared jobs, functions and agents; else a new one. While
      the harness is open it has a database of its own
    - `at`: the time of the clock at the beginning; now, if it is left out
    - `url`: a PostgreSQL server, on which it creates a database and drops it at the end; else SQLite in a
      temporary file
    - `clock`: the clock, to move it before the start, or with another name
    """

    def __init__(
        self,
        app: Wakeful | None = None,
        *,
        at: datetime | str | None = None,
        url: str | None = None,
        clock: MovableClock | None = None,
    ) -> None:
        self.app = app or Wakeful("sqlite://", secret_key="secret of tests")
        self.clock = clock or MovableClock(at)
        if clock is not None and at is not None:
            clock.set_time(at)
        self._url = url
        self._stack = contextlib.AsyncExitStack()
        self._portal: Portal | None = None

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            for name in _QUIET_LOGS:
                log = logging.getLogger(name)
                stack.callback(log.setLevel, log.level)
                log.setLevel(logging.ERROR)
            self.clock.attach(lambda: _Advance(self.run_due))
            stack.callback(self.clock.detach)
            given = self.app._arguments
            config = engine_config(given.config, given.effective_settings())
            arguments = replace(
                given,
                store=await self._store(stack),
                secret_key="secret of tests",
                allow_private_targets=True,
                # Its own lanes; without a lead, a run is not recorded before its time.
                config=EngineConfig(lanes=config.lanes, limits=config.limits._replace(lead_ms=0)),
            )
            self.app._use(arguments)
            stack.callback(self.app._use)
            await stack.enter_async_context(self.app)
            await self.run_due()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()
        if error is None and self.clock.until_ms > self.clock.now_ms():
            warnings.warn(
                "the clock was advanced, but nothing was done: write `await harness.clock.advance(…)`",
                RuntimeWarning,
                stacklevel=2,
            )

    def __enter__(self) -> SyncHarness:
        if running_loop() is not None:
            raise FailedPrecondition("in an async test write `async with Harness(app) as harness:`")
        portal = self._portal = Portal(_do_nothing, "wakeful-harness")
        try:
            portal.call(self.__aenter__())
        except BaseException:
            portal.close()
            raise
        return SyncHarness(portal, self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        portal, self._portal = self._portal, None
        if portal is not None:
            try:
                portal.call(self.__aexit__(kind, error, traceback))
            finally:
                portal.close()

    async def _store(self, stack: contextlib.AsyncExitStack) -> Store:
        if self._url is not None and self._url.startswith("postgres"):
            from wakeful.store.postgres import PostgresStore

            url = await stack.enter_async_context(_own_database(self._url))
            return PostgresStore(url, clock=self.clock)
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="wakeful-test-"))
        return SqliteStore(Path(directory, "wakeful.db"), clock=self.clock)

    async def run_due(self) -> None:
        """Wait until all that is due has ended, up to the time to which the clock was advanced.

        Raises TimeoutError if something still runs after 10 real seconds.
        """
        await self._settle()
        while self.clock.until_ms > self.clock.now_ms():
            due_ms, until_ms = self.app._running_engine.due_ms, self.clock.until_ms
            if due_ms is not None and due_ms < until_ms:
                until_ms = max(due_ms, self.clock.now_ms() + 1)
            self.clock.move_to(until_ms)
            await self._settle()

    async def _settle(self) -> None:
        """Wait until all that is due at this moment has ended."""
        engine = self.app._running_engine
        engine.wake()
        quiet = 0
        try:
            async with asyncio.timeout(PATIENCE_S):
                while quiet < _QUIET:
                    await asyncio.sleep(0.001)
                    quiet = quiet + 1 if engine.is_idle else 0
        except TimeoutError:
            raise TimeoutError(
                f"work did not end within {PATIENCE_S:.0f} seconds: a function waits in real time, or for "
                "something that the test has to do"
            ) from None

    async def advance(self, by: str | timedelta | float) -> None:
        """Move the clock by text such as `"2h"`, or seconds, and do all that becomes due, in order."""
        await self.clock.advance(by)

    async def send(self, agent: str, instance: str, signal: SignalLike) -> Run:
        """Send a signal to an instance of an agent, and return its run once it has been handled."""
        await self.run_due()
        run = await self.app.agents.send(agent, instance, signal)
        await self.run_due()
        return await self.app.runs.get(run.id)

    async def enqueued(self, function: Callable[..., object] | str) -> list[Run]:
        """Return the runs of a function, or of the job of that name, oldest first."""
        await self.run_due()
        try:
            job = await self.app.jobs.get(self._name(function))
        except NotFound:
            return []
        page = await self.app.runs.list(job_id=job.id, limit=_PAGE)
        found = [*page]
        while page.cursor is not None:
            page = await self.app.runs.list(job_id=job.id, limit=_PAGE, cursor=page.cursor)
            found += page
        return found[::-1]

    async def assert_enqueued(
        self,
        function: Callable[..., object] | str,
        /,
        *,
        in_: str | timedelta | float | None = None,
        at: datetime | None = None,
        **arguments: object,
    ) -> Run:
        """Raise AssertionError unless a call of the function waits, with these arguments, due at this time.

        `in_` counts from the present time of the clock. Returns its run.
        """
        runs = [run for run in await self.enqueued(function) if run.state == "pending"]
        due_ms = read_due_ms(in_, at, self.clock.now_ms())
        for run in runs:
            scheduled_ms = round(run.scheduled_at.timestamp() * 1000)
            if due_ms in (None, scheduled_ms) and _has_arguments(run, arguments):
                return run
        waiting = "\n".join(f"  due {run.scheduled_at.isoformat()} with {run.payload}" for run in runs)
        raise AssertionError(
            f"no such call of '{self._name(function)}' waits; these do:\n{waiting or '  none'}"
        )

    def _name(self, function: Callable[..., object] | str) -> str:
        return function if isinstance(function, str) else self.app._parts.tasks.name_of(function)


class HarnessFactory(Protocol):
    """The fixture `wakeful_harness`: makes a harness on the clock `wakeful_clock`."""

    def __call__(
        self, app: Wakeful | None = None, *, at: datetime | str | None = None, url: str | None = None
    ) -> Harness:
        """Return a harness, to be used in `with` or `async with`."""
        ...


class SyncHarness:
    """The harness of `with Harness(app) as harness:`, for sync tests. The program uses `app.sync`."""

    run_due = blocking(Harness.run_due)
    advance = blocking(Harness.advance)
    send = blocking(Harness.send)
    enqueued = blocking(Harness.enqueued)
    assert_enqueued = blocking(Harness.assert_enqueued)

    def __init__(self, portal: Portal, inner: Harness) -> None:
        self.portal = portal
        self.inner = inner
        #: the scheduler, whose methods without `await` are in `app.sync`
        self.app = inner.app
        #: the clock
        self.clock = inner.clock
        self.clock.detach()
        self.clock.attach(self._follow)

    def _follow(self) -> Awaitable[None]:
        if running_loop() is not None:  # that of the harness, which must not wait for itself
            return _Advance(self.inner.run_due)
        self.portal.run(self.inner.run_due)
        return Done()


class _Advance(Awaitable[None]):
    """What becomes due until the time to which the clock was advanced."""

    def __init__(self, run_due: Callable[[], Awaitable[None]]) -> None:
        self._run_due = run_due

    def __await__(self) -> Generator[Any, None, None]:
        return self._run_due().__await__()


def _has_arguments(run: Run, arguments: dict[str, object]) -> bool:
    payload = run.payload if isinstance(run.payload, dict) else {}
    return all(key in payload and payload[key] == value for key, value in arguments.items())


@contextlib.asynccontextmanager
async def _own_database(url: str) -> AsyncIterator[str]:
    """Create a database on the server of that URL, and drop it at the end."""
    import asyncpg

    from wakeful.store.postgres.address import parse_address

    name = f"wakeful_harness_{secrets.token_hex(8)}"
    dsn = parse_address(url).dsn
    server = await asyncpg.connect(dsn)
    try:
        await server.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
    except asyncpg.InsufficientPrivilegeError as error:
        raise FailedPrecondition(
            "the harness creates a database of its own, which the role of this URL may not; allow it: "
            "ALTER ROLE … CREATEDB"
        ) from error
    finally:
        await server.close()
    try:
        yield urlsplit(url)._replace(path=f"/{name}").geturl()
    finally:
        server = await asyncpg.connect(dsn)
        try:
            await server.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        finally:
            await server.close()


async def _do_nothing() -> None:
    pass
