"""Rare writes of a planning pass in SQLite: catch-up states, missed ticks, and ends of pauses."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from wakeful.store.rows import CatchupState

#: the jobs' primary key
SET_STATE: Final = "UPDATE jobs SET missed = ?, spread_from = ?, spread_until = ? WHERE id = ?"
#: the runs' primary key
SET_MISSED: Final = "UPDATE runs SET missed = ? WHERE id = ?"
#: the jobs' primary key
END_PAUSE: Final = """
    UPDATE jobs SET pause_note = NULL, pause_until = NULL, failures = 0, version = version + 1, updated_at = ?
    WHERE id = ?"""


def write_catchup(
    db: sqlite3.Connection, jobs: Sequence[tuple[str, CatchupState]], runs: Sequence[tuple[str, int]]
) -> None:
    """Write the catch-up states of jobs, and the number of missed ticks before each of these runs."""
    if jobs:
        db.executemany(SET_STATE, [(*state, job_id) for job_id, state in jobs])
    if runs:
        db.executemany(SET_MISSED, [(missed, run_id) for run_id, missed in runs])
