"""Connections that ask a server for the description of its built-in types only once per process.

Without this, each new connection asks once for each new combination of array types in its statements, with
a query on the catalog that takes several milliseconds.
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

#: The answers of servers, by the object ids of the types.
_known: dict[frozenset[int], list[asyncpg.Record]] = {}


class _NotExecuted(NamedTuple):
    """Takes the place of the statement: its name says that no unnamed statement was prepared."""

    name: str = "none"


class Connection(Base):
    """A connection with that cache. The method that it overrides is private to asyncpg."""

    async def _introspect_types(
        self, typeoids: Collection[int], *others: Any
    ) -> tuple[list[asyncpg.Record], Any]:
        wanted = frozenset(typeoids)
        known = _known.get(wanted)
        if known is not None:
            return known, _NotExecuted()
        rows, statement = await super()._introspect_types(typeoids, *others)  # type: ignore[misc]
        if all(row["oid"] < _FIRST_ASSIGNED for row in rows):
            _known[wanted] = rows
        return rows, statement
