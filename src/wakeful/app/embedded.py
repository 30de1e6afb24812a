"""The embedded scheduler: its arguments, its start and its stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from wakeful.app.functions import AppFunctions
from wakeful.app.home import NOT_STARTED, Done, Home, call_at_exit, running_loop
from wakeful.client.portal import Portal
from wakeful.errors import FailedPrecondition, WakefulError

if TYPE_CHECKING:  # imported when a scheduler is constructed: they import the services and the stores
    from wakeful.agents.agent import Agent
    from wakeful.app.arguments import AppArguments
    from wakeful.app.calls import Task
    from wakeful.app.declared import Declared
    from wakeful.client.scheduler import Scheduler
    from wakeful.document import Defaults
    from wakeful.engine.engine import Engine, EngineConfig
    from wakeful.launch.function import HandlerContext
    from wakeful.settings import Settings
    from wakeful.store.port import Store

#: How often a call of another thread looks whether the loop that it waits for is closed, in seconds.
_LOOK_S: Final = 0.1
#: A coroutine in async programs. Not typed as one: type checkers would want it awaited in sync programs too.
AwaitedOrDone: TypeAlias = Any


class Wakeful(AppFunctions):
    """A scheduler in this process. Use it as an async context manager; several may share a database.

    Functions decorated with `cron`, `every` or `at` become jobs of `agent` in `workspace`: each start upserts
    them. A function takes the run (`wakeful.Launch`), or no argument.

    - `url`: `sqlite:///wakeful.db`, `sqlite:////an/absolute/path.db`, or `postgresql://…`
    - `secret_key`: encrypts webhook secrets in the database. Without it, SQLite uses a key file beside the
      database, created on first use; PostgreSQL refuses jobs with webhooks
    - `allow_private_targets`: webhooks may reach private and loopback addresses
    - `commands`: the programs that jobs may run: `/usr/bin/rsync`, `rsync`, `/opt/jobs/*`, or `*` for all
    - `command_env`: the environment variables that jobs may set for them: `REPORT_TO`, `JOB_*` (the default)
    - `celery`: the Celery app whose tasks jobs may run
    - `defaults`: the defaults of job fields
    - `config`: concurrency limits and the timing of the engine
    - `grace`: seconds that running work has to finish when the scheduler stops
    - `wait_for_db`: seconds to wait at the start for a database that is unavailable
    - `handler_context`: returns a context manager in which each call of a function or a handler runs, such as
      `flask_app.app_context`
    - `connect_on_use`: a call before the start opens the database, and other processes run the jobs: for
      processes that serve requests and enqueue work

    Arguments that are not given come from `settings`, else from the environment (`WAKEFUL_DB`,
    `WAKEFUL_SECRET_KEY`, `WAKEFUL_DEFAULT_TZ` …), else they have their defaults.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        workspace: str = "default",
        agent: str = "default",
        secret_key: str | None = None,
        allow_private_targets: bool | None = None,
        commands: Sequence[str] | None = None,
        command_env: Sequence[str] | None = None,
        celery: object | None = None,
        defaults: Defaults | None = None,
        config: EngineConfig | None = None,
        grace: float = 10.0,
        wait_for_db: float | None = None,
        handler_context: HandlerContext | None = None,
        connect_on_use: bool = False,
        store: Store | None = None,
        settings: Settings | None = None,
    ) -> None:
        from wakeful.app.arguments import AppArguments
        from wakeful.app.overrides import overrides
        from wakeful.launch.function import FunctionLauncher

        self._arguments = AppArguments(
            url=url,
            workspace=workspace,
            agent=agent,
            secret_key=secret_key,
            allow_private_targets=allow_private_targets,
            commands=commands,
            command_env=command_env,
            celery=celery,
            defaults=defaults,
            config=config,
            grace=grace,
            wait_for_db=wait_for_db,
            store=store,
            settings=settings,
        )
        #: the settings that these arguments override
        self.overrides = overrides(self._arguments)
        self._functions = FunctionLauncher(context=handler_context)
        self._connect_on_use = connect_on_use
        self._connecting = threading.Lock()
        self._declared: dict[str, Declared] = {}
        self._task_functions: dict[object, Task] = {}
        self._agent_classes: list[type[Agent]] = []
        self._assemble(self._arguments)

    def _use(self, arguments: AppArguments | None = None) -> None:
        """Use these arguments from the next start on, else those of the constructor. For tests."""
        self.home.check_unclaimed()
        self._assemble(arguments or self._arguments)

    def _assemble(self, arguments: AppArguments) -> None:
        from wakeful.app.assembly import ANNOTATED, Assembly

        for each in (Wakeful, AppFunctions):
            vars(sys.modules[each.__module__]).update(ANNOTATED)
        self._engine: Engine | None = None
        #: whether the program is inside of `async with`
        self._is_entered = False
        #: whether the database is open without an engine
        self._connected = False
        self._stopping = asyncio.Event()
        #: done when the start or stop that is under way has ended
        self._change_ended: Future[None] | None = None
        #: closes the exporter of traces
        self._tracing = contextlib.AsyncExitStack()
        #: why the engine stops by itself; `on_error` is called then
        self.error: WakefulError | None = None
        self.on_error: Callable[[], None] = lambda: None
        #: called when the database is open, before the engine starts
        self.before_start: Callable[[], Awaitable[None]] = _nothing
        #: the event loop that this scheduler runs on
        self.home = Home()
        if self._connect_on_use:
            self.home.on_absent = self._connect_on_thread
        self._portal: Portal | None = None
        parts = self._parts = Assembly(
            arguments, self._functions, self._agent_classes, self._declared, self._task_functions, self.home
        )
        self.store = parts.store
        #: all use cases, for programs with an interface of their own
        self.services = parts.services
        #: create, change and run jobs
        self.jobs = parts.jobs
        #: read, stop, replay and complete runs
        self.runs = parts.runs
        #: create and change agents, send messages and signals to them, and manage their instances
        self.agents = parts.agents
        #: read and acknowledge incidents
        self.incidents = parts.incidents
        #: what waits for a person
        self.inbox = parts.inbox
        #: read and decide suggestions
        self.suggestions = parts.suggestions
        #: the same methods without `await`, for any thread and any event loop but that of this scheduler
        self.sync = parts.sync

    # --- start and stop --------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Start on a thread of its own, for programs without an event loop."""
        with self._connecting:  # calls of other threads wait, and do not connect beside it
            self._start_on_thread(self._start)
        return self

    def _start_on_thread(self, start: Callable[[], Coroutine[object, object, None]]) -> None:
        self.home.check_unclaimed()
        portal = self._portal = Portal(self._stop_here, "wakeful")
        try:
            portal.call(start())
        except BaseException:
            self._portal = None
            portal.close()
            raise
        call_at_exit(self._stop_portal)

    def _connect_on_thread(self) -> None:
        """Open the database on a thread, for calls of this process; another one runs the jobs."""
        with self._connecting:
            if self.home.loop is None:
                self._start_on_thread(self._connect)

    async def _connect(self) -> None:
        self.home.claim()
        await self._open_store()
        self._connected = True
        self.home.open()

    async def _open_store(self) -> None:
        try:
            await self._parts.open_store()
        except BaseException:
            self.home.release()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop_portal()

    def start(self) -> AwaitedOrDone:
        """Start, as `with app:` and `async with app:` do, until `stop` or the end of the program.

        `app.start()` in a sync function returns when it has started; it runs on its own thread. In an async
        function write `await app.start()`: it runs on that event loop.
        """
        if running_loop() is not None:
            return self._start()
        self.__enter__()
        return Done()

    async def __aenter__(self) -> Self:
        await self._start()
        self._is_entered = True
        return self

    async def _start(self) -> None:
        self.home.claim()
        with self._change():  # a stop waits for it
            await self._start_engine()

    async def _start_engine(self) -> None:
        await self._open_store()
        try:
            await self.before_start()
            await self._parts.agent_runtime.start()
            self._stopping = asyncio.Event()
            engine = await self._parts.build_engine(self._tracing)
            await self._parts.declared.save_all()
            self.home.open()  # jobs declared from now on are saved at once, and work may use the scheduler
            await engine.start()
        except BaseException:
            async with self._closing() as closing:
                closing.push_async_callback(self._parts.launchers.close)
            raise
        self._engine = self.services.admin.status.engine = engine
        engine.grace_ms = round(self._parts.grace * 1000)
        engine.on_incompatible = self._end_incompatible
        if engine.incompatible is not None:
            self._end_incompatible()

    def _end_incompatible(self) -> None:
        """End `serve_forever`: the database has a schema that this version does not support."""
        if self._engine is not None:
            self.error = self._engine.incompatible
        self._stopping.set()
        self.on_error()

    @property
    def _running_engine(self) -> Engine:
        """The engine; FailedPrecondition if it is not running."""
        if self._engine is None:
            raise FailedPrecondition(NOT_STARTED)
        return self._engine

    @property
    def alive(self) -> bool:
        """Whether the engine is running."""
        return self._engine is not None and self._engine.alive

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_entered = False
        await self._stop()

    def stop(self, grace: float | None = None) -> AwaitedOrDone:
        """Stop launching, give running work a grace period in seconds, then cancel it and close the store.

        Cancelled work is due again at once, on another replica or at the next start. In an async function
        write `await app.stop()`; in a sync function it returns when all is stopped.
        """
        if self.home.is_of_parent:  # a fork stops nothing, and has no such loop
            return Done()
        here, home = running_loop(), self.home.owner
        if home is not None and home is here:  # also that of `with app:`, which must not wait for itself
            return self._stop(grace)
        if self._portal is None and (here is not None or home is not None):
            if home is None or not home.is_running():
                return self._stop(grace)
            _await_on(home, self._stop(grace))  # from another thread
        self._stop_portal(grace)
        return Done()

    def _stop_portal(self, grace: float | None = None) -> None:
        portal = self._portal
        if portal is None or self.home.is_of_parent:  # a fork that ends stops nothing
            return
        try:
            with contextlib.suppress(FailedPrecondition):  # another thread has stopped it, and closed this
                portal.call(self._stop(grace))
        finally:
            portal.close()
            if self._portal is portal:  # else it has been started again
                self._portal = None

    async def _stop_here(self) -> None:
        """Stop at the end of this event loop, unless the scheduler runs on another one by now."""
        if self.home.owner is asyncio.get_running_loop():
            await self._stop()

    async def _stop(self, grace: float | None = None) -> None:
        while self._change_ended is not None:  # a program must not end in the grace period of another stop
            await asyncio.shield(asyncio.wrap_future(self._change_ended))
        if self._engine is not None or self._connected:
            with self._change():
                await self._stop_engine(grace)

    @contextlib.contextmanager
    def _change(self) -> Iterator[None]:
        """Mark that a start or a stop is under way."""
        ended = self._change_ended = Future()
        try:
            yield
        finally:
            self._change_ended = None
            ended.set_result(None)

    async def _stop_engine(self, grace: float | None) -> None:
        engine, self._engine, self._connected = self._engine, None, False
        self.services.admin.status.engine = None
        self.services.events.shut_down()
        self.services.live.shut_down()
        self.services.runs.pull.shut_down()
        self._stopping.set()
        async with self._closing():
            try:
                with contextlib.suppress(WakefulError):  # it was logged
                    await self.home.settle()
            finally:  # work that ends in the grace period may still use the scheduler
                if engine is not None:
                    await engine.stop(round((self._parts.grace if grace is None else grace) * 1000))

    def _closing(self) -> contextlib.AsyncExitStack:
        """Return what closes all but the engine. A part that fails or is cancelled keeps no other open."""
        stack = contextlib.AsyncExitStack()
        stack.callback(self.home.release)
        stack.push_async_callback(self._tracing.aclose)
        stack.push_async_callback(self.store.close)
        stack.push_async_callback(self.services.close)
        stack.push_async_callback(self._parts.agent_runtime.stop)
        stack.callback(self.home.close)
        return stack

    async def serve_forever(self) -> None:
        """Wait for SIGINT, SIGTERM, `stop` or cancellation.

        Outside of `async with` it also starts and stops the scheduler.
        """
        if self._engine is None and not self._is_entered:
            async with self:
                return await self.serve_forever()
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as stack:
            for number in (signal.SIGINT, signal.SIGTERM):
                # Unsupported outside of the main thread and on Windows: there the signals end the process.
                with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                    loop.add_signal_handler(number, self._stopping.set)
                    stack.callback(loop.remove_signal_handler, number)
            await self._stopping.wait()  # it is set already if the scheduler has stopped
        if self.error is not None:
            raise self.error


def _await_on(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[object, object, None]) -> None:
    """Await a coroutine on the event loop of another thread, which may end meanwhile with its program."""
    try:
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    except RuntimeError:  # it is closed
        coroutine.close()
        return
    with contextlib.suppress(CancelledError):  # at the end of the loop
        while not loop.is_closed():
            with contextlib.suppress(TimeoutError):
                return future.result(_LOOK_S)
    coroutine.close()


async def _nothing() -> None:
    pass


def _implements_scheduler(app: Wakeful) -> Scheduler:
    """Have mypy check that the class implements the protocol."""
    return app
