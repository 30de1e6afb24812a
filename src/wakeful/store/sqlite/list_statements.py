"""The statements that list jobs and runs in SQLite, built from their filters.

The rules are those of `statements`.
"""

from __future__ import annotations

from typing import Final

from wakeful.store.overviews import ERROR_READ, DeadLetterFilter
from wakeful.store.rows import JobFilter, RunFilter
from wakeful.store.sqlite.statements import JOB_COLUMNS, LIVE_ROWS, RUN_VIEW, marks

_LIVE: Final = frozenset({"pending", "retrying", "running"})
_HAS_LABEL: Final = "EXISTS (SELECT 1 FROM json_each(labels) WHERE key = ?)"


def list_jobs(only: JobFilter) -> tuple[str, list[str | int]]:
    """Return the statement and the parameters that list these jobs. jobs_name: a range, in its order."""
    where, args = ["deleted_at IS NULL", "workspace = ?"], [only.workspace]
    if only.agent is not None:
        where.append("agent = ?")
        args.append(only.agent)
    if only.name is not None:
        where.append("name = ?")
        args.append(only.name)
    if not only.include_disabled:
        where.append("enabled")
    if only.after is not None:
        where.append("(agent, name) > (?, ?)")
        args.extend(only.after)
    for name, value in only.labels:
        where.append(_HAS_LABEL if value is None else f"{_HAS_LABEL[:-1]} AND value = ?)")
        args.extend([name] if value is None else [name, value])
    return (
        f"SELECT {JOB_COLUMNS} FROM jobs INDEXED BY jobs_name WHERE {' AND '.join(where)} "
        f"ORDER BY agent, name LIMIT ?",
        [*args, only.limit],
    )


def list_runs(only: RunFilter) -> tuple[str, list[str | int]]:
    """Return the statement that lists these runs, and its parameters.

    Newest first from the index of the narrowest owner that is named: runs_of_job, runs_of_instance,
    runs_dead, runs_dead_of_agent, runs_of_agent or runs_of_workspace. Live runs are few among all that
    were, and are picked from their own indexes.
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
    if only.job_id is not None:
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
        f"SELECT {RUN_VIEW} FROM runs {source} WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT ?",
        [*args, only.limit],
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
