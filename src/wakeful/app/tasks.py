"""One-off work: a call of a function that is stored as a run, and its result."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from wakeful.app.home import Home, HomePortal
from wakeful.app.in_transaction import (
    AtHome,
    CallSteps,
    not_committed,
    plan_and_write,
    run_async,
    run_blocking,
)
from wakeful.app.jobs import Jobs, plain_fields
from wakeful.app.runs import Runs
from wakeful.app.sync_jobs import SyncJobs
from wakeful.client import sync
from wakeful.client.scheduler import Scheduler
from wakeful.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound
from wakeful.job.targets import Function
from wakeful.launch.function import FunctionLauncher
from wakeful.launch.port import MAX_OUTPUT
from wakeful.model import Run
from wakeful.service.auth.access import LOCAL
from wakeful.service.idempotency import Reply
from wakeful.service.jobs.jobs import JobService
from wakeful.service.model_mapping import run_from_view
from wakeful.service.services import Services
from wakeful.store.caller_transaction import PlannedRun, PlanningStore
from wakeful.store.idempotency import KEPT_MS, LONGEST_KEPT_MS, AlreadyPerformed, Keyed
from wakeful.store.row_mapping import job_from_row, view_of_new_run
from wakeful.store.rows import RunView
from wakeful.values.duration import parse_duration
from wakeful.values.instants import LATEST_MS
from wakeful.values.json_value import Json, compact, json_value

R = TypeVar("R")

#: The most bytes of a character. An output is cut before a character that is beyond its limit.
_LONGEST_CHARACTER: Final = 4
#: The options of `enqueue`, which no parameter of a function may be named.
OPTIONS: Final = ("in_", "at", "key", "unique_for")
#: An option that is newer: a function whose parameter has this name is called without the option.
CONNECTION: Final = "connection"


class InTransaction(NamedTuple):
    """The connection of the caller, and what enqueues a call in its transaction."""

    connection: object
    steps: Callable[[], CallSteps[Run]]


class Enqueued(Awaitable[Run], Generic[R]):
    """A call of a function: `await` it for its run, or await its `result`. Either enqueues it, once."""

    def __init__(
        self,
        name: str,
        start: Callable[[], Coroutine[Any, Any, Run]],
        runs: Runs,
        function: Callable[..., R],
        in_transaction: InTransaction | None = None,
    ) -> None:
        self._name = name
        self._start = start
        self._runs = runs
        self._function = function
        #: set if the call is enqueued in the transaction of the caller
        self.in_transaction = in_transaction
        self._awaited = False
        self._storing = asyncio.Lock()
        self._run: Run | None = None

    def __await__(self) -> Generator[Any, Any, Run]:
        return self.store().__await__()

    def store(self) -> Coroutine[Any, Any, Run]:
        """Enqueue the call unless it was, and return its run."""
        self._awaited = True
        return self._store()

    async def _store(self) -> Run:
        async with self._storing:
            if self._run is None:
                self._run = await self._start()
            return self._run

    async def result(self, timeout: float | None = None) -> R:  # noqa: ASYNC109
        """Enqueue the call, and return what the function returns.

        Raises TimeoutError after `timeout` seconds; the run goes on. Raises FailedPrecondition if the run
        ends without success. With `connection`, await the call first, and the result after the commit.
        """
        if self.in_transaction is None:
            run = await self
        else:
            run = await self._committed_run()
        async with asyncio.timeout(timeout):
            ended = await self._runs.wait(run.id)
        return self.read(ended)

    async def _committed_run(self) -> Run:
        self._awaited = True
        if self._run is None:
            raise not_committed(self._name)
        try:
            return await self._runs.get(self._run.id)
        except NotFound:
            raise not_committed(self._name) from None

    def store_blocking(self, enqueue: Callable[[InTransaction], Run]) -> Run:
        """Enqueue the call in the transaction of a caller that blocks, and return its run."""
        self._awaited = True
        assert self.in_transaction is not None
        self._run = enqueue(self.in_transaction)
        return self._run

    def read(self, ended: Run) -> R:
        """Return what the function returned in this run."""
        return read_result(ended, self._function)

    def __del__(self) -> None:
        if not self._awaited:
            warnings.warn(
                f"the call of '{self._name}' was not enqueued: `app.enqueue` needs `await`",
                RuntimeWarning,
                stacklevel=2,
            )


def read_result(run: Run, function: Callable[..., R]) -> R:
    """Return what the function returned in a run, from its output.

    Text and values of JSON come back as they were; text that a function without a return annotation returns
    is read as JSON if it is JSON. Raises FailedPrecondition if the output may be a part of the result.
    """
    if run.state != "succeeded":
        why = run.error or run.reason or "no reason is known"
        raise FailedPrecondition(f"run {run.id} of '{run.job}' ended as {run.state}: {why}")
    text = run.output
    if text is None:
        return cast(R, text)
    if not _returns_text(function):
        with contextlib.suppress(ValueError):
            return cast(R, json.loads(text))
    if len(text.encode()) > MAX_OUTPUT - _LONGEST_CHARACTER:
        raise FailedPrecondition(
            f"the result of run {run.id} of '{run.job}' has {MAX_OUTPUT // 1024} KB or more, and only the "
            "beginning is kept, as its output; store large results elsewhere, and return where they are"
        )
    return cast(R, text)


def _returns_text(function: Callable[..., object]) -> bool:
    annotation = inspect.signature(function).return_annotation
    return annotation is str or annotation == "str"


def read_parameters(function: Callable[..., object]) -> inspect.Signature:
    """Return the parameters that a call has arguments for. InvalidArgument: one cannot be in a call."""
    name = getattr(function, "__name__", "function")
    signature = inspect.signature(function)
    for each in signature.parameters.values():
        if each.name in OPTIONS:
            raise InvalidArgument(f"{name}: its parameter '{each.name}' is an option of `enqueue`; rename it")
        if each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL):
            raise InvalidArgument(f"{name}: its parameter '{each.name}' has no name in a call; give it one")
    return signature.replace(
        parameters=[each for each in signature.parameters.values() if each.name != "run"]
    )


def read_arguments(
    function: Callable[..., object],
    args: Any,
    kwargs: Mapping[str, Any],
    parameters: inspect.Signature | None = None,
) -> dict[str, Json]:
    """Return the arguments of a call by name, as JSON. Raises InvalidArgument if they do not fit.

    `parameters` are those of the function, if they have been read.

    >>> def send(to, subject="news", *, urgent=False): ...
    >>> read_arguments(send, ["a@example.com"], {"urgent": True})
    {'to': 'a@example.com', 'urgent': True}
    >>> read_arguments(send, [], {"whom": "a@example.com"})
    Traceback (most recent call last):
    wakeful.errors.InvalidArgument: send: missing a required argument: 'to'
    """
    name = getattr(function, "__name__", "function")
    given = parameters or read_parameters(function)
    try:
        bound = given.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise InvalidArgument(f"{name}: {error}") from error
    more = bound.pop(_keywords(given), {})
    arguments: dict[str, Json] = {}
    for key, value in {**bound, **more}.items():
        try:
            arguments[key] = json_value(value, None)
        except InvalidArgument as error:
            raise InvalidArgument(f"{name}: {key}: {error.message}") from error
    return arguments


def _keywords(signature: inspect.Signature) -> str:
    """Return the name of the parameter that takes all other keywords, if there is one."""
    names = [each.name for each in signature.parameters.values() if each.kind is each.VAR_KEYWORD]
    return names[0] if names else ""


class Task(NamedTuple):
    """A function whose calls are enqueued."""

    function: Callable[..., object]
    name: str
    #: the fields of its job; None: it is declared with a schedule, so the job exists
    options: Mapping[str, Any] | None


class Tasks:
    """Enqueues calls of functions, each as a run of the job of the function, which its first call saves."""

    def __init__(
        self,
        services: Services,
        functions: FunctionLauncher,
        jobs: Jobs,
        runs: Runs,
        home: Home,
        known: dict[object, Task],
        where: tuple[str, str],
    ) -> None:
        self._services = services
        self._functions = functions
        self.jobs = self._jobs = jobs
        self._runs = runs
        self._home = home
        self._tasks = known
        #: the workspace and the agent
        self._where = where
        self._saved: set[str] = set()
        #: of the functions that have been called
        self._parameters: dict[object, inspect.Signature] = {}

    @property
    def kind(self) -> str:
        """The database: `sqlite` or `postgresql`."""
        return self._services.store.kind

    def register(self, name: str, function: Callable[..., object], options: Mapping[str, Any]) -> None:
        """Register a function that may have any parameters, with the fields of its job.

        A function that a cell of a notebook defines anew replaces the one of that name.
        """
        known = [key for key, task in self._tasks.items() if task.name == name and task.options is not None]
        again = self._home.loop is not None and any(
            is_defined_again(self._tasks[key].function, function) for key in known
        )
        self._functions.register(name, function, arguments=True, replace=again)
        if again:
            for key in known:
                del self._tasks[key]
            self._saved.discard(name)
        self._tasks.setdefault(_identify(function), Task(function, name, options))

    def name_of(self, function: Callable[..., object]) -> str:
        """Return the name of the job that the calls of a function belong to."""
        task = self._tasks.get(_identify(function))
        return task.name if task else slug_of(function)

    def declare(self, name: str, function: Callable[..., object]) -> None:
        """Remember that the function is a job of its own."""
        self._tasks[_identify(function)] = Task(function, name, None)

    def prepare(
        self,
        function: Callable[..., R],
        args: Sequence[object],
        kwargs: Mapping[str, Any],
    ) -> Enqueued[R]:
        """Check a call of a function and return it, to be enqueued. The options are among the `kwargs`."""
        options = {name: kwargs.get(name) for name in OPTIONS}
        if CONNECTION in kwargs and not takes_connection(function, kwargs[CONNECTION]):
            options[CONNECTION] = kwargs[CONNECTION]
        kwargs = {name: value for name, value in kwargs.items() if name not in options}
        if _identify(function) not in self._tasks:
            if getattr(function, "__name__", "<partial>").startswith("<"):
                raise InvalidArgument(
                    "a call needs the name of its function; give it one: `app.function(name=…)(function)`"
                )
            self.register(slug_of(function), function, {})
        task = self._tasks[_identify(function)]
        parameters = self._parameters.get(_identify(function))
        if parameters is None:
            parameters = self._parameters[_identify(function)] = read_parameters(function)
        arguments = read_arguments(function, args, kwargs, parameters)
        if task.options is None and arguments:
            raise InvalidArgument(
                f"'{task.name}' is declared with a schedule, so its calls take no arguments"
            )
        due_ms = read_due_ms(options["in_"], options["at"], self._services.now_ms())
        key = read_key(options["key"], options["unique_for"])

        connection = options.get(CONNECTION)
        if connection is not None:

            def steps() -> CallSteps[Run]:
                return self._enqueue_in_transaction(task, arguments, due_ms, key)

            async def start_in_transaction() -> Run:
                return await run_async(self._home, self._services.store.kind, connection, steps())

            return Enqueued(
                task.name, start_in_transaction, self._runs, function, InTransaction(connection, steps)
            )

        async def start() -> Run:
            return await self._home.run(lambda: self._enqueue(task, arguments, due_ms, key))

        return Enqueued(task.name, start, self._runs, function)

    def _enqueue_in_transaction(
        self, task: Task, arguments: dict[str, Json], due_ms: int | None, key: UniqueKey | None
    ) -> CallSteps[Run]:
        """Store a run of the function in the transaction of the caller.

        Its job is saved before, in a transaction of its own. Where that would wait for the caller (SQLite),
        a job that does not exist is created in the transaction of the caller.
        """
        name, given = task.name, None if task.options is None else arguments
        outside = self._services.store.caller_transaction.allows_other_writers
        planned: list[RunView] = []

        async def plan(jobs: JobService, store: PlanningStore) -> str:
            planned.clear()
            if not outside and task.options is not None:
                await self._plan_job(jobs, store, name, task.options)
            run = await self._trigger(name, given, due_ms, key, jobs)
            planned.extend(
                view_of_new_run(each.run, 0) for each in store.planned if isinstance(each, PlannedRun)
            )
            return run if isinstance(run, str) else run.id

        for saved in (name in self._saved, False):
            options = task.options
            if outside and options is not None and not saved:
                yield AtHome(lambda: self._save(name, options))  # noqa: B023
            try:
                run_id = yield from plan_and_write(
                    self._services, plan, (*self._where, name), look_first=not outside
                )
                break
            except AlreadyPerformed as found:  # the key was used while this call was planned
                reply = self._services.idempotency.read_reply(LOCAL, found.response)
                run_id = str(json.loads(reply.body)["id"])
                break
            except NotFound:
                if not (outside and saved and options is not None):
                    raise  # otherwise the job was deleted: save it again
        for view in planned:
            if view.id == run_id:
                return run_from_view(view)
        try:
            run: Run = yield AtHome(lambda: self._runs.get(run_id))
        except NotFound:  # an earlier call with this key, in the same transaction
            return run_from_view(planned[0]._replace(id=run_id))
        return run

    async def _plan_job(
        self, jobs: JobService, store: PlanningStore, name: str, options: Mapping[str, Any]
    ) -> None:
        """Plan to create the job of a function, if it does not exist."""
        target = Function(name, arguments=True)
        found = await store.job(*self._where, name)
        if found is None:
            document = plain_fields({**options, "name": name, "target": target})
            await jobs.create(LOCAL, *self._where, document)
        elif job_from_row(found).definition.work.target != target.to_json():
            raise _other_target(name)

    async def _enqueue(
        self, task: Task, arguments: dict[str, Json], due_ms: int | None, key: UniqueKey | None
    ) -> Run:
        """Store a run of the function, due at that time, and return it; with a `key`, once."""
        found = await self._save_and_trigger(task, arguments, due_ms, key)
        return await self._runs.get(found) if isinstance(found, str) else run_from_view(found)

    async def _save_and_trigger(
        self, task: Task, arguments: dict[str, Json], due_ms: int | None, key: UniqueKey | None
    ) -> RunView | str:
        if task.options is None:
            return await self._trigger(task.name, None, due_ms, key)
        if task.name not in self._saved:
            await self._save(task.name, task.options)
        try:
            return await self._trigger(task.name, arguments, due_ms, key)
        except NotFound:
            await self._save(task.name, task.options)  # the job was deleted
            return await self._trigger(task.name, arguments, due_ms, key)

    async def _save(self, name: str, options: Mapping[str, Any]) -> None:
        """Save the job of the calls of a function. AlreadyExists if the name is that of another job."""
        target = Function(name, arguments=True)
        try:
            found = await self._jobs.get(name)
        except NotFound:
            found = None
        if found is not None and found.target != target.to_json():
            raise _other_target(name)
        if found is not None and (found.schedule or found.after or found.trigger_url):
            await self._jobs.update(name, **options)  # somebody lets it start at other times too: that stays
        else:
            await self._jobs.upsert(name, **{**options, "target": target})
        self._saved.add(name)

    async def _trigger(
        self,
        name: str,
        arguments: dict[str, Json] | None,
        due_ms: int | None,
        key: UniqueKey | None,
        jobs: JobService | None = None,
    ) -> RunView | str:
        """Return the new run; with a key the id of the run of the first call, which may be over."""
        where, service = self._where, jobs or self._services.jobs

        async def trigger(*, keyed: Keyed[RunView | None] | None) -> RunView | None:
            return await service.trigger(LOCAL, *where, name, payload=arguments, due_ms=due_ms, keyed=keyed)

        if key is None:
            run = await trigger(keyed=None)
            assert run is not None
            return run
        reply = await self._services.idempotency.perform(
            LOCAL, where[0], key.text, ["enqueue", *where, name], trigger, _reply, kept_ms=key.kept_ms
        )
        return str(json.loads(reply.body)["id"])


class SyncMethods:
    """The methods of a scheduler without `await`: `app.sync`."""

    def __init__(self, app: Scheduler, tasks: Tasks, home: Home) -> None:
        portal = HomePortal(home)
        #: create, change and run jobs
        self.jobs = SyncJobs(portal, tasks.jobs)
        #: read, stop, replay and complete runs
        self.runs = sync.Runs(portal, app.runs)
        #: create and change agents, send messages and signals to them, and manage their instances
        self.agents = sync.Agents(portal, app.agents)
        #: read and acknowledge incidents
        self.incidents = sync.Incidents(portal, app.incidents)
        #: read and decide suggestions
        self.suggestions = sync.Suggestions(portal, app.suggestions)
        self._tasks, self._portal, self._kind = tasks, portal, tasks.kind

    def enqueue(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> SyncEnqueued:
        """Call a function later, as `Wakeful.enqueue` does; the call is stored when this returns."""
        call = self._tasks.prepare(function, args, kwargs)
        if call.in_transaction is None:
            run = self._portal.call(call.store())
        else:
            run = call.store_blocking(
                lambda given: run_blocking(self._portal, self._kind, given.connection, given.steps())
            )
        return SyncEnqueued(run, call, self.runs)


class SyncEnqueued:
    """An enqueued call of a function."""

    def __init__(self, run: Run, call: Enqueued[Any], runs: sync.Runs) -> None:
        #: its run
        self.run = run
        self._call = call
        self._runs = runs

    def result(self, timeout: float | None = None) -> Any:
        """Return what the function returns, once it has; TimeoutError after `timeout` seconds.

        With `connection`, call it after the commit.
        """
        if self._call.in_transaction is not None:
            try:
                self._runs.get(self.run.id)
            except NotFound:
                raise not_committed(self.run.job or "") from None
        return self._call.read(self._runs.wait(self.run.id, timeout=timeout))


def _other_target(name: str) -> AlreadyExists:
    return AlreadyExists(
        f"the job '{name}' has another target than the calls of the function '{name}'; give the function "
        "another name: `@app.function(name=…)`"
    )


def takes_connection(function: Callable[..., object], value: object) -> bool:
    """Return whether `connection` is an argument of the function itself, and not the option of `enqueue`.

    >>> takes_connection(lambda connection: None, "x"), takes_connection(lambda **more: None, "x")
    (True, True)
    >>> takes_connection(lambda **more: None, object()), takes_connection(lambda: None, "x")
    (False, False)
    """
    parameters = inspect.signature(function).parameters
    if CONNECTION in parameters:
        return True
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    return takes_any and (value is None or isinstance(value, str | int | float | list | dict))


def _reply(run: RunView | None) -> Reply:
    assert run is not None
    return Reply(200, {}, compact({"id": run.id}))


class UniqueKey(NamedTuple):
    """The key of a call, and for how long no other call with it is enqueued."""

    text: str
    kept_ms: int


def read_key(key: str | None, unique_for: str | timedelta | float | None) -> UniqueKey | None:
    """Return the key of a call, unique for a day or for the window."""
    if key is None:
        if unique_for is not None:
            raise InvalidArgument("unique_for: what is unique is the `key` of a call; give one")
        return None
    kept_ms = KEPT_MS if unique_for is None else read_ms(unique_for)
    if not 0 < kept_ms <= LONGEST_KEPT_MS:
        raise InvalidArgument("unique_for: give a duration of at most 366 days, such as '1h'")
    return UniqueKey(key, kept_ms)


def is_defined_again(known: Callable[..., object], function: Callable[..., object]) -> bool:
    """Return whether a cell of a notebook, or a line at a prompt, defines a function anew."""
    return getattr(function, "__module__", None) == "__main__" and (
        getattr(known, "__qualname__", None) == getattr(function, "__qualname__", "")
    )


def read_due_ms(in_: str | timedelta | float | None, at: datetime | None, now_ms: int) -> int | None:
    """Return when a call is due: after a duration (text, or seconds), or at a time; None is now."""
    if in_ is not None and at is not None:
        raise InvalidArgument("give `in_` or `at`, not both")
    if at is not None:
        if at.tzinfo is None:
            raise InvalidArgument("at: the time has no zone; write datetime(..., tzinfo=UTC)")
        return _check_due(round(at.timestamp() * 1000))
    if in_ is None:
        return None
    return _check_due(now_ms + read_ms(in_))


def read_ms(duration: str | timedelta | float) -> int:
    """Return the milliseconds of a duration: text, a timedelta, or seconds.

    >>> read_ms("2h"), read_ms(timedelta(seconds=1)), read_ms(0.5)
    (7200000, 1000, 500)
    """
    if isinstance(duration, str):
        return parse_duration(duration)
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not seconds >= 0:
        raise InvalidArgument("a duration is text such as '20m', or seconds; it cannot lead into the past")
    return round(min(seconds, LATEST_MS) * 1000)


def _check_due(due_ms: int) -> int:
    if not 0 <= due_ms <= LATEST_MS:
        raise InvalidArgument("a call is due between 1970 and 9998; `in_` is text such as '20m', or seconds")
    return due_ms


def _identify(function: Callable[..., object]) -> object:
    """Return what identifies a function: itself, or the id of a callable object without a hash."""
    try:
        hash(function)
    except TypeError:
        return id(function)
    return function


def slug_of(function: Callable[..., object]) -> str:
    """Return the name of the job of a function: `send_mail` is `send-mail`."""
    return getattr(function, "__name__", "function").strip("_").replace("_", "-").lower()
