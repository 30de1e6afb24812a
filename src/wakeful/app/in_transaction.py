"""Calls in the transaction of the caller: `connection=` of `enqueue`, `jobs.create`, `upsert` and `run`.

A call is planned by the services as any other call, and written on the connection of the caller
(`wakeful.store.caller_transaction`). The engine learns of it by the commit: nothing is published, cached or
started before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias, TypeVar

from wakeful.app.caller_connection import AtHome
from wakeful.errors import AlreadyExists, InvalidArgument, NotFound, Unavailable
from wakeful.job.job import StaleJob
from wakeful.service.jobs.job_editor import JobGone
from wakeful.service.jobs.jobs import JobService
from wakeful.service.jobs.save_warnings import check_new_chain
from wakeful.service.services import Services
from wakeful.store.accounts import AgentChanged
from wakeful.store.caller_transaction import JobKey, PlannedJob, PlanningStore, perform
from wakeful.store.rows import JobRow

T = TypeVar("T")

_TRIES: Final = 5

#: Plans a call with the service of jobs.
Plan: TypeAlias = Callable[[JobService, PlanningStore], Awaitable[T]]


async def plan_and_write(services: Services, plan: Plan[T], key: JobKey, *, look_first: bool = False) -> T:
    """Plan a call, and write what is planned in the transaction of the caller. Return the plan's result.

    `key` is the job that the call is about: a job that the same transaction has created is found by it.
    `look_first` looks for it there before planning. This awaits only steps.
    """
    transaction = services.store.caller_transaction
    await _check_database(services)
    looked, known = False, dict[JobKey, JobRow]()
    for _ in range(_TRIES):
        if look_first and not looked:
            looked, known = True, await _find(services, key)
        planning = PlanningStore(services.store, known)

        async def prepare(planning: PlanningStore = planning) -> T:
            result = await plan(services.jobs.with_store(planning), planning)
            for each in planning.planned:
                if isinstance(each, PlannedJob):
                    await check_new_chain(services.store, each.row)
            await transaction.check_planned(planning.planned)
            return result

        try:
            result: T = await perform(AtHome(prepare))
        except NotFound:
            if looked:
                raise
            looked, known = True, await _find(services, key)
            if not known:
                raise
            continue
        try:
            await transaction.write(planning.planned)
        except AlreadyExists:
            if not look_first:
                raise
            looked = False  # another transaction has created it meanwhile
            continue
        except (AgentChanged, StaleJob, JobGone):
            for each in planning.planned:
                if isinstance(each, PlannedJob):
                    services.accounts.forget(each.row.workspace, each.row.agent)
            looked, known = False, {}
            continue
        return result
    raise Unavailable("the job is being changed at this moment; try again")


async def _find(services: Services, key: JobKey) -> dict[JobKey, JobRow]:
    row = await services.store.caller_transaction.find_job(key)
    return {} if row is None else {key: row, row.key: row}


async def _check_database(services: Services) -> None:
    transaction = services.store.caller_transaction
    fresh = not transaction.is_prepared
    if fresh:
        await perform(AtHome(transaction.prepare))
    if await transaction.check():
        return
    if not fresh:  # after a failover, the database of the store is on another server
        await perform(AtHome(transaction.prepare))
        if await transaction.check():
            return
    raise InvalidArgument(
        "connection: it is one to another database than that of this Wakeful; connect to the same server and "
        "database, or to the same file"
    )
