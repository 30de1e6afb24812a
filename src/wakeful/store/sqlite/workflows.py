"""Workflows in SQLite: documents that are kept as they came."""

from __future__ import annotations

import sqlite3

from wakeful.errors import AlreadyExists
from wakeful.store.sqlite import office_statements as sql
from wakeful.store.workflows import WorkflowRow


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
