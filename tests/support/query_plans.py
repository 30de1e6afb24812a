"""The number of rows that a PostgreSQL statement visits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from wakeful.store.postgres.session import Db
from wakeful.store.sql.driver import Statement


def postgres_text(statement: Statement) -> str:
    """Return the text of a statement for PostgreSQL."""
    return statement if isinstance(statement, str) else statement.postgresql


async def visited(db: Db, statement: Statement, *given: object) -> tuple[int, list[str]]:
    """Execute a statement; return the number of visited rows, and the tables it scans completely."""
    statement = postgres_text(statement)
    answer = await db.fetchval(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {statement}", *given)
    rows, scanned = 0, []
    for node in _nodes(json.loads(answer)[0]["Plan"]):
        passed_over = sum(count for key, count in node.items() if key.startswith("Rows Removed"))
        kept = node["Actual Rows"] if node["Node Type"].endswith("Scan") else 0
        rows += round((kept + passed_over) * node["Actual Loops"])
        if node["Node Type"] == "Seq Scan" and node["Actual Loops"]:
            scanned.append(node["Relation Name"])
    return rows, scanned


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)


async def visited_with_kept_plan(db: Db, statement: Statement, *given: object) -> tuple[int, list[str]]:
    """As `visited`, with a plan for any arguments, which is kept. `EXPLAIN` cannot show its row counts."""
    before = {row[0]: row[1:] for row in await db.fetch(_COUNTS)}
    await db.fetch(postgres_text(statement), *given)
    rows, scanned = 0, []
    for name, table_rows, index_rows in await db.fetch(_COUNTS):
        old_table_rows, old_index_rows = before.get(name, (0, 0))
        rows += table_rows - old_table_rows + index_rows - old_index_rows
        if table_rows > old_table_rows:
            scanned.append(name)
    return int(rows), scanned


#: the rows of each table that this transaction has read by scans of the table, and by its indexes
_COUNTS = """
    SELECT t.relname::text, pg_stat_get_xact_tuples_returned(t.relid),
        coalesce((SELECT sum(pg_stat_get_xact_tuples_returned(i.indexrelid)) FROM pg_stat_user_indexes i
            WHERE i.relid = t.relid), 0)
    FROM pg_stat_xact_user_tables t"""
