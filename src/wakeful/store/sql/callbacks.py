"""Runs that await a report: the result of a callback, or of the worker of a broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wakeful.store.rows import AwaitingRun, Extension
from wakeful.store.sql.driver import Session
from wakeful.values.ids import is_id

#: the primary key. A run that is being verified has no deadline
EXTEND: Final = """
    UPDATE runs SET due_at = CASE WHEN due_at < $3 THEN $3 ELSE due_at END
    WHERE id = $1 AND attempt = $2 AND state = 'running' AND awaiting_callback AND due_at IS NOT NULL"""
#: the primary key
NOTE: Final = """
    UPDATE runs SET error = $3
    WHERE id = $1 AND attempt = $2 AND state = 'running' AND awaiting_callback AND due_at IS NOT NULL"""
#: lower than every id
FIRST_ID: Final = "00000000-0000-0000-0000-000000000000"
_COLUMNS: Final = """SELECT r.id::text, r.attempt, r.idempotency_key, coalesce(j.work, '{}'), r.requires,
        coalesce(j.updated_at > r.started_at AND r.response_code IS NULL, false)"""
_AWAITING: Final = "r.state = 'running' AND r.awaiting_callback AND r.due_at IS NOT NULL AND r.id > $1"
#: SQLite: runs_running, all of it. PostgreSQL: live_runs_held, those without a worker; the runs' primary key
AWAITING: Final = {
    "sqlite": f"""
        {_COLUMNS} FROM runs r INDEXED BY runs_running LEFT JOIN jobs j ON j.id = r.job_id
        WHERE {_AWAITING} ORDER BY r.id LIMIT $2""",
    "postgresql": f"""
        {_COLUMNS} FROM live_runs l JOIN runs r ON r.id = l.run_id LEFT JOIN jobs j ON j.id = r.job_id
        WHERE coalesce(l.state, '') = 'running' AND l.worker IS NULL AND {_AWAITING}
        ORDER BY r.id LIMIT $2""",
}


async def extend(session: Session, extensions: Sequence[Extension]) -> set[str]:
    """Extend the deadlines of runs that await their reports. Returns the ids of those that await one."""
    awaiting = set()
    for run_id, attempt, due_ms in sorted(extensions):  # rows are locked in the order of their ids
        if is_id(run_id) and await session.execute(EXTEND, run_id, attempt, due_ms) == 1:
            awaiting.add(run_id)
    return awaiting


async def note(session: Session, run_id: str, attempt: int, problem: str | None) -> None:
    """Write why a run that awaits its report is not executed; None: it is."""
    await session.execute(NOTE, run_id, attempt, problem)


async def awaiting(session: Session, kind: str, after: str, limit: int) -> list[AwaitingRun]:
    """Return runs that await a report, after that id and in the order of their ids."""
    return [AwaitingRun(*row) for row in await session.rows(AWAITING[kind], after or FIRST_ID, limit)]
