"""One-off work: calls of functions, each of which is stored as a run."""

from __future__ import annotations

import asyncio
import inspect
import json
import warnings
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

from wakeful.app.caller_connection import AtHome
from wakeful.app.calls import (
    CONNECTION,
    OPTIONS,
    Call,
    Task,
    identify,
    is_defined_again,
    not_committed,
    read_arguments,
    read_due_ms,
    read_key,
    read_parameters,
    read_result,
    slug_of,
    takes_connection,
)
from wakeful.app.home import Home, LocalPart
from wakeful.app.in_transaction import PlanningStore, plan_and_write
from wakeful.app.jobs import Jobs, plain_fields
from wakeful.app.runs import Runs
from wakeful.errors import AlreadyExists, InvalidArgument, NotFound
from wakeful.job.targets import Function
from wakeful.launch.function import FunctionLauncher
from wakeful.model import Run
from wakeful.service.auth.access import LOCAL
from wakeful.service.idempotency import Reply
from wakeful.service.jobs.jobs import JobService
from wakeful.service.model_mapping import run_from_view
from wakeful.service.services import Services
from wakeful.store.caller_transaction import PlannedRun, perform
from wakeful.store.idempotency import AlreadyPerformed, Keyed
from wakeful.store.row_mapping import job_from_row, view_of_new_run
from wakeful.store.rows import RunView
from wakeful.values.json_value import compact

R = TypeVar("R")


class Enqueued(Awaitable[Run], Generic[R]):
    """A call of a function: `await` it for its run, or await its `result`. Either enqueues it, once."""

    def __init__(self, tasks: Tasks, call: Call) -> None:
        self._tasks = tasks
        self._call = call
        self._awaited = False
        self._storing = asyncio.Lock()
        self._run: Run | None = None

    def __await__(self) -> Generator[Any, Any, Run]:
        self._awaited = True
        return self._store().__await__()

    async def _store(self) -> Run:
        async with self._storing:
            if self._run is None:
                self._run = await self._tasks.enqueue(self._call, connection=self._call.connection)
            return self._run

    async def result(self, timeout: float | None = None) -> R:  # noqa: ASYNC109
        """Enqueue the call, and return what the function returns.

        Raises TimeoutError after `timeout` seconds; the run goes on. Raises FailedPrecondition if the run
        ends without success. With `connection`, await the call first, and the result after the commit.
        """
        runs, call = self._tasks.runs, self._call
        run = await (self if call.connection is None else self._committed_run())
        async with asyncio.timeout(timeout):
            ended = await runs.wait(run.id)
        return cast(R, read_result(ended, call.task.function))

    async def _committed_run(self) -> Run:
        self._awaited = True
        if self._run is None:
            raise not_committed(self._call.task.name)
        try:
            return await self._tasks.runs.get(self._run.id)
        except NotFound:
            raise not_committed(self._call.task.name) from None

    def __del__(self) -> None:
        if not self._awaited:
            warnings.warn(
                f"the call of '{self._call.task.name}' was not enqueued: `app.enqueue` needs `await`",
                RuntimeWarning,
                stacklevel=2,
            )


