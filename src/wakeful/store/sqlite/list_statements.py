"""The statements that list jobs and runs in SQLite, built from their filters.

The rules are those of `statements`.
"""

from __future__ import annotations

import re
from typing import Final

from wakeful.store.rows import VERIFYING, JobFilter, RunFilter
from wakeful.store.sql.job_conditions import Conditions, Dialect, Value
from wakeful.store.sqlite.statements import (
    JOB_COLUMNS,
    LIVE_ROWS,
    RUN_VIEW,
    SCHEDULE_KIND,
    TARGET_KIND,
    marks,
)
from wakeful.store.stats import ERROR_READ, DeadLetterFilter

_LIVE: Final = frozenset({"pending", "retrying", "running"})
_OF_J: Final = {"timing": "j.timing", "after_job": "j.after_job", "work": "j.work"}
#: Jobs that code of schema 13 created have no kinds: they are computed from the rows of these.
_DIALECT: Final = Dialect(
    "instr",
    "j.labels",
    f"coalesce(j.schedule_kind, {SCHEDULE_KIND.format(**_OF_J)})",
    f"coalesce(j.target_kind, {TARGET_KIND.format(**_OF_J)})",
)
#: verifications_of_workspace: those of the workspace, and those without one, which replicas of schema 16
#: added; the primary key of runs once for each
_TO_CONFIRM: Final = f"""
    SELECT w.rowid FROM (
        SELECT run_id, verify FROM verifications INDEXED BY verifications_of_workspace
        WHERE workspace = ? UNION ALL
        SELECT run_id, verify FROM verifications INDEXED BY verifications_of_workspace
        WHERE workspace IS NULL) v
    CROSS JOIN runs w ON w.id = v.run_id
    WHERE json_extract(v.verify, '$.kind') = 'manual' AND w.state = 'running' AND w.worker = '{VERIFYING}'"""
_UNSUCCESSFUL: Final = frozenset({"failed", "cancelled", "skipped", "missed"})


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
    return _marked(
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
    return _marked(statement), found.args


def _marked(statement: str) -> str:
    """Return the statement with the parameters ?1, ?2 and on instead of $1, $2; JSON paths stay."""
    return re.sub(r"\$(?=\d)", "?", statement)


def list_runs(only: RunFilter) -> tuple[str, list[str | int]]:
    """Return the statement that lists these runs, and its parameters.

    Newest first from the index of the narrowest owner that is named: runs_of_job, runs_of_instance,
    runs_dead, runs_dead_of_agent, runs_of_agent or runs_of_workspace. Live runs and runs without success are
    few among all that were, and are picked from their own indexes; those to confirm, from verifications.
    """
    where, args = ["workspace = ?"], [only.workspace]
    for column, value in (
        ("agent", only.agent),
        ("job_id", only.job_id),
        ("instance_id", only.instance_id),
        ("trigger", only.trigger),
    ):
        if value is not None:
            where.append(f"{column} = ?")
            args.append(value)
    if only.states:
        where.append(f"state IN ({marks(len(only.states))})")
        args.extend(only.states)
    if only.dead:
        where.append("dead")
    if only.before is not None:
        where.append("id < ?")
        args.append(only.before)
    if only.since is not None:
        where.append("id >= ?")
        args.append(only.since)
    unsuccessful = only.states and _UNSUCCESSFUL.issuperset(only.states)
    if unsuccessful:
        # The condition of the indexes.
        where.append("state IN ('failed', 'cancelled', 'skipped', 'missed')")
    if only.to_confirm:
        source = "NOT INDEXED"
        where.append(f"rowid IN ({_TO_CONFIRM})")
        args.append(only.workspace)
    elif unsuccessful and only.instance_id is None and not only.dead:
        source = f"INDEXED BY runs_unsuccessful{'' if only.job_id is None else '_of_job'}"
    elif only.job_id is not None:
        source = "INDEXED BY runs_of_job"
    elif only.instance_id is not None:
        source = "INDEXED BY runs_of_instance"
    elif only.dead:
        source = "INDEXED BY runs_dead" if only.agent is None else "INDEXED BY runs_dead_of_agent"
    elif only.states and _LIVE.issuperset(only.states):
        source = "NOT INDEXED"
        where.append(f"rowid IN ({LIVE_ROWS})")
    elif only.agent is not None:
        source = "INDEXED BY runs_of_agent"
    else:
        source = "INDEXED BY runs_of_workspace"
    return (
        f"SELECT {RUN_VIEW} FROM runs {source} WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT ? OFFSET ?",
        [*args, only.limit, only.offset],
    )


def dead_letters(only: DeadLetterFilter) -> tuple[str, list[str | int]]:
    """Return the statement that reads dead letters, and its parameters.

    runs_dead or runs_dead_of_agent: a range of it, in its order or backwards.
    """
    where, args = ["workspace = ?"], [only.workspace]
    for condition, value in (
        ("agent = ?", only.agent),
        ("id > ?", only.after),
        ("id <= ?", only.through),
        ("id < ?", only.before),
    ):
        if value is not None:
            where.append(condition)
            args.append(value)
    index = "runs_dead" if only.agent is None else "runs_dead_of_agent"
    return (
        "SELECT id, agent, job_id, job_name, reason, response_code, "
        f"substr(error, 1, {ERROR_READ}), coalesce(finished_at, created_at) FROM runs INDEXED BY {index} "
        f"WHERE dead AND {' AND '.join(where)} ORDER BY id {'ASC' if only.oldest_first else 'DESC'} LIMIT ?",
        [*args, only.limit],
    )
