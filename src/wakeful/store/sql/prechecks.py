"""Prechecks: their answers at unfinished runs, and their states at jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from wakeful.run.consequences import PrecheckState
from wakeful.store.sql.driver import SqlSession

#: the primary key. The fence is that of outcomes
RECORD: Final = """
    UPDATE runs SET context = $4, precheck = $5
    WHERE id = $1 AND attempt = $2 AND worker = $3 AND state = 'running'"""
#: the primary key, once for each
REVISIONS: Final = "SELECT id::text, precheck_revision FROM jobs WHERE id = ANY($1::uuid[])"
#: the primary key
SET_STATE: Final = "UPDATE jobs SET precheck_state = $2, precheck_revision = $3 WHERE id = $1"
#: the primary key, once for each
REVISE: Final = "UPDATE jobs SET precheck_revision = precheck_revision + 1 WHERE id = ANY($1::uuid[])"
#: the same, for another precheck
RESET: Final = """
    UPDATE jobs SET precheck_revision = precheck_revision + 1, precheck_state = NULL
    WHERE id = ANY($1::uuid[])"""


async def record(
    session: SqlSession, run_id: str, attempt: int, worker: str, context: str | None, precheck: str
) -> bool:
    """Write the answer to launch a run, if the worker still holds this attempt. Returns whether it does."""
    return await session.execute(RECORD, run_id, attempt, worker, context, precheck) == 1


async def revisions(session: SqlSession, job_ids: Sequence[str]) -> dict[str, int]:
    """Return the revisions of these jobs."""
    return dict(map(tuple, await session.rows(REVISIONS, list(job_ids))))


async def set_states(session: SqlSession, states: Mapping[str, PrecheckState]) -> None:
    """Write the states that prechecks left."""
    rows = [(job_id, each.state, each.revision) for job_id, each in sorted(states.items())]
    await session.execute_many(SET_STATE, rows)


async def revise(session: SqlSession, job_ids: Sequence[str], *, reset: bool) -> None:
    """Raise the revisions of edited jobs; with `reset`, delete the states of their prechecks too."""
    if job_ids:
        await session.execute(RESET if reset else REVISE, sorted(job_ids))
