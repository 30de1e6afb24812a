"""Connections that ask a server for the full description of types only once per process.

Without this, each new connection asks once for each new combination of types in its statements, with a query
on the catalog that takes about ten milliseconds of the server's time. The types of the schema are rows of
built-in types. They can change, so a connection asks for a summary of them, which takes a third of that.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import asyncpg

if TYPE_CHECKING:
    Base = asyncpg.Connection[asyncpg.Record]
else:
    Base = asyncpg.Connection

#: Types with smaller object ids have the same description on every server.
_FIRST_ASSIGNED: Final = 10_000

#: All that can change in the description of a row of built-in types, and of an array of such rows.
_SUMMARY: Final = """
    SELECT string_agg(
        concat_ws(' ', t.oid, t.oid::regtype, t.typnamespace::regnamespace, t.typname, t.typtype,
            e.oid, e.oid::regtype, e.typnamespace::regnamespace, e.typname, e.typtype, e.typdelim,
            a.attname, a.atttypid),
        ',' ORDER BY t.oid, a.attnum)
    FROM pg_catalog.pg_type t
    LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem
    LEFT JOIN pg_catalog.pg_attribute a
        ON a.attrelid = greatest(t.typrelid, e.typrelid) AND a.attnum > 0 AND NOT a.attisdropped
    WHERE t.oid = ANY($1::oid[])"""

#: The answers of servers, by the object ids of the types and their summary.
_known: dict[tuple[frozenset[int], str], list[asyncpg.Record]] = {}


class _NotExecuted(NamedTuple):
    """Takes the place of the statement: its name says that no unnamed statement was prepared."""

    name: str = "none"


class Connection(Base):
    """A connection with that cache.

    What it overrides and calls is private to asyncpg. A version without `_Connection__execute` always asks.
    """

    async def _introspect_types(
        self, typeoids: Collection[int], *others: Any
    ) -> tuple[list[asyncpg.Record], Any]:
        wanted = frozenset(typeoids)
        summary: str | None = ""
        statement: Any = _NotExecuted()
        if max(wanted) >= _FIRST_ASSIGNED:
            summary, statement = await self._summary(wanted, *others)
        known = None if summary is None else _known.get((wanted, summary))
        if known is not None:
            return known, statement
        rows, statement = await super()._introspect_types(typeoids, *others)  # type: ignore[misc]
        if summary is not None and _is_summarized(wanted, rows):
            _known[wanted, summary] = rows
        return rows, statement

    async def _summary(
        self, wanted: frozenset[int], time_limit: float | None = None
    ) -> tuple[str | None, Any]:
        execute = getattr(self, "_Connection__execute", None)
        if execute is None:
            return None, _NotExecuted()
        rows, statement = await execute(_SUMMARY, (list(wanted),), 0, time_limit, ignore_custom_codec=True)
        return str(rows[0][0]), statement


def _is_summarized(wanted: frozenset[int], rows: list[asyncpg.Record]) -> bool:
    """Return whether the summary of these types has all that the rows say about types that can change."""
    covered = wanted.union(row["elemtype"] for row in rows if row["oid"] in wanted)
    return all(
        row["oid"] < _FIRST_ASSIGNED or (row["oid"] in covered and row["kind"] in (b"b", b"c"))
        for row in rows
    )
