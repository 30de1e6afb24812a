"""The functions and agent classes of an app: jobs by decorators, and one-off work by `enqueue`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, overload

from wakeful.app.home import running_loop
from wakeful.errors import FailedPrecondition, InvalidArgument

if TYPE_CHECKING:  # they import the services
    from wakeful.agents.agent import Agent
    from wakeful.app.assembly import Assembly
    from wakeful.app.tasks import Enqueued
    from wakeful.launch.function import FunctionLauncher
    from wakeful.model.job_fields import JobOptions

A = TypeVar("A", bound="type[Agent]")
F = TypeVar("F", bound=Callable[..., object])
P = ParamSpec("P")
R = TypeVar("R")


class AppFunctions:
    """Registers the functions and the agent classes of a program. `Wakeful` has these methods."""

    _parts: Assembly
    _functions: FunctionLauncher
    _agent_classes: list[type[Agent]]

    def cron(
        self, expr: str, *, tz: str | None = None, name: str | None = None, **options: Unpack[JobOptions]
    ) -> Callable[[F], F]:
        """Run the decorated function by a cron expression: `@app.cron("0 9 * * 1-5", tz="Europe/Berlin")`.

        The name of the job is that of the function (`send_report` is `send-report`), unless `name` is given.
        """
        _check_given(expr, 'cron("0 9 * * 1-5")')
        schedule = {"kind": "cron", "expr": expr, **({"tz": tz} if tz else {})}
        return self._declare(schedule, name, options)

    def every(
        self, interval: str | timedelta, *, name: str | None = None, **options: Unpack[JobOptions]
    ) -> Callable[[F], F]:
        """Run the decorated function at an interval, at least a second: `@app.every("5m")`.

        The interval counts from the first declaration of the job, or its `start_at`, and never drifts.
        """
        _check_given(interval, 'every("5m")')
        schedule = {"kind": "every", "every": interval} if isinstance(interval, str) else interval
        return self._declare(schedule, name, options)

    def at(
        self,
        when: str | datetime,
        *,
        tz: str | None = None,
        name: str | None = None,
        **options: Unpack[JobOptions],
    ) -> Callable[[F], F]:
        """Run the decorated function once: `@app.at("2027-03-01T09:00", tz="Europe/Berlin")`.

        A time that has passed when the program starts again is not an error: a job that ran does not run
        again, and a job that was missed runs now.
        """
        _check_given(when, 'at("2027-03-01T09:00")')
        text = when.isoformat() if isinstance(when, datetime) else when
        return self._declare({"kind": "at", "at": text, **({"tz": tz} if tz else {})}, name, options)

    @overload
    def function(self, function: F, /) -> F: ...
    @overload
    def function(self, name: str | None = None, **options: Unpack[JobOptions]) -> Callable[[F], F]: ...
    def function(self, name: Any = None, **options: Unpack[JobOptions]) -> Any:
        """Register the decorated function for `enqueue`, and as a target of jobs: `Function("name")`.

        The options are the fields of the job that its enqueued calls belong to: `max_attempts`, `lane` …
        """
        if callable(name):  # `@app.function` without parentheses
            return self.function()(name)

        def register(function: F) -> F:
            self._parts.tasks.register(name, function, options)
            return function

        return register

    # A call with options is checked when it is made: types cannot add parameters to those of a function.
    @overload
    def enqueue(
        self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Enqueued[R]: ...
    @overload
    def enqueue(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Enqueued[R]: ...
    @overload
    def enqueue(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        in_: str | timedelta | float,
        key: str | None = None,
        unique_for: str | timedelta | float | None = None,
        **kwargs: Any,
    ) -> Enqueued[Any]: ...
    @overload
    def enqueue(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        at: datetime,
        key: str | None = None,
        unique_for: str | timedelta | float | None = None,
        **kwargs: Any,
    ) -> Enqueued[Any]: ...
    @overload
    def enqueue(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        key: str,
        unique_for: str | timedelta | float | None = None,
        **kwargs: Any,
    ) -> Enqueued[Any]: ...
    @overload
    def enqueue(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        connection: object,
        in_: str | timedelta | float | None = None,
        at: datetime | None = None,
        key: str | None = None,
        unique_for: str | timedelta | float | None = None,
        **kwargs: Any,
    ) -> Enqueued[Any]: ...
    def enqueue(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Enqueued[Any]:
        """Call a function later, in any process that has it: `await app.enqueue(send_mail, "a@example.com")`.

        The call is a run as any other: stored, retried, listed. Its arguments are JSON. It is due now, after
        `in_` (text such as `"20m"`, or seconds) or `at` a time. A second call with the same `key` within a
        day, or the `unique_for` of the first, returns the run of the first one.
        `await app.enqueue(f).result()` is what the function returns.

        With `connection`, the call is stored in the transaction that you have begun on it: a connection to
        the same database, of asyncpg, psycopg, SQLAlchemy, sqlite3 or aiosqlite. The run exists, and starts,
        if and when you commit.

        Decorate the function with `@app.function()`, so that every process has it from its start.
        """
        if running_loop() is None:
            raise FailedPrecondition("`app.enqueue` needs `await`; in a sync function use `app.sync.enqueue`")
        return self._parts.tasks.call_later(function, args, kwargs)

    @property
    def functions(self) -> FunctionLauncher:
        """The registered functions, for a program that executes runs without this scheduler."""
        return self._functions

    def agent(self, cls: A) -> A:
        """Register an agent class: `app.agent(DailyReport)`, or as a decorator.

        Its `name` is the agent. Signals to its instances are handled by this process, and by every other one
        that registers the class. Register it before the start, or later.
        """
        registered = self._parts.agent_runtime.register(cls)
        self._agent_classes.append(cls)
        return registered

    def _declare(self, schedule: object, name: str | None, options: Mapping[str, object]) -> Callable[[F], F]:
        def declare(function: F) -> F:
            self._parts.declared.declare(function, schedule, name, options)
            return function

        return declare


def _check_given(when: object, example: str) -> None:
    """Raise InvalidArgument for a decorator without parentheses: `when` is then the decorated function."""
    if callable(when):
        raise InvalidArgument(f"write when the function runs: @app.{example}")
