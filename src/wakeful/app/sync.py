"""The methods of a scheduler without `await`: `app.sync`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, cast, overload

from wakeful.app.admin import Incidents, Suggestions
from wakeful.app.agents import Agents
from wakeful.app.calls import Call, not_committed, read_result
from wakeful.app.home import Home, HomePortal
from wakeful.app.inbox import Inbox
from wakeful.app.jobs import Jobs
from wakeful.app.tasks import Tasks
from wakeful.client import sync
from wakeful.client.portal import Portal, blocking
from wakeful.errors import NotFound
from wakeful.model import Run

P = ParamSpec("P")
R = TypeVar("R")

Delay: TypeAlias = str | timedelta | float

# Outside of the class: inside, mypy expects the parameters of the methods of the client.
_create = blocking(Jobs.create)
_upsert = blocking(Jobs.upsert)
_run = blocking(Jobs.run)


class SyncJobs(sync.Jobs):
    """The methods of `app.jobs` without `await`; some may be called in a transaction of the caller."""

    inner: Jobs

    create = _create
    upsert = _upsert
    run = _run

    def __init__(self, portal: Portal, inner: Jobs) -> None:
        super().__init__(portal, inner)

    def of(self, agent: str, workspace: str | None = None) -> SyncJobs:
        """Return the jobs of another agent."""
        return SyncJobs(self.portal, self.inner.of(agent, workspace))


class SyncMethods:
    """The methods of a scheduler without `await`: `app.sync`."""

    def __init__(
        self,
        tasks: Tasks,
        agents: Agents,
        incidents: Incidents,
        inbox: Inbox,
        suggestions: Suggestions,
        home: Home,
    ) -> None:
        portal = HomePortal(home, tasks.kind)
        #: create, change and run jobs
        self.jobs = SyncJobs(portal, tasks.jobs)
        #: read, stop, replay and complete runs
        self.runs = sync.Runs(portal, tasks.runs)
        #: create and change agents, send messages and signals to them, and manage their instances
        self.agents = sync.Agents(portal, agents)
        #: read and acknowledge incidents
        self.incidents = sync.Incidents(portal, incidents)
        #: what waits for a person
        self.inbox = sync.Inbox(portal, inbox)
        #: read and decide suggestions
        self.suggestions = sync.Suggestions(portal, suggestions)
        self._tasks, self._portal = tasks, portal

    # As in `Wakeful`: a call with options is checked when it is made.
    @overload
    def enqueue(
        self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> SyncEnqueued[R]: ...
    @overload
    def enqueue(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> SyncEnqueued[R]: ...
    @overload
    def enqueue(
        self, function: Callable[..., Any], /, *args: Any, in_: Delay, **options: Any
    ) -> SyncEnqueued[Any]: ...
    @overload
    def enqueue(
        self, function: Callable[..., Any], /, *args: Any, at: datetime, **options: Any
    ) -> SyncEnqueued[Any]: ...
    @overload
    def enqueue(
        self, function: Callable[..., Any], /, *args: Any, key: str, **options: Any
    ) -> SyncEnqueued[Any]: ...
    @overload
    def enqueue(
        self, function: Callable[..., Any], /, *args: Any, connection: object, **options: Any
    ) -> SyncEnqueued[Any]: ...
    def enqueue(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> SyncEnqueued[Any]:
        """Call a function later, as `Wakeful.enqueue` does; the call is stored when this returns."""
        call = self._tasks.prepare(function, args, kwargs)
        run = self._portal.call_method(self._tasks.enqueue, call, connection=call.connection)
        return SyncEnqueued(run, call, self.runs)


class SyncEnqueued(Generic[R]):
    """An enqueued call of a function."""

    def __init__(self, run: Run, call: Call, runs: sync.Runs) -> None:
        #: its run
        self.run = run
        self._call = call
        self._runs = runs

    def result(self, timeout: float | None = None) -> R:
        """Return what the function returns, once it has; TimeoutError after `timeout` seconds.

        With `connection`, call it after the commit.
        """
        if self._call.connection is not None:
            try:
                self._runs.get(self.run.id)
            except NotFound:
                raise not_committed(self.run.job or "") from None
        run = self._runs.wait(self.run.id, timeout=timeout)
        return cast(R, read_result(run, self._call.task.function))
