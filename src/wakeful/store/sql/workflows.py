"""Workflows."""

from __future__ import annotations

from typing import Final

from wakeful.errors import AlreadyExists
from wakeful.store.sql.driver import Session
from wakeful.store.workflows import WorkflowRow

#: the primary key; writes nothing if the version exists
PUT_WORKFLOW: Final = """
    INSERT INTO workflows (workspace, id, version, dag, created_at) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT DO NOTHING"""
#: the primary key
WORKFLOW: Final = """
    SELECT workspace, id, version, dag, created_at FROM workflows
    WHERE workspace = $1 AND id = $2 AND version = $3"""


async def put_workflow(session: Session, row: WorkflowRow) -> bool:
    """Add a version, unless it exists."""
    if await session.execute(PUT_WORKFLOW, *row):
        return True
    stored = await workflow(session, row.workspace, row.id, row.version)
    if stored is not None and stored.dag != row.dag:
        raise AlreadyExists(
            f"workflow '{row.id}' has a version {row.version} already, which never changes: "
            f"give this one another number"
        )
    return False


async def workflow(session: Session, workspace: str, workflow_id: str, version: int) -> WorkflowRow | None:
    """Return that version."""
    row = await session.row(WORKFLOW, workspace, workflow_id, version)
    return None if row is None else WorkflowRow(*row)
