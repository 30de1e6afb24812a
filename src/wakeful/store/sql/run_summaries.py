"""Summaries of the runs of jobs, computed by the database: a month of runs is never loaded.

Each statement reads the runs of its jobs by the index runs_of_job. The databases differ only in how they
write a difference of two instants in milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wakeful.evolution_rules import RunSummary
from wakeful.ids import first_id
from wakeful.store.sql.driver import Row, Session

#: The milliseconds between two instants.
_MS: Final = {"sqlite": "({} - {})", "postgresql": "(extract(epoch FROM {} - {}) * 1000)"}
#: What counts: runs of a schedule, or after another job, since the job was last changed.
_RUNS: Final = """
    FROM jobs j JOIN runs r ON r.job_id = j.id
    WHERE j.id = ANY($1::uuid[]) AND r.id >= $2 AND r.scheduled_at >= j.updated_at
        AND r.trigger IN ('schedule', 'chain') AND r.state <> 'missed'"""

#: the primary key of jobs, and a range of runs_of_job for each
COUNTS: Final = f"""
    SELECT r.job_id::text, min(r.scheduled_at), max(r.scheduled_at), count(*),
        sum(CASE WHEN r.state IN ('skipped', 'cancelled')
            AND r.reason IN ('overlap', 'queue_full', 'replaced', 'superseded') THEN 1 ELSE 0 END),
        sum(CASE WHEN r.state = 'succeeded' THEN 1 ELSE 0 END),
        sum(CASE WHEN r.state = 'failed' THEN 1 ELSE 0 END),
        sum(CASE WHEN r.state = 'failed' AND r.reason = 'timeout' THEN 1 ELSE 0 END)
    {_RUNS} GROUP BY r.job_id"""


def durations(kind: str) -> str:
    """Return the statement for the duration that nine of ten runs do not exceed.

    It reads the primary key of jobs, and a range of runs_of_job for each.
    """
    took = _MS[kind].format("r.finished_at", "r.fire_at")
    return f"""
        SELECT d.job_id::text, d.took FROM (
            SELECT r.job_id, {took} AS took, count(*) OVER (PARTITION BY r.job_id) AS ended,
                row_number() OVER (PARTITION BY r.job_id ORDER BY r.finished_at - r.fire_at) AS place
            {_RUNS} AND r.state IN ('succeeded', 'failed') AND r.finished_at IS NOT NULL) d
        WHERE d.place = (d.ended * 9 + 9) / 10"""


def delays(kind: str) -> str:
    """Return the statement for delays of starts: in all, and at instants when many jobs fire.

    It reads the primary key of jobs, and a range of runs_of_job for each. A run that was retried is left out:
    it has the time of its last start.
    """
    late = _MS[kind].format("r.started_at", "r.fire_at")
    return f"""
        SELECT t.job_id::text, count(*), avg(t.late), sum(CASE WHEN t.jobs >= $3 THEN 1 ELSE 0 END),
            avg(CASE WHEN t.jobs >= $3 THEN t.jobs END), avg(CASE WHEN t.jobs >= $3 THEN t.late END)
        FROM (
            SELECT r.job_id, {late} AS late, count(*) OVER (PARTITION BY r.fire_at) AS jobs
            {_RUNS} AND r.attempt = 1 AND r.started_at IS NOT NULL) t
        GROUP BY t.job_id"""


async def run_summaries(
    session: Session, kind: str, job_ids: Sequence[str], since_ms: int, peak_jobs: int
) -> dict[str, RunSummary]:
    """Return the summary of each of these jobs that has runs."""
    ids, first = list(job_ids), first_id(since_ms)
    found = {row[0]: _counts(row) for row in await session.rows(COUNTS, ids, first)}
    overlapped = [job_id for job_id, summary in found.items() if summary.overlapped]
    if overlapped:
        for job_id, took in await session.rows(durations(kind), overlapped, first):
            found[job_id] = found[job_id]._replace(duration_ms=round(took))
    for row in await session.rows(delays(kind), list(found), first, peak_jobs) if found else ():
        job_id, started, delay, peak_ticks, jobs, peak_delay = row
        found[job_id] = found[job_id]._replace(
            started=started,
            delay_ms=round(delay),
            peak_ticks=peak_ticks,
            peak_jobs=round(jobs or 0),
            peak_delay_ms=round(peak_delay or 0),
        )
    return found


def _counts(row: Row) -> RunSummary:
    _, first_ms, last_ms, *counts = row
    ticks, overlapped, succeeded, failed, timed_out = (int(each) for each in counts)
    return RunSummary(first_ms, last_ms, ticks, overlapped, succeeded, failed, timed_out)
