"""Instances in SQLite: signals arrive, and operators change instances. See `store/instances.py`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from wakeful.run.instances import INSTANCE_DELETED, InstanceLimits, instance_id
from wakeful.run.signal_rules import Arrival
from wakeful.store.accounts import AgentChanged
from wakeful.store.changelog import TransactionEvents
from wakeful.store.instances import ChangedInstance, InstanceRule, Received
from wakeful.store.mailbox_rules import signal_key, signal_result
from wakeful.store.row_mapping import view_of_new_run
from wakeful.store.sql import erasure
from wakeful.store.sql import instances as shared
from wakeful.store.sql.runs import runs_by_ids
from wakeful.store.sqlite.mailbox import add_signals, expose, known_signals, remember
from wakeful.store.sqlite.session import SqliteSession
from wakeful.store.sqlite.signal_outcomes import change_schedules, read_schedules
from wakeful.store.sqlite.waiting_runs import cancel, delete_without_runs
from wakeful.values.clock import Clock

#: the primary key, once for each
COUNT_INSTANCES: Final = "SELECT count(*) FROM json_each(?) e CROSS JOIN instances i ON i.id = e.value"
#: runs_mailbox and runs_exposed
LIVE_OF_INSTANCE: Final = """
    SELECT id FROM runs INDEXED BY runs_mailbox WHERE instance_id = ?1 AND state = 'pending'
    UNION SELECT id FROM runs INDEXED BY runs_exposed WHERE instance_id = ?1
        AND (state IN ('running', 'retrying') OR state = 'pending' AND due_at IS NOT NULL)
        AND (?2 OR state <> 'running')"""
#: the primary key
ACTIVE: Final = "SELECT active FROM agents WHERE workspace = ? AND name = ?"


async def send(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    arrivals: Sequence[Arrival],
    mailbox: int,
    limits: InstanceLimits | None,
) -> list[Received]:
    if not arrivals:
        return []
    owner = arrivals[0].run.workspace, arrivals[0].run.agent
    await shared.hold_class(SqliteSession(db), *owner)
    known = known_signals(db, now_ms, [signal_key(each) for each in arrivals if each.signal_id is not None])
    new = [
        each
        for each in arrivals
        if each.signal_id is None or known.setdefault(signal_key(each), each.run.id) == each.run.id
    ]
    grows = limits is not None and _any_missing(db, new)
    stored = add_signals(db, events, now_ms, [each.run for each in new], strict=True, limit=mailbox)
    remember(db, new)
    if limits is not None and grows:
        await _check_limits(db, *owner, limits)
    views = {run.id: view_of_new_run(run, now_ms) for run in stored}
    others = [run_id for run_id in known.values() if run_id not in views]
    if others:
        views |= {view.id: view for view in await runs_by_ids(SqliteSession(db), others)}
    return [signal_result(each, known, views, now_ms) for each in arrivals]


def _any_missing(db: sqlite3.Connection, arrivals: Sequence[Arrival]) -> bool:
    """Return whether any recipient does not exist."""
    recipients = {str(each.run.instance_id) for each in arrivals}
    found: int = db.execute(COUNT_INSTANCES, (json.dumps(list(recipients)),)).fetchone()[0]
    return found < len(recipients)


async def _check_limits(db: sqlite3.Connection, workspace: str, agent: str, limits: InstanceLimits) -> None:
    shared.check_addition(limits, agent)
    session = SqliteSession(db)
    await shared.check_limits(
        session, workspace, await shared.instance_limits(session, workspace, [agent], limits)
    )


async def change_instances(
    db: sqlite3.Connection,
    events: TransactionEvents,
    clock: Clock,
    workspace: str,
    agent: str,
    now_ms: int,
    rules: Mapping[str, InstanceRule],
    limits: InstanceLimits | None,
) -> list[ChangedInstance]:
    names = {instance_id(workspace, agent, name): name for name in rules}
    session = SqliteSession(db)
    await shared.hold_class(session, workspace, agent)
    jobs = read_schedules(db, names)
    rows = {own: row for own in names if (row := await shared.find_instance(session, own)) is not None}
    plan = shared.plan_changes(workspace, agent, names, rows, jobs, rules)
    if plan.active is not None and db.execute(ACTIVE, (workspace, agent)).fetchone() != (plan.active,):
        raise AgentChanged(agent)
    await shared.write_changes(session, events, plan)
    if limits is not None and plan.grows:
        await _check_limits(db, workspace, agent, limits)
    for own, reason, running in plan.cancelled:
        live = db.execute(LIVE_OF_INSTANCE, (own, running)).fetchall()
        cancel(db, events, now_ms, [(run_id, reason) for (run_id,) in live])
    await change_schedules(db, events, clock, now_ms, jobs, plan.created, plan.changed, plan.deleted)
    await shared.delete_rows(session, events, plan)
    expose(db, events, now_ms, plan.written)
    return plan.result


async def erase_instance(
    db: sqlite3.Connection, events: TransactionEvents, now_ms: int, instance: str, limit: int
) -> bool:
    session = SqliteSession(db)
    found = await erasure.find_history(session, instance, limit)
    if found is None:
        return False
    live = [run_id for (run_id,) in db.execute(LIVE_OF_INSTANCE, (instance, True))]
    cancel(db, events, now_ms, [(run_id, INSTANCE_DELETED) for run_id in (*live, *found.live_alerts)])
    await erasure.delete_history(session, found)
    delete_without_runs(db, found.jobs)
    return found.is_more or bool(live)
