"""The changelog. See `store/changelog.py`.

SQLite has one writer at a time, so transactions commit in the order in which they write: a row has its number
from the start. In PostgreSQL, readers number rows first (`postgres/changelog.py`).
"""

from __future__ import annotations

from typing import Final

from wakeful.store.changelog import FINISHED, RETRYING, ChangeRow
from wakeful.store.sql.base import SqlBase
from wakeful.store.sql.driver import SqlSession, Texts

#: changes_seq (PostgreSQL) or the primary key (SQLite), in its order
CHANGES: Final = """
    SELECT seq - count + 1, kind, at, items FROM changes
    WHERE seq IS NOT NULL AND seq > $1 ORDER BY seq LIMIT $2"""
#: the primary key: its last entry; in PostgreSQL the only row of changes_head
LAST_CHANGE: Final = Texts(
    sqlite="SELECT coalesce(max(seq), 0) FROM changes", postgresql="SELECT last FROM changes_head"
)
#: the primary key, from its beginning up to the first that is neither old nor of a future that a wrong clock
#: showed; rows whose runs are not counted yet or whose events are not
#: runs yet stay (`store/sql/run_counts.py`, `store/sql/subscriptions.py`)
PRUNE_CHANGES: Final = Texts(
    sqlite="""
    DELETE FROM changes WHERE seq IN (SELECT seq FROM changes ORDER BY seq LIMIT $2)
    AND seq < coalesce((
        SELECT min(seq) FROM (SELECT seq, at FROM changes ORDER BY seq LIMIT $2)
        WHERE at >= $1 AND at <= $3), seq + 1)
    AND seq < (SELECT max(seq) FROM changes)
    AND seq <= coalesce((SELECT position FROM run_counts_position), seq)
    AND seq <= coalesce((SELECT position FROM event_position), seq)""",
    postgresql="""
    WITH page AS MATERIALIZED (SELECT id, seq, at FROM changes ORDER BY id LIMIT $2),
    kept AS MATERIALIZED (SELECT min(id) AS id FROM page WHERE at >= $1 AND at <= $3)
    DELETE FROM changes WHERE id = ANY(ARRAY(
        SELECT page.id FROM page CROSS JOIN kept
        WHERE page.id < coalesce(kept.id, page.id + 1) AND seq < (SELECT last FROM changes_head)
            AND seq <= coalesce((SELECT position FROM run_counts_position), seq)
            AND seq <= coalesce((SELECT position FROM event_position), seq)))""",
)


async def changes(
    session: SqlSession, after: int, limit: int, finished_only: bool = False
) -> list[ChangeRow]:
    """Return the rows of the changelog that hold a number above `after`."""
    return [
        ChangeRow(
            first,
            FINISHED if kind == RETRYING and not finished_only else kind,
            at_ms,
            tuple(items.split("\n")),
        )
        for first, kind, at_ms, items in await session.rows(CHANGES, after, limit)
    ]


async def last_change(session: SqlSession) -> int:
    """Return the number of the newest change; 0: there is none."""
    return int(await session.value(LAST_CHANGE) or 0)


async def prune_changes(session: SqlSession, before_ms: int, limit: int, future_ms: int) -> int:
    """Delete old rows. See `Store.prune_changes`."""
    return await session.execute(PRUNE_CHANGES, before_ms, limit, future_ms)


#: Changes that are further ahead were written while the clock was wrong.
_FUTURE_MS: Final = 3_600_000


class SqlChangelog(SqlBase):
    """The changelog."""

    async def _number_changes(self) -> None:
        """Number committed changes, in a database that does not number them when they are written."""

    async def changes(self, after: int, limit: int = 20, *, finished_only: bool = False) -> list[ChangeRow]:
        """Return up to `limit` rows that hold a number above `after`, in order.

        The first may begin before it. If it begins later than `after + 1`, the rows between are pruned.
        No rows: nothing has changed since, or `after` is not a number of this log. With `finished_only`, rows
        of attempts that ended before the last one are not of the kind `FINISHED`.
        """
        await self._number_changes()
        return await self._read(changes, after, limit, finished_only)

    async def last_change(self) -> int:
        """Return the number of the newest change; 0: there is none."""
        await self._number_changes()
        return await self._read(last_change)

    async def prune_changes(self, before_ms: int, limit: int) -> int:
        """Delete up to `limit` older rows, from the first on, but never the newest. Returns how many.

        Rows of an hour and more ahead were written while the clock was wrong, and count as old.

        Rows stay until their runs are counted (`wakeful.store.sql.run_counts`), if any were ever counted.
        """
        await self._number_changes()  # a pruned row without a number would leave no gap to detect
        future_ms = self.clock.now_ms() + _FUTURE_MS
        return await self._driver.write(self._shared(prune_changes), before_ms, limit, future_ms)
