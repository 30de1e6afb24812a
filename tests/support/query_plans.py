"""The number of rows that a PostgreSQL statement visits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db


async def visited(db: Db, statement: str, *given: object) -> tuple[int, list[str]]:
    """Execute a statement; return the number of visited rows, and the tables it scans completely."""
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
