"""Rare writes of a planning pass in PostgreSQL: catch-up states, missed ticks, and ends of pauses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from wakeful.store.rows import CatchupState

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db

#: the jobs' primary key, once for each
SET_STATE: Final = """
    UPDATE jobs j SET missed = s.missed, spread_from = s.spread_from, spread_until = s.spread_until
    FROM unnest($1::uuid[], $2::integer[], $3::timestamptz[], $4::timestamptz[])
        s (id, missed, spread_from, spread_until)
    WHERE j.id = s.id"""
#: the runs' primary key, once for each
SET_MISSED: Final = """
    UPDATE runs r SET missed = m.missed FROM unnest($1::uuid[], $2::integer[]) m (id, missed)
    WHERE r.id = m.id"""
#: the jobs' primary key, once for each
END_PAUSES: Final = """
    UPDATE jobs SET pause_note = NULL, pause_until = NULL, failures = 0, version = version + 1,
        updated_at = $2
    WHERE id = ANY($1::uuid[])"""


async def write_catchup(
    db: Db, jobs: Sequence[tuple[str, CatchupState]], runs: Sequence[tuple[str, int]]
) -> None:
    """Write the catch-up states of jobs, and the number of missed ticks before each of these runs."""
    if jobs:
        states = map(list, zip(*[(job_id, *state) for job_id, state in jobs], strict=True))
        await db.execute(SET_STATE, *states)
    if runs:
        await db.execute(SET_MISSED, *map(list, zip(*runs, strict=True)))
