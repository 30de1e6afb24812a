"""The audit log: its rows, its hash chain, and what a store does with them.

Append-only. `seq` has no gaps within a workspace, and each entry carries the hash of the one before. An entry
is written in the transaction of the operation that it records: both are committed, or neither.

The chain is pure, so that exported entries can be checked without the database. The hash of an entry is the
SHA-256, in hex, of this compact JSON array, with everything but ASCII escaped:

    [workspace, seq, at_ms, actor, action, subject, details, address, before]

A changed entry has another hash, so every entry after it would have to change too. To detect that the newest
entries were removed, compare with a later hash that was noted elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from wakeful.values.stored_text import clean_text


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


def always(result: object) -> bool:
    """Say that an operation changed something, whatever it returned: otherwise it would have raised."""
    return True


def was_written(result: tuple[object, bool]) -> bool:
    """Say whether an operation that returns (row, written) changed something.

    >>> was_written((None, False))
    False
    """
    return result[1]


def link(entry: AuditEntry, seq: int, at_ms: int, before: str) -> AuditRow:
    """Return the entry as number `seq` of its chain, after the one with the hash `before` ('' for the first).

    Characters that no database can store (NUL, lone surrogates) are replaced before hashing.

    >>> entry = AuditEntry("default", "python", "job.create", "default/digest", "{}", None)
    >>> first = link(entry, 1, 0, "")
    >>> first.hash[:8], link(entry, 2, 5, first.hash).before[:8]
    ('b16e4db2', 'b16e4db2')
    """
    workspace, actor, action, subject, details = map(clean_text, entry[:5])
    address = None if entry.address is None else clean_text(entry.address)
    row = AuditRow(workspace, seq, at_ms, actor, action, subject, details, address, before, "")
    return row._replace(hash=_hash(row))


def extend(heads: dict[str, tuple[int, str]], entries: Sequence[AuditEntry], at_ms: int) -> list[AuditRow]:
    """Return the entries as the next of their chains.

    `heads` has the number and hash of the newest entry by workspace, and is updated.
    """
    rows = []
    for entry in entries:
        seq, before = heads.get(entry.workspace, (0, ""))
        row = link(entry, seq + 1, at_ms, before)
        heads[entry.workspace] = row.seq, row.hash
        rows.append(row)
    return rows


def flaw(rows: Sequence[AuditRow], seq: int, before: str) -> str | None:
    """Return what is wrong with these entries as those after number `seq` with the hash `before`, or None.

    Entries are oldest first. The whole chain begins after number 0 with the hash ''; a page begins after the
    last entry of the previous page. The message names the first entry that was changed, removed or moved.

    >>> flaw([], 0, "")
    """
    workspace = rows[0].workspace if rows else ""
    for row in rows:
        if row.workspace != workspace:
            return f"entry {row.seq} is of the workspace '{row.workspace}', and not of '{workspace}'"
        if row.seq > seq + 1:
            return f"entry {seq + 1} is missing: entry {row.seq} stands in its place"
        if row.seq < seq + 1:
            return f"entry {row.seq} is out of order: it stands where entry {seq + 1} should be"
        if row.hash != _hash(row):
            return f"entry {row.seq} was changed: its hash is not that of what it says"
        if row.before != before:
            if seq == 0:
                return f"entry {row.seq} was changed: it is the first, and yet follows another"
            return f"entry {seq} was changed: entry {row.seq} was written after one with another hash"
        seq, before = row.seq, row.hash
    return None


def _hash(row: AuditRow) -> str:
    return sha256(json.dumps(row[:-1], separators=(",", ":")).encode()).hexdigest()
