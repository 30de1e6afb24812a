"""Workflows and answers in PostgreSQL: documents that are kept as they came."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wakeful.errors import AlreadyExists
from wakeful.store.office import Answer, WorkflowRow
from wakeful.store.postgres import office_statements as sql

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


async def answer(db: Db, workspace: str, key: str) -> Answer | None:
    """What was answered to the request with that key."""
    row = await db.fetchrow(sql.ANSWER, workspace, key)
    return None if row is None else Answer(*row)


async def keep_answer(db: Db, new: Answer, forget_before_ms: int) -> Answer | None:
    """Forget old answers, and keep this one unless one is there: then that is returned."""
    await db.execute(sql.FORGET_ANSWERS, forget_before_ms)
    while not await db.fetchval(sql.KEEP_ANSWER, *new, forget_before_ms):
        there = await answer(db, new.workspace, new.key)
        if there is not None:  # else it was forgotten between the two, and ours has its place
            return there
    return None


async def settle_answer(db: Db, workspace: str, key: str, status: int | None, body: str) -> None:
    """Say what was answered where a place was kept, or let go of the place."""
    if status is None:
        await db.execute(sql.DROP_ANSWER, workspace, key)
    else:
        await db.execute(sql.SETTLE_ANSWER, workspace, key, status, body)
