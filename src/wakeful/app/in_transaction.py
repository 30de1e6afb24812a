"""Calls in the transaction of the caller: `connection=` of `enqueue`, `jobs.create`, `upsert` and `run`.

A call is planned on the event loop of the scheduler, by the services as any other call, and written on the
connection of the caller, in its thread or event loop (`wakeful.store.caller_transaction`). The engine learns
of it by the commit: nothing is published, cached or started before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from wakeful.app.caller_connection import open_async_connection, open_connection, translate_error
from wakeful.app.home import Home
from wakeful.client.portal import Portal
from wakeful.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable
from wakeful.job.job import StaleJob
from wakeful.service.jobs.job_editor import JobGone
from wakeful.service.jobs.jobs import JobService
from wakeful.service.jobs.save_warnings import check_new_chain
from wakeful.service.services import Services
from wakeful.store.accounts import AgentChanged
from wakeful.store.caller_transaction import JobKey, PlannedJob, PlanningStore, Sql, Step
from wakeful.store.rows import JobRow

T = TypeVar("T")

_TRIES: Final = 5


class AtHome(NamedTuple):
    """A step on the event loop of the scheduler."""

    call: Callable[[], Coroutine[Any, Any, Any]]


#: What a call does, step by step.
CallSteps: TypeAlias = Generator[AtHome | Step, Any, T]
#: Plans a call with the service of jobs.
Plan: TypeAlias = Callable[[JobService, PlanningStore], Awaitable[T]]


def plan_and_write(
    services: Services, plan: Plan[T], key: JobKey | None = None, *, look_first: bool = False
) -> CallSteps[T]:
    """Plan a call, and write what is planned in the transaction of the caller. Return the plan's result.

    `key` is the job that the call is about: a job that the same transaction has created is found by it.
    `look_first` looks for it there before planning.
    """
    transaction = services.store.caller_transaction
    yield from _check_database(services)
    looked, known = False, dict[JobKey, JobRow]()
    for _ in range(_TRIES):
        if key is not None and look_first and not looked:
            looked, known = True, (yield from _find(services, key))
        planning = PlanningStore(services.store, known)

        async def prepare(planning: PlanningStore = planning) -> T:
            result = await plan(services.jobs.with_store(planning), planning)
            for each in planning.planned:
                if isinstance(each, PlannedJob):
                    await check_new_chain(services.store, each.row)
            await transaction.check_planned(planning.planned)
            return result

        try:
            result: T = yield AtHome(prepare)
        except NotFound:
            if key is None or looked:
                raise
            looked, known = True, (yield from _find(services, key))
            if not known:
                raise
            continue
        try:
            yield from transaction.write(planning.planned)
        except (AgentChanged, StaleJob, JobGone):
            for each in planning.planned:
                if isinstance(each, PlannedJob):
                    services.accounts.forget(each.row.workspace, each.row.agent)
            continue
        return result
    raise Unavailable("the job is being changed at this moment; try again")


def _find(services: Services, key: JobKey) -> CallSteps[dict[JobKey, JobRow]]:
    row = yield from services.store.caller_transaction.find_job(key)
    return {} if row is None else {key: row, row.key: row}


def _check_database(services: Services) -> CallSteps[None]:
    transaction = services.store.caller_transaction
    fresh = not transaction.is_prepared
    if fresh:
        yield AtHome(transaction.prepare)
    if (yield from transaction.check()):
        return
    if not fresh:  # after a failover, the database of the store is on another server
        yield AtHome(transaction.prepare)
        if (yield from transaction.check()):
            return
    raise InvalidArgument(
        "connection: it is one to another database than that of this Wakeful; connect to the same server and "
        "database, or to the same file"
    )


async def run_async(home: Home, kind: str, connection: object, steps: CallSteps[T]) -> T:
    """Run the steps of a call on a connection in this event loop. `kind` is the database of the store."""
    execute = await open_async_connection(connection, kind)

    async def perform(step: AtHome | Step) -> Any:
        return await home.run(step.call) if isinstance(step, AtHome) else await execute(step)

    try:
        step = next(steps)
        while True:
            try:
                result = await perform(step)
            except GeneratorExit:
                raise
            except BaseException as error:
                step = steps.send([]) if _is_undo(step) else steps.throw(translate_error(error))
            else:
                step = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


def run_blocking(portal: Portal, kind: str, connection: object, steps: CallSteps[T]) -> T:
    """Run the steps of a call on a connection of this thread."""
    execute = open_connection(connection, kind)
    try:
        step = next(steps)
        while True:
            try:
                result = portal.run(step.call) if isinstance(step, AtHome) else execute(step)
            except BaseException as error:
                step = steps.send([]) if _is_undo(step) else steps.throw(translate_error(error))
            else:
                step = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


def _is_undo(step: AtHome | Step) -> bool:
    return isinstance(step, Sql) and step.undoes


def not_committed(name: str) -> FailedPrecondition:
    """Return the error for the result of a call whose transaction is not committed."""
    return FailedPrecondition(
        f"the call of '{name}' runs when your transaction has committed: await the call, commit, and then "
        "await its `result()`"
    )
