"""The facade for agent classes, instances and their mailboxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from wakeful.job.self_scheduling import ChargeRule
from wakeful.run.instances import (
    AgentClass,
    InstanceLimits,
)
from wakeful.run.signal_rules import Arrival
from wakeful.store.audit import AuditEntry, written
from wakeful.store.changelog import TransactionEvents
from wakeful.store.idempotency import Keyed
from wakeful.store.instances import (
    InstanceFilter,
    InstanceRow,
    InstanceRule,
    InstanceView,
    Received,
)
from wakeful.store.rows import JobRow
from wakeful.store.sql import instances
from wakeful.store.sql.base import Recorded, SqlBase

D = TypeVar("D")


class SqlInstances(SqlBase[D]):
    """Instances in an SQL database. Each method is that of `port.Store`."""

    async def put_class(self, agent_class: AgentClass, now_ms: int) -> AgentClass:
        return await self._driver.write(self._shared(instances.put_class), agent_class, now_ms)

    async def agent_class(self, workspace: str, agent: str) -> AgentClass | None:
        return await self._read(instances.agent_class_of, workspace, agent)

    async def send(
        self,
        arrivals: Sequence[Arrival],
        mailbox: int,
        limits: InstanceLimits | None = None,
        entries: Sequence[AuditEntry] = (),
        keyed: Keyed[list[Received]] | None = None,
        charge: ChargeRule | None = None,
    ) -> list[Received]:
        recorded = Recorded(entries, _any_new, keyed, charge)
        send, now_ms = self._operations.instances.send, self.clock.now_ms()
        return await self._record(recorded, send, now_ms, arrivals, mailbox, limits)

    async def change_instance(
        self,
        workspace: str,
        agent: str,
        name: str,
        now_ms: int,
        rule: InstanceRule,
        entries: Sequence[AuditEntry] = (),
        limits: InstanceLimits | None = None,
        keyed: Keyed[InstanceRow | None] | None = None,
        charge: ChargeRule | None = None,
    ) -> InstanceRow | None:
        change = self._operations.instances.change_instance
        recorded: Recorded[tuple[InstanceRow | None, bool]] = Recorded(
            entries, written, None if keyed is None else keyed.of(_row), charge
        )
        row, _ = await self._record(
            recorded,
            change, self.clock, workspace, agent, name, now_ms, rule, limits,
        )  # fmt: skip
        return row

    async def instance(self, workspace: str, agent: str, name: str) -> InstanceView | None:
        return await self._driver.read(self._operations.instances.instance, workspace, agent, name)

    async def instances(self, only: InstanceFilter) -> list[InstanceView]:
        return await self._driver.read(self._operations.instances.list_instances, only)

    async def schedules(self, instance_id: str) -> list[JobRow]:
        return await self._driver.read(self._operations.instances.schedules, instance_id)

    async def stale_instances(self, agent_class: AgentClass, limit: int) -> list[str]:
        return await self._read(instances.stale_instances, agent_class, limit)

    async def hibernated(self, instance_ids: Sequence[str], now_ms: int, *, publish: bool = False) -> None:
        async def run(db: D, events: TransactionEvents) -> None:
            await instances.hibernated(self._driver.session(db), instance_ids, now_ms)
            if publish:
                for each in instance_ids:
                    events.publish(f"hibernate:{each}")

        await self._driver.write(run)

    async def prune_signal_ids(self, now_ms: int, limit: int) -> int:
        return await self._driver.write(self._shared(instances.prune_signal_ids), now_ms, limit)


def _any_new(received: Sequence[Received]) -> bool:
    """Return whether any signal was stored."""
    return any(not each.duplicate for each in received)


def _row(changed: tuple[InstanceRow | None, bool]) -> InstanceRow | None:
    return changed[0]
