"""Revisions of jobs."""

from __future__ import annotations

from typing import Final

from wakeful.store.rows import MAX_REVISIONS, NewRevision, RevisionRow
from wakeful.store.sql.driver import SqlSession
from wakeful.values.ids import is_id

#: the primary key
ADD: Final = """
    INSERT INTO job_revisions (job_id, version, document, fields, replaced_at, replaced_by)
    VALUES ($1, $2, $3, $4, $5, $6)"""
#: the primary key: a range of it, backwards
OLDEST_KEPT: Final = """
    SELECT version FROM job_revisions WHERE job_id = $1 ORDER BY version DESC LIMIT 1 OFFSET $2"""
#: the primary key: a range of it
TRIM: Final = "DELETE FROM job_revisions WHERE job_id = $1 AND version < $2"
#: the primary key: a range of it, backwards
REVISIONS: Final = """
    SELECT version, document, fields, replaced_at, replaced_by
    FROM job_revisions WHERE job_id = $1 ORDER BY version DESC LIMIT $2"""


async def add(session: SqlSession, job_id: str, version: int, new: NewRevision, now_ms: int) -> None:
    """Add a revision, and delete the oldest beyond the limit."""
    await session.execute(ADD, job_id, version, new.document, new.fields, now_ms, new.by)
    oldest = await session.value(OLDEST_KEPT, job_id, MAX_REVISIONS - 1)
    if oldest is not None:
        await session.execute(TRIM, job_id, oldest)


async def revisions(session: SqlSession, job_id: str) -> list[RevisionRow]:
    """Return the revisions of a job, newest first."""
    rows = await session.rows(REVISIONS, job_id, MAX_REVISIONS) if is_id(job_id) else ()
    return [RevisionRow(*row) for row in rows]
