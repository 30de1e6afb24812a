"""Summaries of the runs of jobs, computed by the database: a month of runs is never loaded.

Each statement reads the runs of some days, or of some jobs, by the index runs_of_job, so that none takes long
for an agent with millions of runs. The databases differ only in how they write a difference of two instants
in milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wakeful.evolution.rules import RunSummary
from wakeful.store.sql.driver import Session
from wakeful.values.ids import first_id

#: The milliseconds between two instants.
_MS: Final = {"sqlite": "({} - {})", "postgresql": "(extract(epoch FROM {} - {}) * 1000)"}
#: What counts: runs of a schedule, or after another job, since the job was last changed.
_RUNS: Final = """
    FROM jobs j JOIN runs r ON r.job_id = j.id
    WHERE j.id = ANY($1::uuid[]) AND r.id >= $2 AND r.id < $3 AND r.scheduled_at >= j.updated_at
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
        SELECT t.job_id::text, count(*), sum(t.late), sum(CASE WHEN t.jobs >= $4 THEN 1 ELSE 0 END),
            sum(CASE WHEN t.jobs >= $4 THEN t.jobs ELSE 0 END),
            sum(CASE WHEN t.jobs >= $4 THEN t.late ELSE 0 END)
        FROM (
            SELECT r.job_id, {late} AS late, count(*) OVER (PARTITION BY r.fire_at) AS jobs
            {_RUNS} AND r.attempt = 1 AND r.started_at IS NOT NULL) t
        GROUP BY t.job_id"""


class Totals:
    """What the slices of the time amount to for one job."""

    def __init__(self) -> None:
        self.first_ms: int | None = None
        self.last_ms: int | None = None
        #: ticks, overlapped, succeeded, failed, timed out
        self.counts = [0] * 5
        #: started, delays, ticks at peaks, jobs at peaks, delays at peaks
        self.delays = [0.0] * 5

    def add_counts(self, first_ms: int, last_ms: int, counts: Sequence[int]) -> None:
        """Add a row of `COUNTS`."""
        self.first_ms = first_ms if self.first_ms is None else min(self.first_ms, first_ms)
        self.last_ms = last_ms if self.last_ms is None else max(self.last_ms, last_ms)
        self.counts = [old + int(new) for old, new in zip(self.counts, counts, strict=True)]

    def add_delays(self, delays: Sequence[float]) -> None:
        """Add a row of `delays`."""
        self.delays = [old + float(new) for old, new in zip(self.delays, delays, strict=True)]

    def summary(self, duration_ms: int | None) -> RunSummary:
        """Return the summary."""
        started, late, peak_ticks, jobs, peak_late = self.delays
        ticks, overlapped, succeeded, failed, timed_out = self.counts
        return RunSummary(
            first_ms=self.first_ms,
            last_ms=self.last_ms,
            ticks=ticks,
            overlapped=overlapped,
            succeeded=succeeded,
            failed=failed,
            timed_out=timed_out,
            duration_ms=duration_ms,
            started=round(started),
            delay_ms=_mean(late, started),
            peak_ticks=round(peak_ticks),
            peak_jobs=_mean(jobs, peak_ticks),
            peak_delay_ms=_mean(peak_late, peak_ticks),
        )


async def add_slice(
    session: Session,
    kind: str,
    job_ids: Sequence[str],
    between_ms: tuple[int, int],
    peak_jobs: int,
    totals: dict[str, Totals],
) -> None:
    """Add the runs of these jobs that were created in this time."""
    first, end = map(first_id, between_ms)
    for job_id, first_ms, last_ms, *counts in await session.rows(COUNTS, list(job_ids), first, end):
        totals.setdefault(job_id, Totals()).add_counts(first_ms, last_ms, counts)
    if totals:
        for job_id, *late in await session.rows(delays(kind), list(totals), first, end, peak_jobs):
            totals[job_id].add_delays(late)


async def read_durations(
    session: Session, kind: str, job_ids: Sequence[str], between_ms: tuple[int, int]
) -> dict[str, int]:
    """Return the duration that nine of ten runs do not exceed, by job."""
    first, end = map(first_id, between_ms)
    rows = await session.rows(durations(kind), list(job_ids), first, end)
    return {row[0]: round(row[1]) for row in rows}


def _mean(total: float, count: float) -> int:
    return round(total / count) if count else 0