class Tasks(LocalPart):
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
        super().__init__(services, where[0], home)
        self._functions = functions
        self.jobs = jobs
        self.runs = runs
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

    def register(self, name: str | None, function: Callable[..., object], options: Mapping[str, Any]) -> None:
        """Register a function that may have any parameters, with the fields of its job.

        A function that a cell of a notebook defines anew replaces the one of that name.
        """
        name = name or slug_of(function)
        known = [key for key, task in self._tasks.items() if task.name == name and task.options is not None]
        again = self._home.loop is not None and any(
            is_defined_again(self._tasks[key].function, function) for key in known
        )
        self._functions.register(name, function, arguments=True, replace=again)
        if again:
            for key in known:
                del self._tasks[key]
            self._saved.discard(name)
        self._tasks.setdefault(identify(function), Task(function, name, options))

    def name_of(self, function: Callable[..., object]) -> str:
        """Return the name of the job that the calls of a function belong to."""
        task = self._tasks.get(identify(function))
        return task.name if task else slug_of(function)

    def declare(self, name: str, function: Callable[..., object]) -> None:
        """Remember that the function is a job of its own."""
        self._tasks[identify(function)] = Task(function, name, None)

    def prepare(
        self, function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, Any]
    ) -> Call:
        """Check a call of a function and return it, to be enqueued. The options are among the `kwargs`."""
        options = {name: kwargs.get(name) for name in OPTIONS}
        if CONNECTION in kwargs and not takes_connection(function, kwargs[CONNECTION]):
            options[CONNECTION] = kwargs[CONNECTION]
        kwargs = {name: value for name, value in kwargs.items() if name not in options}
        if identify(function) not in self._tasks:
            if getattr(function, "__name__", "<partial>").startswith("<"):
                raise InvalidArgument(
                    "a call needs the name of its function; give it one: `app.function(name=…)(function)`"
                )
            self.register(None, function, {})
        task = self._tasks[identify(function)]
        parameters = self._parameters.get(identify(function))
        if parameters is None:
            parameters = self._parameters[identify(function)] = read_parameters(function)
        arguments = read_arguments(function, args, kwargs, parameters)
        if task.options is None and arguments:
            raise InvalidArgument(
                f"'{task.name}' is declared with a schedule, so its calls take no arguments"
            )
        due_ms = read_due_ms(options["in_"], options["at"], self._services.now_ms())
        key = read_key(options["key"], options["unique_for"])

        return Call(task, arguments, due_ms, key, options.get(CONNECTION))

    def call_later(
        self, function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, Any]
    ) -> Enqueued[Any]:
        """Check a call of a function, and return what enqueues it when it is awaited."""
        return Enqueued(self, self.prepare(function, args, kwargs))

    async def enqueue(self, call: Call, *, connection: object | None = None) -> Run:
        """Store a run of the function, due at its time, and return it; with a key, once."""
        if connection is not None:
            return await self._enqueue_in_transaction(call)
        found = await self._save_and_trigger(call)
        if not isinstance(found, str):
            return run_from_view(found)
        try:
            return await self.runs.get(found)
        except NotFound:
            raise _is_pruned(call, found) from None

    async def _enqueue_in_transaction(self, call: Call) -> Run:
        """Store a run of the function in the transaction of the caller.

        Its job is saved before, in a transaction of its own. Where that would wait for the caller (SQLite),
        a job that does not exist is created in the transaction of the caller.
        """
        name, options = call.task.name, call.task.options
        outside = self._services.store.caller_transaction.allows_other_writers
        planned: list[RunView] = []

        async def plan(jobs: JobService, store: PlanningStore) -> str:
            planned.clear()
            if options is not None and not (outside and known):
                if outside and not await self._is_created_here(store, name):
                    await self._save(call.task)
                else:
                    await self._plan_job(jobs, store, name, options)
            run = await self._trigger(call, jobs)
            planned.extend(
                view_of_new_run(each.run, 0) for each in store.planned if isinstance(each, PlannedRun)
            )
            return run if isinstance(run, str) else run.id

        for known in (name in self._saved, False):
            try:
                key = (*self._where, name)
                run_id = await plan_and_write(self._services, plan, key, look_first=not (outside and known))
                break
            except AlreadyPerformed as found:  # the key was used while this call was planned
                reply = self._services.idempotency.read_reply(LOCAL, found.response)
                run_id = str(json.loads(reply.body)["id"])
                break
            except NotFound:
                if not (outside and known and options is not None):
                    raise  # otherwise the job was deleted: save it again
        for view in planned:
            if view.id == run_id:
                return run_from_view(view)
        try:
            run: Run = await perform(AtHome(lambda: self.runs.get(run_id)))
        except NotFound:
            if not planned:
                raise _is_pruned(call, run_id) from None
            # an earlier call with this key, in the same transaction
            return run_from_view(planned[0]._replace(id=run_id))
        return run

    async def _is_created_here(self, store: PlanningStore, name: str) -> bool:
        """Return whether only the transaction of the caller has the job: another one would wait for it."""
        outside = await self._services.store.job(*self._where, name)
        return outside is None and await store.job(*self._where, name) is not None

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

    async def _save_and_trigger(self, call: Call) -> RunView | str:
        task = call.task
        if task.options is None:
            return await self._trigger(call)
        if task.name not in self._saved:
            await self._save(task)
        try:
            return await self._trigger(call)
        except NotFound:
            await self._save(task)  # the job was deleted
            return await self._trigger(call)

    async def _save(self, task: Task) -> None:
        """Save the job of the calls of a function. AlreadyExists if the name is that of another job."""
        name, options = task.name, task.options or {}
        target = Function(name, arguments=True)
        try:
            found = await self.jobs.get(name)
        except NotFound:
            found = None
        if found is not None and found.target != target.to_json():
            raise _other_target(name)
        if found is not None and (found.schedule or found.after or found.on or found.trigger_url):
            await self.jobs.update(name, **options)  # somebody lets it start at other times too: that stays
        else:
            await self.jobs.upsert(name, **{**options, "target": target})
        self._saved.add(name)

    async def _trigger(self, call: Call, jobs: JobService | None = None) -> RunView | str:
        """Return the new run; with a key the id of the run of the first call, which may be over."""
        where, service, name = self._where, jobs or self._services.jobs, call.task.name
        payload = None if call.task.options is None else call.arguments

        async def trigger(*, keyed: Keyed[RunView | None] | None) -> RunView | None:
            return await service.trigger(
                LOCAL, *where, name, payload=payload, due_ms=call.due_ms, keyed=keyed
            )

        key = call.key
        if key is None:
            run = await trigger(keyed=None)
            assert run is not None
            return run
        reply = await self._services.idempotency.perform(
            LOCAL, where[0], key.text, ["enqueue", *where, name], trigger, _reply, kept_ms=key.kept_ms
        )
        return str(json.loads(reply.body)["id"])


def _is_pruned(call: Call, run_id: str) -> NotFound:
    return NotFound(
        f"the call of '{call.task.name}' with this key was enqueued before, as run {run_id}, which has been "
        "deleted since with the history of runs"
    )


def _other_target(name: str) -> AlreadyExists:
    return AlreadyExists(
        f"the job '{name}' has another target than the calls of the function '{name}'; give the function "
        "another name: `@app.function(name=…)`"
    )


def _reply(run: RunView | None) -> Reply:
    assert run is not None
    return Reply(200, {}, compact({"id": run.id}))
