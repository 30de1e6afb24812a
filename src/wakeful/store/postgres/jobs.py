"""Jobs in PostgreSQL: with the agents from which they inherit, and charged to quotas when they are created.

Changes of many jobs have a fixed number of statements, and two for every `_PAGE` jobs: more rows in one
statement would block the event loop for too long. Locks are taken in the order agent, cursors, jobs, runs;
within a kind by id. A text that is not a UUID is the id of no job: it is not found, and not an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from asyncpg import UniqueViolationError

from wakeful.job.self_scheduling import APPROVAL
from wakeful.run.consequences import JOB_DELETED, JOB_DISABLED, Withdrawal
from wakeful.run.run import NewRun
from wakeful.run.usage import utc_day
from wakeful.store.accounts import AgentChanged, AgentRow, Inherited, InheritingChange
from wakeful.store.changelog import TransactionEvents
from wakeful.store.internal_jobs import IN_SQL
from wakeful.store.job_changes import precheck_edit
from wakeful.store.postgres import statements as sql
from wakeful.store.postgres.insert_runs import insert_runs
from wakeful.store.postgres.mailbox import lock_for_move
from wakeful.store.postgres.session import Breaks, Db, PostgresSession, savepoint
from wakeful.store.postgres.waiting_runs import delete_jobs, move, settle_ahead, withdraw
from wakeful.store.quotas import (
    CREATE_JOB,
    LIVE_JOBS,
    Allowance,
    Charged,
    QuotaOwner,
    charges,
    check_created,
    check_live,
    live_limits,
    owners,
)
from wakeful.store.rows import JobChange, JobRow
from wakeful.store.sql import accounts, prechecks
from wakeful.store.sql.history import delete_of_new_jobs
from wakeful.store.sql.incidents import close_of_jobs
from wakeful.store.sql.jobs import find_name_conflict, name_taken
from wakeful.store.sql.new_runs import check_written
from wakeful.store.sql.usage import note_waiting_jobs
from wakeful.values.clock import Clock
from wakeful.values.ids import is_id

#: the columns of `Inherited`
_INHERITED: Final = "target, active, secret, old_secret, old_secret_until_at"
#: the primary key, twice for each. Locks the agents against changes and returns what jobs inherit. Without
#: agents that another transaction is adding or deleting
HOLD_AGENTS: Final = f"""
    WITH wanted AS (SELECT * FROM unnest($1::text[], $2::text[]) g (workspace, name)),
    held AS (
        SELECT a.* FROM wanted g CROSS JOIN LATERAL (
            SELECT a.workspace, a.name, {_INHERITED} FROM agents a
            WHERE a.workspace = g.workspace AND a.name = g.name FOR SHARE) a),
    added AS (
        INSERT INTO agents (workspace, name, active, description, version, created_at, updated_at)
        SELECT workspace, name, true, '', 1, $3, $3 FROM wanted
        ON CONFLICT DO NOTHING RETURNING workspace, name, {_INHERITED})
    SELECT * FROM held UNION ALL SELECT * FROM added"""
#: the primary key, once for each
HOLD_EXISTING: Final = f"""
    SELECT a.* FROM (
        SELECT * FROM unnest($1::text[], $2::text[]) g (workspace, name) ORDER BY workspace, name) g
    CROSS JOIN LATERAL (
        SELECT a.workspace, a.name, {_INHERITED} FROM agents a
        WHERE a.workspace = g.workspace AND a.name = g.name FOR SHARE) a"""
#: the primary keys of jobs and agents
HOLD_AGENT_OF_JOB: Final = """
    SELECT a.target, a.active, a.secret, a.old_secret, a.old_secret_until_at
    FROM jobs j JOIN agents a ON a.workspace = j.workspace AND a.name = j.agent
    WHERE j.id = $1 FOR SHARE OF a"""
#: So many jobs are read or written in one statement.
_PAGE: Final = 500
#: A savepoint, two statements, costs more than a check of each of so many new jobs.
_FEW: Final = 30
#: After so many decisions the event loop has its turn.
AT_ONCE: Final = 50


async def hold_agents(
    db: Db, now_ms: int, owners: Sequence[QuotaOwner], expected: Mapping[QuotaOwner, Inherited] | None = None
) -> None:
    """Add those of these agents that do not exist, and lock all of them against changes.

    Raises AgentChanged if one differs from `expected`.
    """
    columns = [workspace for workspace, _ in owners], [name for _, name in owners]
    while len(held := await db.fetch(HOLD_AGENTS, *columns, now_ms)) < len(owners):
        pass  # another transaction has just added or deleted one: the next statement sees it
    if expected:
        for workspace, name, *inherited in held:
            if expected.get((workspace, name), inherited) != tuple(inherited):
                raise AgentChanged(name)


async def check_agents(db: Db, expected: Mapping[QuotaOwner, Inherited]) -> None:
    """Lock those of these agents that exist. Raises AgentChanged if one differs from `expected`."""
    columns = [workspace for workspace, _ in expected], [name for _, name in expected]
    for workspace, name, *inherited in await db.fetch(HOLD_EXISTING, *columns):
        if expected[workspace, name] != tuple(inherited):
            raise AgentChanged(name)


async def hold_agent_by_job(db: Db, job_id: str, expected: Inherited) -> None:
    """Lock the agent of a job against changes. Raises AgentChanged if it differs from `expected`."""
    row = await db.fetchrow(HOLD_AGENT_OF_JOB, job_id)
    if row is not None and tuple(row) != expected:
        raise AgentChanged("of the job")


def _live(of: str) -> str:
    return f"""
    SELECT o.workspace, o.agent, c.jobs
    FROM unnest($1::text[], $2::text[], $3::bigint[]) o (workspace, agent, most) CROSS JOIN LATERAL (
        SELECT count(*) AS jobs FROM (
            SELECT FROM jobs j WHERE j.workspace = o.workspace {of} AND j.deleted_at IS NULL
                AND j.name NOT IN ({IN_SQL}) AND j.instance_id IS NULL
            LIMIT o.most + 1) counted) c"""


#: jobs_name: of a range of it, for each owner, as many as the limit and one more. A stored count
#: would make transactions that delete jobs wait for those that create some
LIVE_OF_AGENTS: Final = _live("AND j.agent = o.agent")
LIVE_OF_WORKSPACES: Final = _live("")


#: the primary key, twice for each: what `CHARGE` would return, without a lock
CHARGED: Final = """
    SELECT o.workspace, o.agent, c.most,
        o.jobs + CASE WHEN c.day - $6 IN (0, 1) THEN c.used ELSE 0 END, l.most
    FROM unnest($1::text[], $2::text[], $3::bigint[]) o (workspace, agent, jobs)
    LEFT JOIN quotas c ON c.workspace = o.workspace AND c.agent = o.agent AND c.bucket = $4
    LEFT JOIN quotas l ON l.workspace = o.workspace AND l.agent = o.agent AND l.bucket = $5"""


async def check_quotas(db: Db, now_ms: int, jobs: Sequence[JobRow], allowance: Allowance) -> None:
    """Raise ResourceExhausted if these jobs, which are not written yet, are too many. Charge nothing."""
    added = charges(jobs)
    rows = await db.fetch(CHARGED, *_columns(added), CREATE_JOB, LIVE_JOBS, utc_day(now_ms))
    charged = [Charged(*row) for row in rows]
    check_created(charged, added, allowance)
    limits = live_limits(charged, allowance)
    live = await _count_live(db, limits)
    check_live({owner: live.get(owner, 0) + added[owner] for owner in limits}, limits)


async def charge_created(db: Db, now_ms: int, added: Mapping[QuotaOwner, int]) -> None:
    """Charge jobs that exist already to these owners, beyond any limit."""
    await db.execute(sql.CHARGE, *_columns(added), CREATE_JOB, LIVE_JOBS, utc_day(now_ms))


async def charge(db: Db, now_ms: int, jobs: Sequence[JobRow], allowance: Allowance) -> None:
    """Charge these new jobs to their workspaces and agents."""
    added = charges(jobs)
    rows = await db.fetch(sql.CHARGE, *_columns(added), CREATE_JOB, LIVE_JOBS, utc_day(now_ms))
    await _check_charged(db, added, [Charged(*row) for row in rows], allowance)


async def _check_charged(
    db: Db, added: Mapping[QuotaOwner, int], charged: Sequence[Charged], allowance: Allowance
) -> None:
    check_created(charged, added, allowance)
    limits = live_limits(charged, allowance)
    if limits:
        check_live(await _count_live(db, limits), limits)


async def _count_live(db: Db, limits: Mapping[QuotaOwner, int]) -> dict[QuotaOwner, int]:
    """Count the jobs of each owner, up to one more than its limit."""
    live: dict[QuotaOwner, int] = {}
    for statement, whole in ((LIVE_OF_WORKSPACES, True), (LIVE_OF_AGENTS, False)):
        limited = {
            (workspace, agent): limit
            for (workspace, agent), limit in limits.items()
            if (agent == "") is whole
        }
        if limited:
            rows = await db.fetch(statement, *_columns(limited))
            live.update({(workspace, agent): count for workspace, agent, count in rows})
    return live


def _columns(numbers: Mapping[QuotaOwner, int]) -> tuple[list[str], list[str], list[int]]:
    return [workspace for workspace, _ in numbers], [agent for _, agent in numbers], list(numbers.values())


async def put_agent(
    db: Db,
    events: TransactionEvents,
    clock: Clock,
    workspace: str,
    name: str,
    change: Callable[[AgentRow | None], AgentRow | None],
    follow: InheritingChange | None,
) -> tuple[AgentRow | None, bool]:
    before, row, written = await accounts.put_agent(PostgresSession(db), workspace, name, change)
    if follow is None or row is None or before is None:  # an agent that was not there has no jobs
        return row, written
    job_ids = [job_id for (job_id,) in await db.fetch(sql.JOB_IDS_OF_AGENT, workspace, name)]
    if row.inherited == before.inherited:
        # Nothing new is inherited: look without locks first, so that planners need not wait.
        job_ids = [old.id for old, _ in await _decide_changes(db, sql.JOBS_BY_ID, job_ids, row, follow)]
    if job_ids:
        await db.execute(sql.LOCK_CURSORS, job_ids)
        changes = await _decide_changes(db, sql.LOCK_JOBS, job_ids, row, follow)
        await write_changes(db, events, clock.now_ms(), changes)
    return row, written


async def _decide_changes(
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
    reasons = {
        row.id: (row.policy, change.withdrawal_reason) for row, (_, change) in zip(new, changes, strict=True)
    }
    await settle_ahead(db, events, now_ms, reasons)
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
    events.record_changed_jobs((row.id, *row.key) for row in new)
    begun = [
        row.id
        for row, (old, _) in zip(new, changes, strict=True)
        if row.disabled_reason == APPROVAL != old.disabled_reason
    ]
    await note_waiting_jobs(PostgresSession(db), events, now_ms, begun)
    events.publish("jobs")
    return new


async def create_jobs(
    db: Db,
    events: TransactionEvents,
    now_ms: int,
    jobs: Sequence[JobRow],
    allowance: Allowance | None,
    agents: Mapping[tuple[str, str], Inherited] | None = None,
) -> None:
    # In one order: of two transactions with the same names, one waits for the other and not both.
    ordered = sorted(jobs, key=lambda new: new.key)
    if len(jobs) <= _FEW:
        await hold_agents(db, now_ms, owners(jobs), agents)
        made = await _create_few(db, now_ms, ordered, allowance)
        for new in jobs:
            if new.id not in made:
                raise name_taken(new)
    else:
        await delete_of_new_jobs(PostgresSession(db), [new.key for new in jobs])
        await hold_agents(db, now_ms, owners(jobs), agents)
        try:
            async with savepoint(db):  # the transaction continues after a conflict
                for start in range(0, len(ordered), _PAGE):
                    await db.execute(sql.CREATE_JOBS, ordered[start : start + _PAGE])
        except UniqueViolationError as error:
            taken = await find_name_conflict(PostgresSession(db), jobs)
            if taken is None:
                raise
            raise name_taken(taken) from error
        if allowance is not None:
            await charge(db, now_ms, jobs, allowance)
    events.record_changed_jobs((new.id, *new.key) for new in jobs)
    waiting = [new.id for new in jobs if new.disabled_reason == APPROVAL]
    await note_waiting_jobs(PostgresSession(db), events, now_ms, waiting)
    events.publish("jobs")


async def _create_few(
    db: Db, now_ms: int, jobs: Sequence[JobRow], allowance: Allowance | None
) -> Collection[str]:
    """Insert a few jobs and charge them, in one statement. Return which were inserted.

    A name that is taken is left out; then the caller rolls back.
    """
    added = charges(jobs) if allowance is not None else {}
    rows = await db.fetch(sql.CREATE_FEW_JOBS, jobs, *_columns(added), CREATE_JOB, LIVE_JOBS, utc_day(now_ms))
    made, any_session, *_ = rows[0]
    inserted = set(made.split(",") if made else ())
    if len(inserted) < len(jobs):
        return inserted
    if allowance is not None:
        await _check_charged(db, added, [Charged(*charged) for _, _, *charged in rows], allowance)
    if any_session:
        await delete_of_new_jobs(PostgresSession(db), [new.key for new in jobs])
    return inserted


async def change_job(
    db: Db,
    events: TransactionEvents,
    clock: Clock,
    job_id: str,
    change: Callable[[JobRow], JobChange | None],
    agent: Inherited | None = None,
) -> tuple[JobRow | None, bool]:
    if agent is not None and is_id(job_id):
        await hold_agent_by_job(db, job_id, agent)
    row = await db.fetchrow(sql.LOCK_JOB, job_id) if is_id(job_id) else None
    if row is None:
        return None, False
    old = JobRow(*row)
    changed = change(old)
    if changed is None:
        return old, False
    now_ms = clock.now_ms()  # read after the wait for the lock: runs that started meanwhile go on
    try:
        (new,) = await write_changes(db, events, now_ms, [(old, changed)])
    except UniqueViolationError as error:
        raise name_taken(changed.job) from error
    if new.agent != old.agent:
        await hold_agents(db, now_ms, owners([new]))
    return new, True


async def change_jobs(
    db: Db,
    events: TransactionEvents,
    clock: Clock,
    job_ids: Sequence[str],
    change: Callable[[JobRow], JobChange | None],
    agents: Mapping[tuple[str, str], Inherited] | None,
) -> list[JobRow]:
    if agents:
        await check_agents(db, agents)
    known = [job_id for job_id in job_ids if is_id(job_id)]
    await db.execute(sql.LOCK_CURSORS, known)
    changes = []
    breaks = Breaks(AT_ONCE)
    for row in await db.fetch(sql.LOCK_JOBS, known):
        old = JobRow(*row)
        changed = change(old)
        if changed is not None:
            changes.append((old, changed))
        if breaks.is_due():
            await asyncio.sleep(0)
    return await write_changes(db, events, clock.now_ms(), changes)


async def delete_job(
    db: Db,
    events: TransactionEvents,
    clock: Clock,
    job_id: str,
    now_ms: int,
    reason: str,
    due_runs: Callable[[JobRow], Sequence[NewRun]],
) -> bool:
    row = await db.fetchrow(sql.LOCK_JOB, job_id) if is_id(job_id) else None
    if row is None:
        return False
    due = due_runs(JobRow(*row))
    check_written(due, await insert_runs(db, events, now_ms, due))
    if not await delete_jobs(db, events, {job_id: now_ms}):
        return False
    withdrawal = Withdrawal(job_id, now_ms, reason, manual=True)
    await withdraw(db, events, [withdrawal], max(now_ms, clock.now_ms()))
    await close_of_jobs(PostgresSession(db), events, [job_id], now_ms, JOB_DELETED)
    await db.execute(sql.DELETE_JOBS_WITHOUT_RUNS, [job_id])
    return True
