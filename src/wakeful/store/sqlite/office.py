"""The second half of the SQLite store: who may, what they did, how much they may, what they asked before.

`store/office.py` says what each method promises; what it does is in the module named after it (`directory`,
`audit`, `quotas`, `papers`), in statements that stand in `office_statements`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

from wakeful.clock import Clock
from wakeful.store.accounts import AgentRow, InheritingChange, KeyChange, KeyRow, WorkspaceRow
from wakeful.store.audit import AuditEntry, AuditRow, always, written
from wakeful.store.idempotency import Keyed, StoredResponse
from wakeful.store.quotas import QuotaRow
from wakeful.store.sqlite import accounts, audit, idempotency, inheritance, quotas, workflows
from wakeful.store.sqlite.connection import Connection, TransactionEvents
from wakeful.store.workflows import WorkflowRow

T = TypeVar("T")


class SqliteOffice:
    """What a SQLite file keeps besides time. Each method is that of `office.Office`."""

    clock: Clock
    _connection: Connection

    async def _audited(
        self,
        entries: Sequence[AuditEntry] | Callable[[T], Sequence[AuditEntry]],
        work: Callable[[sqlite3.Connection, TransactionEvents], T],
        changed: Callable[[T], bool] = bool,
        keyed: Keyed[T] | None = None,
    ) -> T:
        """Do the work, and if its result says that it changed something, write the entries down with it.

        Which they are may depend on the result. With `keyed`, the key is claimed before the work, and the
        response is stored after it.
        """

        def both(db: sqlite3.Connection, tell: TransactionEvents) -> T:
            if keyed is not None:
                idempotency.claim_key(db, keyed, self.clock.now_ms())
            result = work(db, tell)
            if keyed is not None:
                idempotency.store_response(db, keyed, result)
            if entries and changed(result):
                told = entries(result) if callable(entries) else entries
                audit.append(db, self.clock, told)
            return result

        return await self._connection.write(both)

    # --- workspaces and agents --------------------------------------------------------------------

    async def workspace(self, name: str) -> WorkspaceRow | None:
        """The workspace of that name."""
        return await self._connection.read(lambda db: accounts.workspace(db, name))

    async def workspaces(self) -> list[WorkspaceRow]:
        """All of them, by name."""
        return await self._connection.read(accounts.workspaces)

    async def put_workspace(self, row: WorkspaceRow, entries: Sequence[AuditEntry] = ()) -> None:
        """Add it, or replace it."""
        await self._audited(entries, lambda db, _: accounts.put_workspace(db, row), always)

    async def agent(self, workspace: str, name: str) -> AgentRow | None:
        """The agent of that name."""
        return await self._connection.read(lambda db: accounts.agent(db, workspace, name))

    async def agents(self, workspace: str) -> list[AgentRow]:
        """All of a workspace, by name."""
        return await self._connection.read(lambda db: accounts.agents(db, workspace))

    async def put_agent(
        self,
        workspace: str,
        name: str,
        change: Callable[[AgentRow | None], AgentRow | None],
        entries: Sequence[AuditEntry] = (),
        follow: InheritingChange | None = None,
    ) -> AgentRow | None:
        """Write what `change` makes of the agent, and what `follow` makes of its jobs."""
        row, _ = await self._audited(
            entries,
            lambda db, tell: inheritance.put_agent(db, tell, self.clock, workspace, name, change, follow),
            written,
        )
        return row

    async def delete_agent(self, workspace: str, name: str, entries: Sequence[AuditEntry] = ()) -> bool:
        """Delete the agent, unless it has jobs."""
        return await self._audited(entries, lambda db, _: accounts.delete_agent(db, workspace, name))

    # --- keys -------------------------------------------------------------------------------------

    async def add_key(self, row: KeyRow, entries: Sequence[AuditEntry] = ()) -> None:
        """Keep a key."""
        await self._audited(entries, lambda db, _: accounts.add_key(db, row), always)

    async def change_keys(self, decide: Callable[[Sequence[KeyRow]], KeyChange]) -> bool:
        """Write what `decide` makes of all keys there are."""
        change = await self._audited(
            lambda change: change.entries,
            lambda db, _: accounts.change_keys(db, decide, self.clock.now_ms()),
            always,
        )
        return change != KeyChange()

    async def key_by_hash(self, hash: bytes) -> KeyRow | None:
        """The key with that hash."""
        return await self._connection.read(lambda db: accounts.key_by_hash(db, hash))

    async def keys(self, workspace: str | None) -> list[KeyRow]:
        """The keys of a workspace, or all of them."""
        return await self._connection.read(lambda db: accounts.keys(db, workspace))

    async def revoke_key(self, key_id: str, now_ms: int, entries: Sequence[AuditEntry] = ()) -> bool:
        """End a key."""
        return await self._audited(entries, lambda db, _: accounts.revoke_key(db, key_id, now_ms))

    async def touch_keys(self, used: Sequence[tuple[str, int]]) -> None:
        """Note when keys were last used."""
        await self._connection.write(lambda db, _: accounts.touch_keys(db, used))

    # --- audit ------------------------------------------------------------------------------------

    async def append(self, entries: Sequence[AuditEntry]) -> None:
        """Write these entries down."""
        await self._connection.write(lambda db, _: audit.append(db, self.clock, entries))

    async def audit(
        self, workspace: str, *, after: int = 0, before: int | None = None, limit: int = 100
    ) -> list[AuditRow]:
        """Entries after that one, oldest first; or before that one, newest first."""
        return await self._connection.read(lambda db: audit.page(db, workspace, after, before, limit))

    async def audit_head(self, workspace: str) -> tuple[int, str]:
        """The number and the hash of the newest entry."""
        return await self._connection.read(lambda db: audit.head(db, workspace))

    # --- quotas -----------------------------------------------------------------------------------

    async def quotas(self, workspace: str, now_ms: int) -> list[QuotaRow]:
        """What is set and what is used."""
        return await self._connection.read(lambda db: quotas.quotas(db, workspace, now_ms))

    async def set_quota(
        self, workspace: str, agent: str, bucket: str, limit: int | None, entries: Sequence[AuditEntry] = ()
    ) -> None:
        """Set a limit, or none."""
        await self._audited(
            entries, lambda db, _: quotas.set_quota(db, workspace, agent, bucket, limit), always
        )

    # --- workflows --------------------------------------------------------------------------------

    async def put_workflow(self, row: WorkflowRow, entries: Sequence[AuditEntry] = ()) -> bool:
        """Keep a version."""
        return await self._audited(entries, lambda db, _: workflows.put_workflow(db, row))

    async def workflow(self, workspace: str, workflow_id: str, version: int) -> WorkflowRow | None:
        """That version."""
        return await self._connection.read(lambda db: workflows.workflow(db, workspace, workflow_id, version))

    # --- idempotency keys -------------------------------------------------------------------------

    async def stored_response(self, workspace: str, key: str) -> StoredResponse | None:
        """The stored response of that key, unless it has expired."""
        now_ms = self.clock.now_ms()
        return await self._connection.read(lambda db: idempotency.response(db, workspace, key, now_ms))
