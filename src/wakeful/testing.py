"""Tests of programs that use Wakeful: a database of their own, and a clock that the test moves.

```python
from myagents import app, send_mail
from wakeful.testing import Harness


async def test_a_reminder_is_sent_after_a_day():
    async with Harness(app, at="2030-01-01T09:00:00Z") as harness:
        await harness.app.enqueue(send_mail, to="team@example.com", in_="1d")
        await harness.assert_enqueued(send_mail, in_="1d", to="team@example.com")
        await harness.advance("1d")
        assert sent == ["team@example.com"]
```

Nothing happens by itself: `advance` moves the clock from one due time to the next, and waits at each until
all that is due has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from wakeful.app.embedded import Wakeful
from wakeful.client.instances import SignalLike
from wakeful.engine.engine import EngineConfig
from wakeful.errors import InvalidArgument
from wakeful.model import Run
from wakeful.run.planning import Limits
from wakeful.store.port import Store
from wakeful.store.sqlite import SqliteStore
from wakeful.values.duration import parse_duration

#: Real seconds that work may take at one moment.
PATIENCE_S: Final = 10.0
#: How often in a row the engine must be idle: a notification may be on its way.
_QUIET: Final = 5


class MovableClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, at: datetime | str | None = None) -> None:
        if isinstance(at, str):
            at = datetime.fromisoformat(at)
        at = at or datetime.now(UTC)
        if at.tzinfo is None:
            raise InvalidArgument("at: the time has no zone; write '2030-01-01T09:00:00Z'")
        self._now_ms = round(at.timestamp() * 1000)

    def now_ms(self) -> int:
        """Return the time in epoch milliseconds."""
        return self._now_ms

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return datetime.fromtimestamp(self._now_ms / 1000, UTC)

    def move_to(self, now_ms: int) -> None:
        """Set the time; never backwards."""
        if now_ms < self._now_ms:
            raise InvalidArgument("the clock of a test cannot go backwards")
        self._now_ms = now_ms


class Harness:
    """Runs a scheduler on a clock that the test moves. Use it as an async context manager.

    - `app`: the scheduler of the program, with its declared jobs, functions and agents; else a new one. While
      the harness is open it has a database of its own
    - `at`: the time of the clock at the beginning; now, if it is left out
    - `url`: a PostgreSQL database for the test, such as one in a container; else SQLite in a temporary file
    """

    def __init__(
        self, app: Wakeful | None = None, *, at: datetime | str | None = None, url: str | None = None
    ) -> None:
        self.app = app or Wakeful("sqlite://", secret_key="secret of tests")
        self.clock = MovableClock(at)
        self._url = url
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            for name in ("wakeful.pruner", "wakeful.rescuer"):  # they would report each move of the clock
                log = logging.getLogger(name)
                stack.callback(log.setLevel, log.level)
                log.setLevel(logging.ERROR)
            store = self._store(stack)
            arguments = replace(
                self.app._arguments,
                store=store,
                secret_key="secret of tests",
                allow_private_targets=True,
                config=EngineConfig(limits=Limits(lead_ms=0)),
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

    def _store(self, stack: contextlib.AsyncExitStack) -> Store:
        if self._url is not None and self._url.startswith("postgres"):
            from wakeful.store.postgres import PostgresStore

            return PostgresStore(self._url, clock=self.clock)
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="wakeful-test-"))
        return SqliteStore(Path(directory, "wakeful.db"), clock=self.clock)

    async def run_due(self) -> None:
        """Wait until all that is due has ended.

        Raises TimeoutError if something still runs after 10 real seconds.
        """
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
        if isinstance(by, str):
            until_ms = self.clock.now_ms() + parse_duration(by)
        else:
            seconds = by.total_seconds() if isinstance(by, timedelta) else by
            until_ms = self.clock.now_ms() + round(seconds * 1000)
        await self.run_due()
        while True:
            due_ms = self.app._running_engine.due_ms
            if due_ms is None or due_ms > until_ms:
                break
            self.clock.move_to(max(due_ms, self.clock.now_ms() + 1))
            await self.run_due()
        self.clock.move_to(until_ms)
        await self.run_due()

    async def send(self, agent: str, instance: str, signal: SignalLike) -> Run:
        """Send a signal to an instance of an agent, and return its run once it has been handled."""
        run = await self.app.agents.send(agent, instance, signal)
        await self.run_due()
        return await self.app.runs.get(run.id)

    async def enqueued(self, function: Callable[..., object] | str) -> list[Run]:
        """Return the runs of a function, or of the job of that name, oldest first."""
        name = function if isinstance(function, str) else self.app._tasks.name_of(function)
        found = [job for job in await self.app.jobs.list() if job.name == name]
        if not found:
            return []
        return [*reversed(await self.app.runs.list(job_id=found[0].id, limit=200))]

    async def assert_enqueued(
        self,
        function: Callable[..., object] | str,
        *,
        in_: str | timedelta | float | None = None,
        at: datetime | None = None,
        **arguments: object,
    ) -> Run:
        """Raise AssertionError unless a call of the function waits, with these arguments, due at this time.

        `in_` counts from the present time of the clock. Returns its run.
        """
        runs = [run for run in await self.enqueued(function) if run.state == "pending"]
        for run in runs:
            payload = run.payload if isinstance(run.payload, dict) else {}
            fits = all(key in payload and payload[key] == value for key, value in arguments.items())
            if fits and self._is_due(run, in_, at):
                return run
        name = function if isinstance(function, str) else self.app._tasks.name_of(function)
        waiting = "\n".join(f"  due {run.scheduled_at.isoformat()} with {run.payload}" for run in runs)
        raise AssertionError(f"no such call of '{name}' waits; these do:\n{waiting or '  none'}")

    def _is_due(self, run: Run, in_: str | timedelta | float | None, at: datetime | None) -> bool:
        if at is not None:
            return run.scheduled_at == at
        if in_ is None:
            return True
        seconds = parse_duration(in_) / 1000 if isinstance(in_, str) else in_
        by = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
        return run.scheduled_at == self.clock.now() + by
