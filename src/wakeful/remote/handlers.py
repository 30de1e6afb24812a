"""The handlers of a worker, by the names of jobs, and how they are called."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from wakeful.errors import AlreadyExists
from wakeful.launch.function import Function, is_awaited, takes_run_parameter
from wakeful.launch.user_code import Threads, isolate
from wakeful.logs import get_logger
from wakeful.model import Run
from wakeful.remote.results import Result, result_of_error, result_of_value

log = get_logger("wakeful.remote")


class _Handler(NamedTuple):
    function: Callable[..., object]
    #: whether it is a coroutine function
    awaited: bool
    takes_run: bool


class Handlers:
    """Functions by the names of jobs (`digest`, or `agent/digest`), and one for all other runs."""

    def __init__(self, threads: int) -> None:
        self._by_name: dict[str, _Handler] = {}
        self._default: _Handler | None = None
        self._max_threads = threads
        self._threads: Threads | None = None

    def add(self, name: str | None, function: Function) -> None:
        """Register the handler of a name; None: of all runs without one."""
        handler = _Handler(function, is_awaited(function), takes_run_parameter(name or "handler", function))
        if name is None:
            if self._default is not None:
                raise AlreadyExists("there is a handler already; give this function the name of its job")
            self._default = handler
        elif name in self._by_name:
            raise AlreadyExists(f"there is a function '{name}' already; give this one another name")
        else:
            self._by_name[name] = handler

    async def call(self, run: Run) -> Result:
        """Call the handler of a run. An exception is its result; only a cancellation of the caller is raised.

        A handler that does not end within a few seconds after its cancellation is abandoned.
        """
        handler = self._find(run)
        if handler is None:
            known = ", ".join(sorted(self._by_name)[:20]) or "none"
            return Result(error=f"this worker has no function for '{run.job}'; known: {known}")
        results: list[Result] = []

        def abandoned() -> None:
            log.warning("remote.abandoned", run_id=run.id, job=run.job, attempt=run.attempt)

        async def call() -> None:
            args = (run,) if handler.takes_run else ()
            if handler.awaited:
                value = await handler.function(*args)  # type: ignore[misc]
            else:
                value = await self._in_thread(handler.function, args, abandoned)
            results.append(result_of_value(value))

        try:
            await isolate(call, abandoned=abandoned)
        except asyncio.CancelledError:
            if not results:  # else it has returned after its cancellation
                raise
        except BaseException as error:
            return self._failed(run, error)
        return results[0]

    def close(self) -> None:
        """Stop the idle threads."""
        if self._threads is not None:
            self._threads.close()
            self._threads = None

    def _find(self, run: Run) -> _Handler | None:
        own = self._by_name.get(f"{run.agent}/{run.job}") or self._by_name.get(run.job or "")
        return own or self._default

    async def _in_thread(
        self, function: Callable[..., object], args: tuple[Run, ...], abandoned: Callable[[], None]
    ) -> object:
        if self._threads is None:
            self._threads = Threads(self._max_threads)
        value = await self._threads.run(lambda: function(*args), abandoned)
        # A function may return a coroutine, such as a lambda around an `async def`.
        return await value if isinstance(value, Awaitable) else value

    @staticmethod
    def _failed(run: Run, error: BaseException) -> Result:
        log.warning("remote.handler_failed", run_id=run.id, job=run.job, attempt=run.attempt, exc_info=error)
        return result_of_error(error)
