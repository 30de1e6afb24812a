"""The facade for accounts, audit, quotas, workflows and idempotency keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from wakeful.errors import AlreadyExists
from wakeful.job.start_rules import BudgetOwner
from wakeful.store.accounts import AgentRow, InheritingChange, KeyChange, KeyRow, WorkspaceRow, key_topic
from wakeful.store.audit import AuditEntry, AuditFilter, AuditPage, AuditRow, always
from wakeful.store.changelog import TransactionEvents
from wakeful.store.columns import column_list, insert
from wakeful.store.idempotency import Claim, Keyed
from wakeful.store.internal_jobs import IN_SQL, NO_RULES, WORKSPACE_AGENT, InternalChange, InternalRules
from wakeful.store.job_changes import overdue_runs
from wakeful.store.quotas import INSTANCES, LIVE_JOBS, QuotaRow, Stored, list_buckets
from wakeful.store.rows import JobChange, JobRow, WorkflowRow
from wakeful.store.sql import accounts, audit, revisions
from wakeful.store.sql.base import (
    Recorded,
    SqlBase,
    claim_key,
    reads,
    reads_now,
    response,
    store_response,
    writes,
)
from wakeful.store.sql.driver import SqlSession
from wakeful.store.sql.jobs import job
from wakeful.store.sql.usage import check_budgets

#: the primary key, jobs_list and instances_schedules: a range of each, in its order
QUOTAS: Final = f"""
    SELECT agent, bucket, most, used, day FROM quotas
    WHERE workspace = $1 AND ($4::text IS NULL OR agent = $4)
    UNION ALL SELECT agent, $2, NULL, count(*), 0 FROM jobs /*+ INDEXED BY jobs_list */
    WHERE workspace = $1 AND deleted_at IS NULL AND name NOT IN ({IN_SQL}) AND instance_id IS NULL
        AND ($4::text IS NULL OR agent = $4)
    GROUP BY agent
    UNION ALL SELECT agent, $3, NULL, count(*), 0 FROM instances
    WHERE workspace = $1 AND status <> 'stopped' AND ($4::text IS NULL OR agent = $4) GROUP BY agent"""
#: the primary key
QUOTA: Final = "SELECT most FROM quotas WHERE workspace = $1 AND agent = $2 AND bucket = $3"
#: the primary key
SET_QUOTA: Final = """
    INSERT INTO quotas (workspace, agent, bucket, most) VALUES ($1, $2, $3, $4)
    ON CONFLICT (workspace, agent, bucket) DO UPDATE SET most = EXCLUDED.most"""


async def quotas(
    session: SqlSession, workspace: str, now_ms: int, agent: str | None = None
) -> list[QuotaRow]:
    """Return limits and use of the workspace and of each of its agents with either, or only of one agent."""
    rows = await session.rows(QUOTAS, workspace, LIVE_JOBS, INSTANCES, agent)
    found = list_buckets(workspace, [Stored(*row) for row in rows], now_ms)
    return [row for row in found if agent in (None, row.agent)]


async def set_quota(
    session: SqlSession,
    workspace: str,
    agent: str,
    bucket: str,
    limit: int | None,
    check: Callable[[int | None], None] | None = None,
) -> None:
    """Set a limit, or remove it; `check` gets the limit that is set now, and may raise."""
    if check is not None:
        await accounts.lock_workspace(session, workspace)  # the limit may have no row yet
        check(await session.value(QUOTA, workspace, agent, bucket))
    await session.execute(SET_QUOTA, workspace, agent, bucket, limit)


#: the primary key; writes nothing if the version exists
PUT_WORKFLOW: Final = f"{insert('workflows', WorkflowRow._fields)} ON CONFLICT DO NOTHING"
_WORKFLOW: Final = f"SELECT {column_list(WorkflowRow._fields)} FROM workflows"
#: the primary key
WORKFLOW: Final = f"{_WORKFLOW} WHERE workspace = $1 AND id = $2 AND version = $3"
#: the primary key, once for each id and version
WORKFLOWS: Final = f"""{_WORKFLOW}
    WHERE workspace = $1 AND id = ANY($2::text[]) AND version = ANY($3::integer[])"""


async def put_workflow(session: SqlSession, row: WorkflowRow) -> bool:
    """Add a version, unless it exists."""
    if await session.execute(PUT_WORKFLOW, *row):
        return True
    stored = await workflow(session, row.workspace, row.id, row.version)
    if stored is not None and stored.dag != row.dag:
        raise AlreadyExists(
            f"workflow '{row.id}' has a version {row.version} already, which never changes: "
            f"give this one another number"
        )
    return False


async def workflow(session: SqlSession, workspace: str, workflow_id: str, version: int) -> WorkflowRow | None:
    """Return that version."""
    row = await session.row(WORKFLOW, workspace, workflow_id, version)
    return None if row is None else WorkflowRow(*row)


async def workflows(
    session: SqlSession, workspace: str, wanted: Sequence[tuple[str, int]]
) -> list[WorkflowRow]:
    """Return those of these versions (id, version) that exist, in any order."""
    ids, versions = sorted({key[0] for key in wanted}), sorted({key[1] for key in wanted})
    rows = [WorkflowRow(*row) for row in await session.rows(WORKFLOWS, workspace, ids, versions)]
    return [row for row in rows if (row.id, row.version) in wanted]


class SqlAdmin(SqlBase):
    """Accounts and records."""

    # --- workspaces and agents --------------------------------------------------------------------

    workspace = reads(accounts.workspace)
    workspaces = reads(accounts.workspaces)
    workspaces_named = reads(accounts.workspaces_named)

    async def put_workspace(
        self,
        row: WorkspaceRow,
        entries: Sequence[AuditEntry] = (),
        internal: InternalRules = NO_RULES,
        check: Callable[[WorkspaceRow | None], None] | None = None,
    ) -> WorkspaceRow:
        """Add the workspace, or replace all of it but `created_ms`; return it with its new `updated_ms`.

        `updated_ms` is later than before, so that it is the version of the workspace. `check` gets the
        workspace as it is, locked; if it raises, nothing changes. Its internal jobs (of the agent
        `WORKSPACE_AGENT`) and its budget blocks follow in the same transaction.
        """

        async def put(db: Any, events: TransactionEvents) -> tuple[WorkspaceRow, Sequence[AuditEntry]]:
            session = self._driver.session(db)
            saved = await accounts.put_workspace(session, row, check or (lambda _: None))
            made = await self._write_internal(db, events, row.name, WORKSPACE_AGENT, internal)
            await check_budgets(session, events, self.clock.now_ms(), [BudgetOwner(row.name)])
            return saved, made

        recorded: Recorded[tuple[WorkspaceRow, Sequence[AuditEntry]]]
        recorded = Recorded(lambda result: [*entries, *result[1]], always)
        return (await self._record(recorded, put))[0]

    async def repair_workspace(self, name: str, internal: Callable[[WorkspaceRow], InternalRules]) -> None:
        """Lock the workspace, if it exists, and write its internal jobs."""

        async def repair(db: Any, events: TransactionEvents) -> None:
            row = await accounts.lock_workspace(self._driver.session(db), name)
            if row is not None:
                await self._write_internal(db, events, name, WORKSPACE_AGENT, internal(row))

        await self._write(repair)

    agent = reads(accounts.agent)
    agents = reads(accounts.agents)
    agents_with_internal_jobs = reads(accounts.agents_with_internal_jobs)
    evolving_agents = reads(accounts.evolving_agents)

    async def put_agent(
        self,
        workspace: str,
        name: str,
        change: Callable[[AgentRow | None], AgentRow | None],
        entries: Sequence[AuditEntry] = (),
        follow: InheritingChange | None = None,
        internal: Callable[[AgentRow], InternalRules] | None = None,
        keyed: Keyed[AgentRow | None] | None = None,
    ) -> AgentRow | None:
        """Lock the agent and write what `change` returns; None changes nothing and writes no entry.

        `version` goes up by one, or is 1 for a new agent; `created_ms` stays. Returns the agent afterwards.
        The changes of its jobs that `follow` returns are written in the same transaction, as by `change_job`,
        but set-based. Transactions that create or change jobs of this agent wait for this one, and the other
        way round. Then the `internal` jobs of the agent are written, also if it did not change, and its
        budget blocks if its budget did. An exception of any function rolls everything back. `follow` may be
        called twice for a job.
        """

        async def put(db: Any, events: TransactionEvents) -> tuple[AgentRow | None, Sequence[AuditEntry]]:
            before: AgentRow | None = None

            def decide(old: AgentRow | None) -> AgentRow | None:
                nonlocal before
                before = old
                return change(old)

            row, is_written = await self._operations.jobs.put_agent(
                db, events, self.clock, workspace, name, decide, follow
            )
            made = list(entries) if is_written else []
            if row is not None and internal is not None:
                made += await self._write_internal(db, events, workspace, name, internal(row))
            if row is not None and row.budget != (before.budget if before else None):
                owners = [BudgetOwner(workspace, name)]
                await check_budgets(self._driver.session(db), events, self.clock.now_ms(), owners)
            return row, made

        recorded: Recorded[tuple[AgentRow | None, Sequence[AuditEntry]]]
        response: Keyed[tuple[AgentRow | None, Sequence[AuditEntry]]] | None
        response = keyed.of(lambda result: result[0]) if keyed else None
        recorded = Recorded(lambda result: result[1], always, response)
        row, _ = await self._record(recorded, put)
        return row

    async def delete_agent(
        self,
        workspace: str,
        name: str,
        entries: Sequence[AuditEntry] = (),
        internal: InternalRules = NO_RULES,
    ) -> bool:
        """Delete the agent, with what `internal` deletes, and revoke its keys. False: there is none.

        FailedPrecondition: it has other jobs, and says how many, or instances that are not stopped. Then
        nothing is changed.
        """

        async def delete(db: Any, events: TransactionEvents) -> tuple[bool, Sequence[AuditEntry]]:
            session = self._driver.session(db)
            await accounts.lock_agent(session, workspace, name)
            made = await self._write_internal(db, events, workspace, name, internal)
            deleted, revoked = await accounts.delete_agent(session, workspace, name, self.clock.now_ms())
            for key_id in revoked:
                events.publish(key_topic(key_id))
            if deleted:  # an agent of that name that is added again is not blocked
                owners = [BudgetOwner(workspace, name)]
                await check_budgets(self._driver.session(db), events, self.clock.now_ms(), owners)
            return deleted, [*made, *entries] if deleted else made

        recorded: Recorded[tuple[bool, Sequence[AuditEntry]]] = Recorded(lambda result: result[1], always)
        deleted, _ = await self._record(recorded, delete)
        return deleted

    async def _write_internal(
        self, db: Any, events: TransactionEvents, workspace: str, agent: str, rules: InternalRules
    ) -> Sequence[AuditEntry]:
        """Add, change and delete internal jobs of an agent that is locked. Returns their audit entries."""
        jobs, now_ms = self._operations.jobs, self.clock.now_ms()
        session = self._driver.session(db)
        found = [row for name in rules if (row := await job(session, workspace, agent, name)) is not None]
        decided: dict[str, tuple[JobRow, InternalChange]] = {}
        seen: set[str] = set()

        def decide(row: JobRow) -> JobChange | None:
            seen.add(row.name)
            made = rules[row.name](row) if row.name in rules else None
            if made is not None:
                decided[row.name] = row, made
            return None if made is None else made.change

        if found:  # all are locked at once: elsewhere jobs are locked in the order of their ids, too
            changed = await jobs.change_jobs(db, events, self.clock, [row.id for row in found], decide, None)
            for row in changed:
                change = decided[row.name][1].change
                if change is not None and change.revision is not None:
                    await revisions.add(session, row.id, row.version - 1, change.revision, row.updated_ms)
        for row, made in decided.values():
            if made.delete:
                due = partial(overdue_runs, now_ms=now_ms)
                await jobs.delete_job(db, events, self.clock, row.id, now_ms, "deleted", due)
        missing = [rules[name](None) for name in rules if name not in seen]
        added = [each.add for each in missing if each is not None and each.add is not None]
        if added:
            await jobs.create_jobs(db, events, now_ms, added, None, None)
        changes = [*(each for _, each in decided.values()), *missing]
        return [each.entry for each in changes if each is not None and each.entry is not None]

    # --- keys -------------------------------------------------------------------------------------

    async def add_key(
        self, row: KeyRow, entries: Sequence[AuditEntry] = (), keyed: Keyed[None] | None = None
    ) -> None:
        """Add a key."""
        await self._record(Recorded(entries, always, keyed), self._shared(accounts.add_key), row)

    async def change_keys(self, decide: Callable[[Sequence[KeyRow]], KeyChange]) -> bool:
        """Write what `decide` returns for all keys. No other transaction changes keys meanwhile.

        Returns whether anything changed. For the start of a process only: it reads all keys and blocks
        other writers of keys.
        """

        async def write(db: Any, events: TransactionEvents) -> KeyChange:
            change = await accounts.change_keys(self._driver.session(db), decide, self.clock.now_ms())
            for key_id in change.revoke:
                events.publish(key_topic(key_id))
            return change

        recorded: Recorded[KeyChange] = Recorded(lambda change: change.entries, always)
        return await self._record(recorded, write) != KeyChange()

    key_by_hash = reads(accounts.key_by_hash)
    key_names = reads(accounts.key_names)
    keys = reads(accounts.keys)
    global_keys = reads(accounts.global_keys)

    async def revoke_key(self, key_id: str, now_ms: int, entries: Sequence[AuditEntry] = ()) -> bool:
        """Revoke a key. False: no such key, or it is revoked already."""
        revoke = self._shared(accounts.revoke_key, key_topic(key_id))
        return await self._record(Recorded(entries), revoke, key_id, now_ms)

    touch_keys = writes(accounts.touch_keys)

    # --- audit ------------------------------------------------------------------------------------

    async def append_audit(self, entries: Sequence[AuditEntry]) -> None:
        """Append entries about actions that change nothing in the store."""
        await self._record(Recorded(entries, always), self._shared(audit.nothing))

    async def append_waiting_audit(self) -> None:
        """Append the entries of transactions of callers, in a database that appends them after the commit."""

    async def audit(
        self, workspace: str, *, after: int = 0, before: int | None = None, limit: int = 100
    ) -> list[AuditRow]:
        """Return entries with `seq > after`, oldest first; with `before`, those below it, newest first."""
        await self.append_waiting_audit()
        return await self._read(audit.page, workspace, after, before, limit)

    async def audit_page(
        self, workspace: str, only: AuditFilter, *, before: int | None, limit: int, considered: int
    ) -> AuditPage:
        """Return entries that match, below number `before`, newest first.

        At most `considered` entries are read: a page may have less than `limit` entries, or none, and still
        have a next one.
        """
        await self.append_waiting_audit()
        return await self._read(audit.filter_entries, workspace, only, before, limit, considered)

    async def audit_head(self, workspace: str) -> tuple[int, str]:
        """Return number and hash of the newest entry, stored apart from the entries; (0, ''): none."""
        await self.append_waiting_audit()
        return await self._read(audit.head, workspace)

    # --- quotas -----------------------------------------------------------------------------------

    quotas = reads(quotas)

    async def set_quota(
        self,
        workspace: str,
        agent: str,
        bucket: str,
        limit: int | None,
        entries: Sequence[AuditEntry] = (),
        check: Callable[[int | None], None] | None = None,
    ) -> None:
        """Set a limit, or with None return to the installation's default. The use stays.

        `check` gets the limit that is set now; if it raises, nothing changes.
        """
        write = self._shared(set_quota)
        await self._record(Recorded(entries, always), write, workspace, agent, bucket, limit, check)

    # --- workflows --------------------------------------------------------------------------------

    async def put_workflow(self, row: WorkflowRow, entries: Sequence[AuditEntry] = ()) -> bool:
        """Add a version. False: it exists with the same content. AlreadyExists: with another content."""
        return await self._record(Recorded(entries), self._shared(put_workflow), row)

    workflow = reads(workflow)
    workflows = reads(workflows)

    # --- idempotency keys -------------------------------------------------------------------------

    stored_response = reads_now(response)

    async def keep_response(self, claim: Claim, status: int, body: str) -> None:
        """Store the response of an operation; also its key, if no transaction has claimed it."""
        keyed: Keyed[None] = replace(claim.keyed, render=lambda _: (status, body))

        async def keep(session: SqlSession) -> None:
            now_ms = self.clock.now_ms()
            if claim.is_open:
                await claim_key(session, keyed, now_ms)
            await store_response(session, keyed, None, now_ms)

        await self._driver.write(self._shared(keep))
