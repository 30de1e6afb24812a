"""The audit log: its rows, and what a store does with them.

Append-only. `seq` has no gaps within a workspace, and each entry carries the hash of the one before
(`wakeful.store.audit_chain`). An entry is written in the transaction of the operation that it records: both
are committed, or neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class AuditEntry(NamedTuple):
    """An operation to record, before it has its place in the chain."""

    workspace: str
    #: who: `key:<id>`, `jwt:<subject>`, `python`, or `wakeful` itself
    actor: str
    #: what: `job.create`, `run.replay`, `key.revoke` …
    action: str
    #: to what: `<agent>/<job>`, a run's id, a key's id …
    subject: str
    #: compact JSON with further facts; never a secret
    details: str
    #: the client's address, if there is one
    address: str | None


class AuditRow(NamedTuple):
    """An entry in the chain."""

    workspace: str
    seq: int
    at_ms: int
    actor: str
    action: str
    subject: str
    details: str
    address: str | None
    #: the hash of the previous entry ('' for the first), and the hash of this one, in hex
    before: str
    hash: str


class AuditFilter(NamedTuple):
    """Which entries to list; None does not filter."""

    actor: str | None = None
    #: `job.create`, or `job` for all actions of that kind
    action: str | None = None
    subject: str | None = None
    #: from this instant on, and before that one
    since_ms: int | None = None
    until_ms: int | None = None


class AuditPage(NamedTuple):
    """Some entries, newest first."""

    rows: list[AuditRow]
    #: where the next page begins: only entries below this number; None: there are no more
    before: int | None


class AuditStore(Protocol):
    """The part of a store that holds the audit log."""

    async def append_audit(self, entries: Sequence[AuditEntry]) -> None:
        """Append entries about actions that change nothing in the store."""
        ...

    async def audit(
        self, workspace: str, *, after: int = 0, before: int | None = None, limit: int = 100
    ) -> list[AuditRow]:
        """Return entries with `seq > after`, oldest first; with `before`, those below it, newest first."""
        ...

    async def audit_page(
        self, workspace: str, only: AuditFilter, *, before: int | None, limit: int, considered: int
    ) -> AuditPage:
        """Return entries that match, below number `before`, newest first.

        At most `considered` entries are read: a page may have less than `limit` entries, or none, and still
        have a next one.
        """
        ...

    async def audit_head(self, workspace: str) -> tuple[int, str]:
        """Return number and hash of the newest entry, stored apart from the entries; (0, ''): none."""
        ...


def always(result: object) -> bool:
    """Say that an operation changed something, whatever it returned: otherwise it would have raised."""
    return True


def written(result: tuple[object, bool]) -> bool:
    """Say whether an operation that returns (row, written) changed something.

    >>> written((None, False))
    False
    """
    return result[1]
