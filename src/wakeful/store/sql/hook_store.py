"""The facade for trigger URLs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from wakeful.job.self_scheduling import ChargeRule
from wakeful.store.audit import AuditEntry
from wakeful.store.changelog import TransactionEvents
from wakeful.store.hooks import HookRow
from wakeful.store.idempotency import Keyed
from wakeful.store.sql import hooks
from wakeful.store.sql.base import Recorded, SqlBase

D = TypeVar("D")


class SqlHooks(SqlBase[D]):
    """Trigger URLs in an SQL database. Each method is that of `port.Store`."""

    async def hook(self, hash: bytes) -> HookRow | None:
        return await self._read(hooks.hook, hash, self.clock.now_ms())

    async def hooks_of_job(self, job_id: str) -> list[HookRow]:
        return await self._read(hooks.hooks_of_job, job_id, self.clock.now_ms())

    async def replace_hook(
        self,
        row: HookRow,
        until_ms: int,
        entries: Callable[[HookRow | None], Sequence[AuditEntry]],
        version: int | None = None,
        keyed: Keyed[tuple[bool, HookRow | None]] | None = None,
        charge: ChargeRule | None = None,
    ) -> tuple[bool, HookRow | None]:
        async def run(db: D, events: TransactionEvents) -> tuple[bool, HookRow | None]:
            return await hooks.replace_hook(self._driver.session(db), events, row, until_ms, version)

        recorded: Recorded[tuple[bool, HookRow | None]] = Recorded(
            lambda result: entries(result[1]), lambda result: result[0], keyed, charge
        )
        return await self._record(recorded, run)

    async def delete_hooks(
        self, job_id: str, entries: Sequence[AuditEntry] = (), version: int | None = None
    ) -> bool:
        async def run(db: D, events: TransactionEvents) -> bool:
            return await hooks.delete_hooks(self._driver.session(db), events, job_id, version)

        return await self._record(Recorded(entries), run)

    async def prune_hooks(self, now_ms: int) -> int:
        return await self._driver.write(self._shared(hooks.prune), now_ms)
