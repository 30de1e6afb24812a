"""Instances in PostgreSQL. See `store/instances.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wakeful.clock import Clock
from wakeful.errors import FailedPrecondition
from wakeful.signal_rules import Arrival
from wakeful.store.instances import (
    InstanceFilter,
    InstanceLimits,
    InstanceRow,
    InstanceRule,
    InstanceView,
    Received,
)
from wakeful.store.rows import JobRow

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db, TransactionEvents

_MISSING = FailedPrecondition("instances are not available with PostgreSQL yet; use SQLite")


async def send(
    db: Db,
    events: TransactionEvents,
    now_ms: int,
    arrivals: Sequence[Arrival],
    mailbox: int,
    limits: InstanceLimits | None,
) -> list[Received]:
    """Store signals in mailboxes. See `Store.send`."""
    raise _MISSING


async def change_instance(
    db: Db,
    events: TransactionEvents,
    clock: Clock,
    workspace: str,
    agent: str,
    name: str,
    now_ms: int,
    rule: InstanceRule,
    limits: InstanceLimits | None,
) -> tuple[InstanceRow | None, bool]:
    """Change an instance. See `Store.change_instance`."""
    raise _MISSING


async def instance(db: Db, workspace: str, agent: str, name: str) -> InstanceView | None:
    """Return an instance."""
    raise _MISSING


async def list_instances(db: Db, only: InstanceFilter) -> list[InstanceView]:
    """Return the instances that match, by agent and name."""
    raise _MISSING


async def schedules(db: Db, instance_id: str) -> list[JobRow]:
    """Return the jobs of the schedules of an instance."""
    raise _MISSING
