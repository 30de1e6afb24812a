"""The changelog and the audit in PostgreSQL.

Writers add rows to the changelog without a number. A reader numbers them first, one reader at a time. So the
numbers are in an order in which the rows became visible, however their transactions overlapped, and no row
appears later with a number below one that was read.

A transaction that appends to the audit locks the heads of its chains until it commits. Most need not read the
heads first: they are as this process wrote them last (`AuditHeads`). A transaction of a caller
(`caller_transaction.py`) must not lock them: it leaves its entries in `audit_waiting`, and they are appended
after its commit, before somebody reads the audit, and now and then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from wakeful.store.audit import AuditEntry, extend
from wakeful.store.changelog import TransactionEvents
from wakeful.store.postgres.audit_statements import append_to_audit, lock_audit_heads
from wakeful.store.postgres.jobs import charge_created
from wakeful.store.postgres.session import Db
from wakeful.values.bounded_cache import MB, BoundedCache
from wakeful.values.clock import Clock

T = TypeVar("T")

#: How many rows one transaction numbers.
BATCH: Final = 5_000

#: changes_new: its first entry
ANY_NEW: Final = "SELECT EXISTS (SELECT FROM changes WHERE seq IS NULL)"
LOCK_HEAD: Final = "SELECT last FROM changes_head FOR UPDATE"
#: changes_new, in its order; the primary key, once for each
NUMBER: Final = """
    WITH found AS (
        SELECT id, sum(count) OVER (ORDER BY id) AS place FROM (
            SELECT id, count FROM changes WHERE seq IS NULL ORDER BY id LIMIT $2) n),
    numbered AS (
        UPDATE changes c SET seq = $1::bigint + f.place FROM found f WHERE c.id = f.id RETURNING c.seq),
    head AS (SELECT max(seq) AS last, count(*) AS rows FROM numbered)
    UPDATE changes_head SET last = head.last FROM head WHERE head.rows > 0 RETURNING head.rows"""
#: the primary key, once for each
LOCK_HEADS: Final = """
    SELECT workspace, seq, hash FROM audit_heads WHERE workspace = ANY($1::text[])
    ORDER BY workspace FOR UPDATE"""
#: the primary key turns away those that there are
ADD_HEADS: Final = """
    INSERT INTO audit_heads (workspace, seq, hash) SELECT workspace, 0, '' FROM unnest($1::text[]) workspace
    ON CONFLICT DO NOTHING"""

#: the heads' primary key, once for each: nothing is written unless all are as given; whether messages wait in
#: any session: sessions_due, mostly empty
PUBLISH: Final = f"""
    WITH {lock_audit_heads(1)},
    checked AS MATERIALIZED (SELECT (SELECT count(*) FROM locked) = cardinality($2::text[]) AS ok),
    {append_to_audit(1)},
    noted AS (
        INSERT INTO changes (at, kind, count, items)
        SELECT $7, c.* FROM unnest($8::text[], $9::integer[], $10::text[]) c (kind, count, items)
        WHERE (SELECT ok FROM checked))
    SELECT ok, topic, CASE WHEN topic IS NOT NULL THEN pg_notify($11, topic) END
    FROM checked LEFT JOIN (
        SELECT topic FROM unnest($12::text[]) topic
        UNION ALL
        SELECT 'sessions' WHERE $13 AND EXISTS (SELECT FROM sessions WHERE due_at IS NOT NULL)) t ON ok"""
#: After a chain was found to be longer than this process knows, its head is read so often before each write:
#: other processes write to it.
_READ_AGAIN: Final = 20
_HEAD_BYTES: Final = 200


class OneStatement(NamedTuple, Generic[T]):
    """What one statement has written and published."""

    result: T
    topics: Sequence[str]
    audit_heads: Mapping[str, tuple[int, str]]


class AuditHeads:
    """The heads of the chains of the audit, as transactions of this process have left them."""

    def __init__(self) -> None:
        self._heads: BoundedCache[str, tuple[int, str]] = BoundedCache(MB)
        #: how many more writes to a chain read its head
        self._shared: BoundedCache[str, int] = BoundedCache(MB)

    def find(self, workspaces: Sequence[str]) -> dict[str, tuple[int, str]] | None:
        """Return number and hash of the newest entry of a workspace; None: it is not known.

        Of several workspaces none is known: their heads are locked in the order of the database.
        """
        if not workspaces:
            return {}
        head = self._heads.get(workspaces[0]) if len(workspaces) == 1 else None
        return None if head is None else {workspaces[0]: head}

    def keep(self, heads: Mapping[str, tuple[int, str]]) -> None:
        """Remember the heads that a transaction has left. It has committed."""
        for workspace, head in heads.items():
            left = self._shared.get(workspace) or 0
            if left:
                self._shared.put(workspace, left - 1, _HEAD_BYTES)
            else:
                self._heads.put(workspace, head, _HEAD_BYTES)

    def drop(self, workspaces: Iterable[str]) -> None:
        """Forget heads: the chain of one of them is longer."""
        for workspace in workspaces:
            self._heads.drop(workspace)
            self._shared.put(workspace, _READ_AGAIN, _HEAD_BYTES)


#: the primary key: its first entries. Those that another process appends are skipped
TAKE_WAITING: Final = """
    DELETE FROM audit_waiting WHERE id = ANY(ARRAY(
        SELECT id FROM audit_waiting ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED))
    RETURNING id, workspace, actor, action, subject, details, address, agent, jobs"""
#: the primary key: its first entry
ANY_WAITING: Final = "SELECT EXISTS (SELECT FROM audit_waiting)"
#: How many entries one transaction appends.
WAITING_BATCH: Final = 500


async def any_waiting(db: Db) -> bool:
    """Return whether entries of committed transactions wait."""
    return bool(await db.fetchval(ANY_WAITING))


async def append_waiting(db: Db, events: TransactionEvents, clock: Clock) -> int:
    """Append entries of transactions of callers, and charge the jobs that these created. Returns how many."""
    rows = sorted(await db.fetch(TAKE_WAITING, WAITING_BATCH), key=lambda row: int(row["id"]))
    created: Counter[tuple[str, str]] = Counter()
    for row in rows:
        for agent in (row["agent"], "") if row["jobs"] else ():
            created[row["workspace"], agent] += row["jobs"]
    if created:
        await charge_created(db, clock.now_ms(), dict(sorted(created.items())))
    await append(db, events, clock, [AuditEntry(*row[1:7]) for row in rows])
    return len(rows)


async def any_unnumbered(db: Db) -> bool:
    """Return whether a committed row has no number."""
    return bool(await db.fetchval(ANY_NEW))


async def number(db: Db, events: TransactionEvents) -> int:
    """Number up to `BATCH` rows, while no other reader does. Returns how many."""
    last = await db.fetchval(LOCK_HEAD)
    return int(await db.fetchval(NUMBER, last, BATCH) or 0)


async def append(db: Db, events: TransactionEvents, clock: Clock, entries: Sequence[AuditEntry]) -> None:
    """Append these entries to the chains of their workspaces; `publish` writes them."""
    events.entries = entries


async def publish(
    db: Db, events: TransactionEvents, now_ms: int, channel: str, known: AuditHeads
) -> Sequence[str]:
    """Write the changes and audit entries of a transaction, and notify others. Returns the topics."""
    changes, topics, entries = events.log(), events.topics, events.entries
    if not (changes or topics or entries):
        return ()
    kinds, counts, items = ([row[column] for row in changes] for column in range(3))
    workspaces = sorted({entry.workspace for entry in entries})
    for heads in (known.find(workspaces), None):
        before = await _lock_heads(db, workspaces) if heads is None else heads
        audit, after = audit_parameters(entries, before, now_ms)
        rows = await db.fetch(
            PUBLISH, *audit, now_ms, kinds, counts, items, channel, topics, events.any_ended
        )
        if rows[0]["ok"]:
            events.audit_heads = after
            return list(dict.fromkeys(row["topic"] for row in rows if row["topic"] is not None))
        known.drop(workspaces)
    raise AssertionError("a head has changed although it is locked")


def audit_parameters(
    entries: Sequence[AuditEntry], heads: Mapping[str, tuple[int, str]], now_ms: int
) -> tuple[Sequence[object], Mapping[str, tuple[int, str]]]:
    """Return the parameters of a statement that appends entries after these heads, and the new heads."""
    after = dict(heads)
    rows = extend(after, entries, now_ms)
    columns = [[head[column] for head in each.values()] for each in (heads, after) for column in (0, 1)]
    return [rows, list(heads), *columns], after


async def _lock_heads(db: Db, workspaces: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Return number and hash of the newest entry of each workspace, locked until the commit."""
    rows = await db.fetch(LOCK_HEADS, workspaces)
    if len(rows) < len(workspaces):
        await db.execute(ADD_HEADS, workspaces)
        rows = await db.fetch(LOCK_HEADS, workspaces)
    return {workspace: (seq, before) for workspace, seq, before in rows}
