"""Agents in PostgreSQL, with the jobs that inherit from them; and changes of many jobs at once.

A fixed number of statements, and two for every `_PAGE` jobs: more rows in one statement would block the event
loop for too long. Locks are taken in the order agent, cursors, jobs, runs; within a kind by id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from wakeful.run.consequences import JOB_DISABLED, Withdrawal
from wakeful.store.accounts import AgentRow, InheritingChange
from wakeful.store.job_changes import precheck_edit
from wakeful.store.postgres import statements as sql
from wakeful.store.postgres.ahead import settle_ahead
from wakeful.store.postgres.cancellation import withdraw
from wakeful.store.postgres.insert_runs import insert_runs
from wakeful.store.postgres.mailbox import lock_for_move
from wakeful.store.postgres.session import PostgresSession
from wakeful.store.postgres.transactions import Breaks
from wakeful.store.postgres.waiting_runs import move
from wakeful.store.rows import JobChange, JobRow
from wakeful.store.sql import accounts, prechecks
from wakeful.store.sql.incidents import close_of_jobs
from wakeful.store.sql.new_runs import check_written
from wakeful.values.clock import Clock

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db, TransactionEvents

#: So many jobs are read or written in one statement.
_PAGE: Final = 500
#: After so many decisions the event loop has its turn.
AT_ONCE: Final = 50


async def put_agent(
    db: Db,
    events: TransactionEvents,
    clock: Clock,
    workspace: str,
    name: str,
    change: Callable[[AgentRow | None], AgentRow | None],
    follow: InheritingChange | None,
) -> tuple[AgentRow | None, bool]:
    """Write an agent and the changes of its jobs. See `Store.put_agent`."""
    before, row, written = await accounts.put_agent(PostgresSession(db), workspace, name, change)
    if follow is None or row is None or before is None:  # an agent that was not there has no jobs
        return row, written
    job_ids = [job_id for (job_id,) in await db.fetch(sql.JOB_IDS_OF_AGENT, workspace, name)]
    if row.inherited == before.inherited:
        # Nothing new is inherited: look without locks first, so that planners need not wait.
        job_ids = [old.id for old, _ in await _decided(db, sql.JOBS_BY_ID, job_ids, row, follow)]
    if job_ids:
        await db.execute(sql.LOCK_CURSORS, job_ids)
        changes = await _decided(db, sql.LOCK_JOBS, job_ids, row, follow)
        await write_changes(db, events, clock.now_ms(), changes)
    return row, written


async def _decided(
    db: Db, query: str, job_ids: Sequence[str], agent: AgentRow, follow: InheritingChange
) -> list[tuple[JobRow, JobChange]]:
    """What becomes of these jobs, as the query finds them."""
    changes = []
    breaks = Breaks(AT_ONCE)
    for start in range(0, len(job_ids), _PAGE):
        for row in await db.fetch(query, job_ids[start : start + _PAGE]):
            job = JobRow(*row)
            change = follow(agent, job)
            if change is not None:
                changes.append((job, change))
            if breaks.is_due():
                await asyncio.sleep(0)
    return changes


async def write_changes(
    db: Db, events: TransactionEvents, now_ms: int, changes: Sequence[tuple[JobRow, JobChange]]
) -> list[JobRow]:
    """Write these changes of jobs that are locked. Returns the jobs as they are now."""
    if not changes:
        return []
    new = [
        change.job._replace(
            id=old.id,
            workspace=old.workspace,
            created_ms=old.created_ms,
            created_by=old.created_by,
            version=old.version + 1,
        )
        for old, change in changes
    ]
    for start in range(0, len(new), _PAGE):
        await db.execute(sql.CHANGE_JOBS, new[start : start + _PAGE])
    edits = [precheck_edit(old, row) for (old, _), row in zip(changes, new, strict=True)]
    for edit in ("revise", "reset") if any(edits) else ():
        job_ids = [row.id for row, each in zip(new, edits, strict=True) if each == edit]
        await prechecks.revise(PostgresSession(db), job_ids, reset=edit == "reset")
    moves = {old.id: change.move for old, change in changes if change.move is not None}
    if moves:
        await db.execute(sql.LOCK_FOR_MOVE, list(moves))
    instances = await lock_for_move(db, events, now_ms, moves) if moves else []
    await settle_ahead(db, events, now_ms, {old.id: change.withdrawn for old, change in changes})
    withdrawals = [
        Withdrawal(row.id, row.updated_ms, change.withdraw)
        for row, (_, change) in zip(new, changes, strict=True)
        if change.withdraw is not None
    ]
    await withdraw(db, events, withdrawals, None)
    await move(db, events, now_ms, moves, instances)
    runs = [run for _, change in changes for run in change.runs]
    check_written(runs, await insert_runs(db, events, now_ms, runs))
    disabled = [row.id for row, (old, _) in zip(new, changes, strict=True) if old.enabled and not row.enabled]
    await close_of_jobs(PostgresSession(db), events, disabled, now_ms, JOB_DISABLED)
    events.changed(row[:4] for row in new)
    events.publish("jobs")
    return new
