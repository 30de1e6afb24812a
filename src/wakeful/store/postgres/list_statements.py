"""The statements that list jobs in PostgreSQL, built from their filters.

The rules are those of `statements`.
"""

from __future__ import annotations

from typing import Final

from wakeful.store.postgres.statements import jobs_in
from wakeful.store.rows import JobFilter
from wakeful.store.sql.job_conditions import Conditions, SqlDialect, Value

#: `short_labels` is in the index jobs_list; it is null if the labels are too long for an index
_DIALECT: Final = SqlDialect(
    "strpos", "coalesce(j.short_labels, (SELECT l.labels FROM jobs l WHERE l.id = j.id))"
)
_NEXT: Final = "c.wake_at IS NOT NULL AND c.next_at IS NOT NULL"


def list_jobs(only: JobFilter, few: bool = False) -> tuple[str, list[Value]]:
    """Return the statement and the parameters that list these jobs.

    By name: a range of jobs_list, or of jobs_failing_by_name, in its order. By the next tick: cursors_wake
    in its order or, if the filter finds `few`, those of jobs_list.
    """
    found = Conditions(_DIALECT, only)
    if only.order == "name":
        found.after_name(only)
        part = f"LIMIT {found.mark(only.limit)}"
        if only.offset:
            part += f" OFFSET {found.mark(only.offset)}"
        inner = f"""
            SELECT j.id, j.agent, j.name FROM jobs j WHERE {found.text}
            ORDER BY j.agent, j.name {part}"""
        return f"{jobs_in(f'({inner}) k')} ORDER BY k.agent, k.name", found.args
    position = ""
    if only.after_tick is not None:
        wake_ms, job_id = only.after_tick
        position = f" AND (c.wake_at, c.job_id) > ({found.mark(wake_ms)}, {found.mark(job_id)})"
    limit = found.mark(only.limit)
    ticks = f"SELECT c.job_id AS id, c.wake_at FROM cursors c WHERE {_NEXT}{position}"
    matching = f"SELECT j.id FROM jobs j WHERE {found.text}"
    if few:
        inner = f"""
            WITH m AS MATERIALIZED ({matching})
            SELECT t.id, t.wake_at FROM m JOIN ({ticks}) t ON t.id = m.id
            ORDER BY t.wake_at, t.id LIMIT {limit}"""
    else:  # OFFSET 0: the ticks are sorted before their jobs are read, each by the primary key
        inner = f"""
            SELECT t.id, t.wake_at FROM ({ticks} ORDER BY c.wake_at, c.job_id OFFSET 0) t
            CROSS JOIN LATERAL (SELECT * FROM jobs WHERE jobs.id = t.id OFFSET 0) j
            WHERE {found.text} ORDER BY t.wake_at, t.id LIMIT {limit}"""
    return f"{jobs_in(f'({inner}) k')} ORDER BY k.wake_at, k.id", found.args


def count_jobs(only: JobFilter, most: int) -> tuple[str, list[Value]]:
    """Return the statement that counts these jobs, up to `most`. jobs_list, or jobs_failing_by_name."""
    found = Conditions(_DIALECT, only)
    limit = found.mark(most)
    return f"SELECT count(*) FROM (SELECT FROM jobs j WHERE {found.text} LIMIT {limit}) k", found.args
