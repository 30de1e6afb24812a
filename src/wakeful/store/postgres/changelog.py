"""The changelog and the audit in PostgreSQL.

Writers add rows to the changelog without a number. A reader numbers them first, one reader at a time. So the
numbers are in an order in which the rows became visible, however their transactions overlapped, and no row
appears later with a number below one that was read.

A transaction that appends to the audit locks the heads of its chains until it commits. A transaction of a
caller (`caller_transaction.py`) must not: it leaves its entries in `audit_waiting`, and they are appended
after its commit, before somebody reads the audit, and now and then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from wakeful.store.audit import AuditEntry, extend
from wakeful.store.postgres.jobs import charge_created
from wakeful.store.sql.audit import ENTRY_COLUMNS
from wakeful.values.clock import Clock

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db, TransactionEvents

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
#: the heads' primary key, once for each; whether messages wait in any session: sessions_due, mostly empty
PUBLISH: Final = f"""
    WITH written AS (
        INSERT INTO audit ({ENTRY_COLUMNS}) SELECT {ENTRY_COLUMNS} FROM unnest($1::new_entry[])),
    moved AS (
        UPDATE audit_heads h SET seq = n.seq, hash = n.hash
        FROM unnest($2::text[], $3::bigint[], $4::text[]) n (workspace, seq, hash)
        WHERE h.workspace = n.workspace),
    noted AS (
        INSERT INTO changes (at, kind, count, items)
        SELECT $5, c.* FROM unnest($6::text[], $7::integer[], $8::text[]) c (kind, count, items))
    SELECT topic, pg_notify($9, topic) FROM (
        SELECT topic FROM unnest($10::text[]) topic
        UNION ALL
        SELECT 'sessions' WHERE $11 AND EXISTS (SELECT FROM sessions WHERE due_at IS NOT NULL)) t"""


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
    if not entries:
        return
    heads = await _lock_heads(db, sorted({entry.workspace for entry in entries}))
    events.audit, events.audit_heads = extend(heads, entries, clock.now_ms()), heads


async def publish(db: Db, events: TransactionEvents, now_ms: int, channel: str) -> Sequence[str]:
    """Write the changes and audit entries of a transaction, and notify others. Returns the topics."""
    changes, topics = events.log(), events.topics
    if not (changes or topics or events.audit):
        return ()
    heads = events.audit_heads
    rows = await db.fetch(
        PUBLISH,
        events.audit, list(heads), [seq for seq, _ in heads.values()], [hash_ for _, hash_ in heads.values()],
        now_ms, [kind for kind, _, _ in changes], [count for _, count, _ in changes],
        [items for _, _, items in changes],
        channel, topics, events.any_ended,
    )  # fmt: skip
    return list(dict.fromkeys(row["topic"] for row in rows))


async def _lock_heads(db: Db, workspaces: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Return number and hash of the newest entry of each workspace, locked until the commit."""
    rows = await db.fetch(LOCK_HEADS, workspaces)
    if len(rows) < len(workspaces):
        await db.execute(ADD_HEADS, workspaces)
        rows = await db.fetch(LOCK_HEADS, workspaces)
    return {workspace: (seq, before) for workspace, seq, before in rows}
