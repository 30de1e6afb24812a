"""Chains of jobs, as they are read."""

from __future__ import annotations

from typing import Final

from wakeful.store.sql.driver import Session

#: jobs_after: a range of it
FOLLOWERS: Final = """
    SELECT j.name FROM jobs j
    WHERE j.workspace = $1 AND j.agent = $2 AND j.after_job = $3 AND j.after_job IS NOT NULL
        AND j.deleted_at IS NULL
    LIMIT $4"""


async def followers(session: Session, workspace: str, agent: str, name: str, limit: int) -> list[str]:
    """Return the names of jobs that fire after a job, by name."""
    return sorted(row[0] for row in await session.rows(FOLLOWERS, workspace, agent, name, limit))
