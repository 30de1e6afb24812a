"""Workers and executors, as observers read them."""

from __future__ import annotations

from typing import Final

from wakeful.store.processes import HolderRow, WorkerRow
from wakeful.store.sql.driver import Session

#: the table, all of it: a row for each process
WORKER_ROWS: Final = """
    SELECT name, beat_at, started_at, capabilities FROM workers ORDER BY started_at DESC, name LIMIT $1"""
_HOLDERS: Final = """
    SELECT r.worker, r.is_pull, count(*), max(r.beat_at) FROM {} AND r.worker IS NOT NULL{}
    GROUP BY r.worker, r.is_pull ORDER BY count(*) DESC, r.worker LIMIT $1"""
#: SQLite: all of runs_running, which has only running runs. PostgreSQL: all of live_runs_held, likewise, and
#: the primary key of runs for each
_RUNNING: Final = {
    "sqlite": "runs r INDEXED BY runs_running WHERE r.state = 'running'",
    "postgresql": "live_runs l JOIN runs r ON r.id = l.run_id WHERE coalesce(l.state, '') = 'running'",
}


def holders_statement(kind: str, *, of_workspace: bool) -> str:
    """Return the statement for those who hold running runs."""
    return _HOLDERS.format(_RUNNING[kind], " AND r.workspace = $2" if of_workspace else "")


async def worker_rows(session: Session, limit: int) -> list[WorkerRow]:
    """Return the processes that the database knows."""
    return [WorkerRow(*row) for row in await session.rows(WORKER_ROWS, limit)]


async def holders(session: Session, kind: str, workspace: str | None, limit: int) -> list[HolderRow]:
    """Return who holds running runs."""
    statement = holders_statement(kind, of_workspace=workspace is not None)
    rows = await session.rows(statement, limit, *([] if workspace is None else [workspace]))
    return [HolderRow(row[0], bool(row[1]), row[2], row[3]) for row in rows]
