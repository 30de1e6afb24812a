"""Instances in PostgreSQL: signals arrive, and operators change instances. See `store/instances.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from asyncpg import SerializationError

from wakeful.run.instances import INSTANCE_DELETED, InstanceLimits, instance_id
from wakeful.run.signal_rules import Arrival
from wakeful.store.accounts import AgentChanged
from wakeful.store.changelog import TransactionEvents
from wakeful.store.instances import ChangedInstance, InstanceRow, InstanceRule, Received
from wakeful.store.mailbox_rules import signal_key, signal_result
from wakeful.store.postgres import statements as sql
from wakeful.store.postgres.mailbox import (
    admit_signals,
    expose,
    known_signals,
    lock_and_number,
    lock_limits,
    remember,
)
from wakeful.store.postgres.session import Db, PostgresSession
from wakeful.store.postgres.signal_outcomes import (
    change_schedules,
    check_unchanged,
    hold_agents,
    lock_schedules,
    schedule_ids,
)
from wakeful.store.postgres.waiting_runs import cancel
from wakeful.store.row_mapping import view_of_new_run
from wakeful.store.rows import RunView
from wakeful.store.sql import erasure
from wakeful.store.sql import instances as shared
from wakeful.store.sql.driver import Duplicate
from wakeful.store.sql.runs import runs_by_ids
from wakeful.values.clock import Clock

#: the primary key, once for each
LOCK_INSTANCE_ROWS: Final = f"""
    SELECT {shared.INSTANCE_COLUMNS} FROM instances i WHERE i.id = ANY($1::uuid[]) ORDER BY i.id FOR UPDATE"""
#: live_runs_mailbox and live_runs_exposed
LIVE_OF_INSTANCE: Final = """
    SELECT run_id::text FROM live_runs WHERE instance_id = $1 AND state = 'pending'
    UNION SELECT run_id::text FROM live_runs
    WHERE instance_id = $1 AND (state <> 'pending' OR due_at IS NOT NULL) AND ($2 OR state <> 'running')"""


async def send(
    db: Db,
    events: TransactionEvents,
    now_ms: int,
    arrivals: Sequence[Arrival],
    mailbox: int,
    limits: InstanceLimits | None,
) -> list[Received]:
    if not arrivals:
        return []
    await shared.hold_class(PostgresSession(db), arrivals[0].run.workspace, arrivals[0].run.agent)
    locked = await lock_and_number(db, now_ms, [each.run for each in arrivals])
    known = await known_signals(
        db, now_ms, [signal_key(each) for each in arrivals if each.signal_id is not None]
    )
    new = [
        each
        for each in arrivals
        if each.signal_id is None or known.setdefault(signal_key(each), each.run.id) == each.run.id
    ]
    stored: list[RunView] = []
    if new:
        runs = [each.run for each in new]
        written = await admit_signals(db, events, now_ms, runs, locked, strict=True, limit=mailbox)
        stored = [view_of_new_run(run, now_ms) for run in written]
        await remember(db, new)
    if limits is not None and any(each.is_new for each in locked.values()):
        await _check_limits(db, arrivals[0].run.workspace, arrivals[0].run.agent, limits)
    views = {view.id: view for view in stored}
    others = [run_id for run_id in known.values() if run_id not in views]
    if others:
        views |= {view.id: view for view in await runs_by_ids(PostgresSession(db), others)}
    return [signal_result(each, known, views, now_ms) for each in arrivals]


async def _check_limits(db: Db, workspace: str, agent: str, limits: InstanceLimits) -> None:
    shared.check_addition(limits, agent)
    await shared.check_limits(
        PostgresSession(db), workspace, await lock_limits(db, workspace, [agent], limits)
    )


async def change_instances(
    db: Db,
    events: TransactionEvents,
    clock: Clock,
    workspace: str,
    agent: str,
    now_ms: int,
    rules: Mapping[str, InstanceRule],
    limits: InstanceLimits | None,
) -> list[ChangedInstance]:
    names = {instance_id(workspace, agent, name): name for name in rules}
    session = PostgresSession(db)
    inactive = await hold_agents(db, [(workspace, agent)])
    await shared.hold_class(session, workspace, agent)
    found = await schedule_ids(db, list(names))
    if found:
        await db.execute(sql.LOCK_CURSORS, list(found))
    jobs = await lock_schedules(db, list(found))
    rows = {row["id"]: InstanceRow(*row) for row in await db.fetch(LOCK_INSTANCE_ROWS, sorted(names))}
    await check_unchanged(db, list(names), found)
    in_order = sorted(jobs.values(), key=lambda job: (job.schedule_origin, job.schedule_id))
    plan = shared.plan_changes(workspace, agent, names, rows, in_order, rules)
    if plan.active is not None and plan.active == bool(inactive):
        raise AgentChanged(agent)
    try:
        await shared.write_changes(session, events, plan)
    except Duplicate as error:  # repeat the transaction: another one has just added the instance
        raise SerializationError("the instance was added meanwhile") from error
    if limits is not None and plan.grows:
        await _check_limits(db, workspace, agent, limits)
    for own, reason, running in plan.cancelled:
        live = await db.fetch(LIVE_OF_INSTANCE, own, running)
        await cancel(db, events, now_ms, [(run_id, reason) for (run_id,) in live])
    await change_schedules(db, events, clock, now_ms, jobs, plan.created, plan.changed, plan.deleted)
    await shared.delete_rows(session, events, plan)
    await expose(db, events, now_ms, plan.written)
    return plan.result


async def erase_instance(db: Db, events: TransactionEvents, now_ms: int, instance: str, limit: int) -> bool:
    session = PostgresSession(db)
    found = await erasure.find_history(session, instance, limit)
    if found is None:
        return False
    live = [run_id for (run_id,) in await db.fetch(LIVE_OF_INSTANCE, instance, True)]
    await cancel(db, events, now_ms, [(run_id, INSTANCE_DELETED) for run_id in (*live, *found.live_alerts)])
    await erasure.delete_history(session, found)
    if found.jobs:
        await db.execute(sql.DELETE_JOBS_WITHOUT_RUNS, list(found.jobs))
    return found.is_more or bool(live)
