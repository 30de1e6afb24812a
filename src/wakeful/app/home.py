"""The event loop of an embedded scheduler, and calls to it from sync code, other threads and other loops."""

from __future__ import annotations

import asyncio
import atexit
import functools
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from wakeful.client.portal import Portal
from wakeful.errors import FailedPrecondition, WakefulError
from wakeful.logs import get_logger

if TYPE_CHECKING:
    from wakeful.service.services import Services

R = TypeVar("R")

NOT_STARTED: Final = (
    "this Wakeful has not started; use `with app:` or `app.start()` (`async with app:`) first"
)
_STARTED: Final = "this Wakeful has already started; create another one for another replica"
_FORKED: Final = "this Wakeful was started before a fork; create and start one in each process"

log = get_logger("wakeful.app")


class Home:
    """The loop that a scheduler runs on, from its start to its stop, and the declared jobs that it saves."""

    def __init__(self) -> None:
        #: that of the calls
        self.loop: asyncio.AbstractEventLoop | None = None
        #: the same, from the beginning of a start until the end of the stop
        self.owner: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        #: makes a loop for a call that finds none; None: such a call is an error
        self.on_absent: Callable[[], object] | None = None
        self._saves: set[asyncio.Task[None]] = set()
        self._error: WakefulError | None = None

    def claim(self) -> None:
        """Begin a start on the running loop. FailedPrecondition: another one has begun, and no stop ended."""
        self.check_unclaimed()
        self.owner = asyncio.get_running_loop()

    def check_unclaimed(self) -> None:
        """Raise FailedPrecondition from the beginning of a start until the end of the stop."""
        if self.owner is not None:
            raise FailedPrecondition(_STARTED)

    def open(self) -> None:
        """Accept calls from other threads and loops: they run on the running loop."""
        self.loop, self._pid = asyncio.get_running_loop(), os.getpid()

    def close(self) -> None:
        """Accept no more calls."""
        self.loop = None

    def release(self) -> None:
        """End a stop."""
        self.owner = None

    @property
    def is_of_parent(self) -> bool:
        """Whether this process is a fork, and the scheduler runs in its parent."""
        return self.loop is not None and self._pid != os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether the caller runs on the loop."""
        return self.loop is not None and running_loop() is self.loop

    def require_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop, or raise FailedPrecondition."""
        if self.loop is None:
            raise FailedPrecondition(NOT_STARTED)
        if self.is_of_parent:
            raise FailedPrecondition(_FORKED)
        if not self.loop.is_running():  # the call would never end
            raise FailedPrecondition("the event loop that this Wakeful was started on is not running")
        return self.loop

    def save(self, name: str, call: Callable[[], Coroutine[object, object, None]]) -> None:
        """Save a declared job: before this returns, or, called on the loop, before the next call on it.

        An error of a save on the loop is raised by that next call.
        """
        if not self.is_here:
            asyncio.run_coroutine_threadsafe(call(), self.require_loop()).result()
            return
        task = self.require_loop().create_task(self._save(name, call))
        self._saves.add(task)
        task.add_done_callback(self._saves.discard)

    async def _save(self, name: str, call: Callable[[], Coroutine[object, object, None]]) -> None:
        try:
            await call()
        except WakefulError as error:
            log.error("job.not_saved", job=name, reason=error.message)
            self._error = error

    async def settle(self) -> None:
        """Wait until all declared jobs are saved; raise the error of one that was not."""
        while self._saves:
            await asyncio.wait(self._saves)
        error, self._error = self._error, None
        if error is not None:
            raise error

    async def run(self, call: Callable[[], Coroutine[object, object, R]]) -> R:
        """Return the result of a call, which runs on the loop of the scheduler."""
        if self.loop is None and self.on_absent is not None:
            await asyncio.to_thread(self.on_absent)
        if self.loop is None and self.owner not in (None, running_loop()):
            raise FailedPrecondition(NOT_STARTED)  # it starts or stops on another loop
        if self.loop is None or self.is_here:
            if self._saves or self._error is not None:
                await self.settle()
            return await call()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call(), self.require_loop()))


class HomePortal(Portal):
    """Blocking calls to a scheduler from any thread and any event loop but its own."""

    def __init__(self, home: Home, kind: str) -> None:
        super().__init__(_do_nothing)
        self._home = home
        #: the database: `sqlite` or `postgresql`
        self.kind = kind

    def call_method(
        self, method: Callable[..., Coroutine[object, object, R]], *args: Any, **kwargs: Any
    ) -> R:
        """Return the result of a method of a part; with `connection`, it is called on this thread."""
        connection, part = kwargs.get("connection"), getattr(method, "__self__", None)
        if connection is None:
            return super().call_method(method, *args, **kwargs)
        from wakeful.app.caller_connection import run_blocking  # imports the store

        call: Callable[..., Coroutine[object, object, R]] = inspect.unwrap(method)
        return run_blocking(self.run, self.kind, connection, lambda: call(part, *args, **kwargs))

    def _require_loop(self) -> asyncio.AbstractEventLoop:
        if self._home.is_here:
            raise FailedPrecondition(
                "`app.sync` would block the event loop of this Wakeful; use `await app.…` here, or call it "
                "in another thread (`asyncio.to_thread`)"
            )
        if self._home.loop is None and self._home.on_absent is not None:
            self._home.on_absent()
        return self._home.require_loop()


class Done(Coroutine[Any, Any, None]):
    """A call that has returned already: it may be awaited or run, and need not."""

    def __repr__(self) -> str:
        return "done"  # what a prompt shows after `app.start()`

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield

    def send(self, value: object) -> None:
        """End."""
        raise StopIteration

    def throw(self, *error: Any) -> None:
        """Raise the error."""
        raise error[0]

    def close(self) -> None:
        """Do nothing."""


def call_at_exit(call: Callable[[], object]) -> None:
    """Call the method before the program ends, while threads may still be used."""
    method = weakref.WeakMethod(call)

    def exit_program() -> None:
        alive = method()
        if alive is not None:
            alive()

    # `atexit` comes too late: pools of threads refuse work by then.
    getattr(threading, "_register_atexit", atexit.register)(exit_program)


class LocalPart:
    """A part of a scheduler in this process, such as `app.runs`.

    Its async methods run on the loop of the scheduler, wherever they are awaited. Without an event loop they
    raise an error that names the method of `app.sync`.
    """

    def __init__(self, services: Services, workspace: str, home: Home | None = None) -> None:
        self._services = services
        self._workspace = workspace
        self._home = home or Home()

    def __init_subclass__(cls) -> None:
        for name, method in inspect.getmembers(cls, inspect.iscoroutinefunction):
            if not name.startswith("_"):
                setattr(cls, name, _run_at_home(f"{cls.__name__.lower()}.{name}", method))


def _run_at_home(name: str, method: Callable[..., Coroutine[object, object, R]]) -> Callable[..., object]:
    @functools.wraps(method)
    def call(self: LocalPart, *args: object, **kwargs: object) -> Coroutine[object, object, R]:
        if running_loop() is None:
            raise FailedPrecondition(
                f"`app.{name}` needs `await` in an async function; in a sync function use `app.sync.{name}`"
            )
        home, connection = self._home, kwargs.get("connection")
        if connection is None:
            return home.run(lambda: method(self, *args, **kwargs))
        from wakeful.app.caller_connection import run_async  # imports the store

        kind = self._services.store.kind
        return run_async(home.run, kind, connection, lambda: method(self, *args, **kwargs))

    return call


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that the caller runs on, if any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _do_nothing() -> None:
    pass
