"""The facade for accounts, audit, quotas, workflows and idempotency keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from wakeful.store.accounts import AgentRow, InheritingChange, KeyChange, KeyRow, WorkspaceRow
from wakeful.store.audit import AuditEntry, AuditFilter, AuditPage, AuditRow, always, written
from wakeful.store.idempotency import StoredResponse
from wakeful.store.quotas import QuotaRow
from wakeful.store.sql import accounts, audit, idempotency, quotas, workflows
from wakeful.store.sql.base import Recorded, SqlBase
from wakeful.store.workflows import WorkflowRow

D = TypeVar("D")


class SqlAdmin(SqlBase[D]):
    """Accounts and records in an SQL database. Each method is that of `port.Store`."""

    # --- workspaces and agents --------------------------------------------------------------------

    async def workspace(self, name: str) -> WorkspaceRow | None:
        return await self._read(accounts.workspace, name)

    async def workspaces(self) -> list[WorkspaceRow]:
        return await self._read(accounts.workspaces)

    async def workspaces_named(self, prefix: str, limit: int) -> list[WorkspaceRow]:
        return await self._read(accounts.workspaces_named, prefix, limit)

    async def put_workspace(self, row: WorkspaceRow, entries: Sequence[AuditEntry] = ()) -> None:
        await self._record(Recorded(entries, always), self._shared(accounts.put_workspace), row)

    async def agent(self, workspace: str, name: str) -> AgentRow | None:
        return await self._read(accounts.agent, workspace, name)

    async def agents(self, workspace: str) -> list[AgentRow]:
        return await self._read(accounts.agents, workspace)

    async def evolving_agents(self) -> list[tuple[str, str, bool]]:
        return await self._read(accounts.evolving_agents)

    async def put_agent(
        self,
        workspace: str,
        name: str,
        change: Callable[[AgentRow | None], AgentRow | None],
        entries: Sequence[AuditEntry] = (),
        follow: InheritingChange | None = None,
    ) -> AgentRow | None:
        recorded: Recorded[tuple[AgentRow | None, bool]] = Recorded(entries, written)
        put = self._operations.inheritance.put_agent
        row, _ = await self._record(recorded, put, self.clock, workspace, name, change, follow)
        return row

    async def delete_agent(self, workspace: str, name: str, entries: Sequence[AuditEntry] = ()) -> bool:
        return await self._record(Recorded(entries), self._shared(accounts.delete_agent), workspace, name)

    # --- keys -------------------------------------------------------------------------------------

    async def add_key(self, row: KeyRow, entries: Sequence[AuditEntry] = ()) -> None:
        await self._record(Recorded(entries, always), self._shared(accounts.add_key), row)

    async def change_keys(self, decide: Callable[[Sequence[KeyRow]], KeyChange]) -> bool:
        recorded: Recorded[KeyChange] = Recorded(lambda change: change.entries, always)
        write = self._shared(accounts.change_keys)
        return await self._record(recorded, write, decide, self.clock.now_ms()) != KeyChange()

    async def key_by_hash(self, hash: bytes) -> KeyRow | None:
        return await self._read(accounts.key_by_hash, hash)

    async def keys(self, workspace: str | None) -> list[KeyRow]:
        return await self._read(accounts.keys, workspace)

    async def global_keys(self) -> list[KeyRow]:
        return await self._read(accounts.global_keys)

    async def revoke_key(self, key_id: str, now_ms: int, entries: Sequence[AuditEntry] = ()) -> bool:
        return await self._record(Recorded(entries), self._shared(accounts.revoke_key), key_id, now_ms)

    async def touch_keys(self, used: Sequence[tuple[str, int]]) -> None:
        await self._driver.write(self._shared(accounts.touch_keys), used)

    # --- audit ------------------------------------------------------------------------------------

    async def append_audit(self, entries: Sequence[AuditEntry]) -> None:
        await self._record(Recorded(entries, always), self._shared(audit.nothing))

    async def audit(
        self, workspace: str, *, after: int = 0, before: int | None = None, limit: int = 100
    ) -> list[AuditRow]:
        return await self._read(audit.page, workspace, after, before, limit)

    async def audit_page(
        self, workspace: str, only: AuditFilter, *, before: int | None, limit: int, considered: int
    ) -> AuditPage:
        return await self._read(audit.filtered, workspace, only, before, limit, considered)

    async def audit_head(self, workspace: str) -> tuple[int, str]:
        return await self._read(audit.head, workspace)

    # --- quotas -----------------------------------------------------------------------------------

    async def quotas(self, workspace: str, now_ms: int) -> list[QuotaRow]:
        return await self._read(quotas.quotas, workspace, now_ms)

    async def set_quota(
        self, workspace: str, agent: str, bucket: str, limit: int | None, entries: Sequence[AuditEntry] = ()
    ) -> None:
        write = self._shared(quotas.set_quota)
        await self._record(Recorded(entries, always), write, workspace, agent, bucket, limit)

    # --- workflows --------------------------------------------------------------------------------

    async def put_workflow(self, row: WorkflowRow, entries: Sequence[AuditEntry] = ()) -> bool:
        return await self._record(Recorded(entries), self._shared(workflows.put_workflow), row)

    async def workflow(self, workspace: str, workflow_id: str, version: int) -> WorkflowRow | None:
        return await self._read(workflows.workflow, workspace, workflow_id, version)

    async def workflows(self, workspace: str, wanted: Sequence[tuple[str, int]]) -> list[WorkflowRow]:
        return await self._driver.read(self._operations.executors.workflows, workspace, wanted)

    # --- idempotency keys -------------------------------------------------------------------------

    async def stored_response(self, workspace: str, key: str) -> StoredResponse | None:
        return await self._read(idempotency.response, workspace, key, self.clock.now_ms())
