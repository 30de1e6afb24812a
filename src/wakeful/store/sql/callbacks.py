"""Runs that await a report: the result of a callback, or of the worker of a broker."""

from __future__ import annotations

from typing import Final

from wakeful.ids import is_id
from wakeful.store.sql.driver import Session

#: the primary key. A run that is being verified has no deadline
EXTEND: Final = """
    UPDATE runs SET due_at = CASE WHEN due_at < $3 THEN $3 ELSE due_at END
    WHERE id = $1 AND attempt = $2 AND state = 'running' AND awaiting_callback AND due_at IS NOT NULL"""


async def extend(session: Session, run_id: str, attempt: int, due_ms: int) -> bool:
    """Extend the deadline of a run that awaits its report. Returns whether it awaits one."""
    return is_id(run_id) and await session.execute(EXTEND, run_id, attempt, due_ms) == 1
