"""New runs in both databases: their jobs must exist, and their ticks must have no run yet.

A job knows its ticks that have a record (`JobRow.decided_ticks`), and planning leaves them out. It may not
know one that a replica of an earlier version wrote, or after the clock was set back. Then the planning pass
is rolled back, because its counts and its missed rows assume a run that it did not write. The job learns the
ticks, and the next pass decides without them. So it is with a change of a job that records missed ticks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, Final

from wakeful.errors import NotFound
from wakeful.job.job import check_version
from wakeful.run.run import NewRun
from wakeful.store.row_mapping import ticks_to_text
from wakeful.store.sql.driver import SqlSession
from wakeful.values.ids import is_id

#: the primary key, once for each. A transaction that changes a job waits, and then sees the new runs. FOR KEY
#: SHARE is too weak: it may return the version before a change that has just been committed
HOLD_JOBS: Final = """
    SELECT id::text, name, version FROM jobs
    WHERE id = ANY($1::uuid[]) AND deleted_at IS NULL ORDER BY id FOR SHARE"""


def jobs_to_hold(runs: Iterable[NewRun]) -> list[str]:
    """Return the jobs that must exist when these runs are added.

    A replay needs no job: it is asked for after a deletion too, and the run that it replays keeps the row of
    the job.
    """
    return sorted({run.job_id for run in runs if run.job_id is not None and run.replay_of is None})


async def hold_jobs(session: SqlSession, runs: Sequence[NewRun], versions: Sequence[int | None] = ()) -> None:
    """Keep the jobs of these runs from being deleted or moved before this transaction ends.

    NotFound: one was deleted. StaleJob: it is not at the version that its run has in `versions`.
    """
    wanted = jobs_to_hold(runs)
    if wanted:
        check_held(runs, versions, await session.rows(HOLD_JOBS, list(filter(is_id, wanted))))


def check_held(runs: Sequence[NewRun], versions: Sequence[int | None], held: Iterable[Iterable[Any]]) -> None:
    """Raise NotFound or StaleJob unless all jobs of these runs are among those that are held."""
    found = {job_id: (name, current) for job_id, name, current in held}
    for run, version in zip_longest(runs, versions[: len(runs)]):
        if run.job_id is None or run.replay_of is not None:
            continue
        if run.job_id not in found:
            raise NotFound(f"no job '{run.job_name}': it was deleted; list the jobs to see their names")
        name, current = found[run.job_id]
        check_version(name, current, version)


#: How many ticks with a record a job learns at once.
_MOST: Final = 1_000
#: runs_tick: its entries from that instant on
RECORDED: Final = """
    SELECT scheduled_at FROM runs /*+ INDEXED BY runs_tick */
    WHERE job_id = $1 AND scheduled_at >= $2 AND trigger = 'schedule' ORDER BY scheduled_at LIMIT $3"""
#: the primary key
SET_DECIDED: Final = "UPDATE jobs SET decided_ticks = $2 WHERE id = $1"


class TicksTaken(Exception):
    """These runs were not inserted, because their ticks have one already."""

    def __init__(self, runs: Sequence[NewRun], claimed: int = 0) -> None:
        super().__init__(f"{len(runs)} ticks have a run already")
        self.runs = runs
        #: how many jobs the pass claimed
        self.claimed = claimed


def check_written(runs: Sequence[NewRun], written: Sequence[NewRun], claimed: int = 0) -> None:
    """Raise TicksTaken if not all of these runs were inserted."""
    if len(written) < len(runs):
        there = {run.id for run in written}
        raise TicksTaken([run for run in runs if run.id not in there], claimed)


async def note_decided(session: SqlSession, runs: Sequence[NewRun]) -> None:
    """Let the jobs of these runs know which of their ticks have a record, from these on."""
    ticks: dict[str, set[int]] = {}
    for run in runs:
        if run.job_id is not None:
            ticks.setdefault(run.job_id, set()).add(run.scheduled_ms)
    for job_id, missing in sorted(ticks.items()):
        recorded = set(await session.column(RECORDED, job_id, min(missing), _MOST))
        await session.execute(SET_DECIDED, job_id, ticks_to_text(sorted(recorded | missing)))
