"""Workflows and answers in SQLite: documents that are kept as they came."""

from __future__ import annotations

import sqlite3

from wakeful.errors import AlreadyExists
from wakeful.store.office import Answer, WorkflowRow
from wakeful.store.sqlite import office_statements as sql


def put_workflow(db: sqlite3.Connection, row: WorkflowRow) -> bool:
    """Keep a version, unless it is there."""
    if db.execute(sql.PUT_WORKFLOW, row).rowcount > 0:
        return True
    there = workflow(db, row.workspace, row.id, row.version)
    if there is not None and there.dag != row.dag:
        raise AlreadyExists(
            f"workflow '{row.id}' has a version {row.version} already, which never changes: "
            f"give this one another number"
        )
    return False


def workflow(db: sqlite3.Connection, workspace: str, workflow_id: str, version: int) -> WorkflowRow | None:
    """That version."""
    row = db.execute(sql.WORKFLOW, (workspace, workflow_id, version)).fetchone()
    return None if row is None else WorkflowRow(*row)


def answer(db: sqlite3.Connection, workspace: str, key: str) -> Answer | None:
    """What was answered to the request with that key."""
    row = db.execute(sql.ANSWER, (workspace, key)).fetchone()
    return None if row is None else Answer(*row)


def keep_answer(db: sqlite3.Connection, new: Answer, forget_before_ms: int) -> Answer | None:
    """Forget old answers, and keep this one unless one is there: then that is returned."""
    db.execute(sql.FORGET_ANSWERS, (forget_before_ms,))
    if db.execute(sql.KEEP_ANSWER, new).rowcount > 0:
        return None
    return answer(db, new.workspace, new.key)


def settle_answer(db: sqlite3.Connection, workspace: str, key: str, status: int | None, body: str) -> None:
    """Say what was answered where a place was kept, or let go of the place."""
    if status is None:
        db.execute(sql.DROP_ANSWER, (workspace, key))
    else:
        db.execute(sql.SETTLE_ANSWER, (workspace, key, status, body))
