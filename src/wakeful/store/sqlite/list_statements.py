"""The statements that list jobs in SQLite, built from their filters.

The rules are those of `statements`.
"""

from __future__ import annotations

import re
from typing import Final

from wakeful.store.rows import JobFilter
from wakeful.store.sql.job_conditions import Conditions, SqlDialect, Value
from wakeful.store.sqlite.statements import (
    JOB_COLUMNS,
    SCHEDULE_KIND,
    TARGET_KIND,
)

_OF_J: Final = {"timing": "j.timing", "after_job": "j.after_job", "work": "j.work"}
#: Jobs that code of schema 13 created have no kinds: they are computed from the rows of these.
_DIALECT: Final = SqlDialect(
    "instr",
    "j.labels",
    f"coalesce(j.schedule_kind, {SCHEDULE_KIND.format(**_OF_J)})",
    f"coalesce(j.target_kind, {TARGET_KIND.format(**_OF_J)})",
)


def list_jobs(only: JobFilter, few: bool = False) -> tuple[str, list[Value]]:
    """Return the statement and the parameters that list these jobs.

    By name: a range of jobs_list, or of jobs_failing_by_name, in its order; a row of the table is read only
    if its entry matches. By the next tick: jobs_wake in its order or, if the filter finds `few`, those of
    jobs_list.
    """
    found = Conditions(_DIALECT, only)
    if only.order == "name":
        found.after_name(only)
        return _jobs(_index(only), found, "j.agent, j.name", only.limit, only.offset)
    found.add("j.next_at IS NOT NULL AND j.wake_at IS NOT NULL")
    if only.after_tick is not None:
        wake, job_id = only.after_tick
        # If that job was deleted, the one that was created before it: rows and ids are in the same order.
        row = f"(SELECT p.rowid FROM jobs p WHERE p.id <= {found.mark(job_id)} ORDER BY p.id DESC LIMIT 1)"
        found.add(f"(j.wake_at, j.rowid) > ({found.mark(wake)}, coalesce({row}, 0))")
    return _jobs(_index(only) if few else "jobs_wake", found, "j.wake_at, j.rowid", only.limit)


def count_jobs(only: JobFilter, most: int) -> tuple[str, list[Value]]:
    """Return the statement that counts these jobs, up to `most`. jobs_list, or jobs_failing_by_name."""
    found = Conditions(_DIALECT, only)
    limit = found.mark(most)
    return _number_parameters(
        f"SELECT count(*) FROM (SELECT 1 FROM jobs j INDEXED BY {_index(only)} WHERE {found.text} "
        f"LIMIT {limit})"
    ), found.args


def _index(only: JobFilter) -> str:
    return "jobs_failing_by_name" if only.state == "failing" else "jobs_list"


def _jobs(index: str, found: Conditions, order: str, limit: int, offset: int = 0) -> tuple[str, list[Value]]:
    """Return the statement that finds the rows, then reads them: only what it returns is read whole."""
    columns = ", ".join(f"j.{column}" for column in JOB_COLUMNS.split(", "))
    statement = f"""
        SELECT {columns} FROM (
            SELECT j.rowid AS number FROM jobs j INDEXED BY {index} WHERE {found.text}
            ORDER BY {order} LIMIT {found.mark(limit)} OFFSET {found.mark(offset)}) found
        CROSS JOIN jobs j ON j.rowid = found.number ORDER BY {order}"""
    return _number_parameters(statement), found.args


def _number_parameters(statement: str) -> str:
    """Return the statement with the parameters ?1, ?2 and on instead of $1, $2; JSON paths stay."""
    return re.sub(r"\$(?=\d)", "?", statement)
