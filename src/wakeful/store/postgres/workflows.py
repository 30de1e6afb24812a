"""Workflows in PostgreSQL: documents that are kept as they came."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wakeful.errors import AlreadyExists
from wakeful.store.postgres import office_statements as sql
from wakeful.store.workflows import WorkflowRow

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db


async def put_workflow(db: Db, row: WorkflowRow) -> bool:
    """Keep a version, unless it is there."""
    if await db.fetchval(sql.PUT_WORKFLOW, *row):
        return True
    there = await workflow(db, row.workspace, row.id, row.version)
    if there is not None and there.dag != row.dag:
        raise AlreadyExists(
            f"workflow '{row.id}' has a version {row.version} already, which never changes: "
            f"give this one another number"
        )
    return False


async def workflow(db: Db, workspace: str, workflow_id: str, version: int) -> WorkflowRow | None:
    """That version."""
    row = await db.fetchrow(sql.WORKFLOW, workspace, workflow_id, version)
    return None if row is None else WorkflowRow(*row)
