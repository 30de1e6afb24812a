"""The statements that list jobs and runs in PostgreSQL, built from their filters.

The rules are those of `statements`.
"""

from __future__ import annotations

from typing import Final

from wakeful.store.postgres.statements import jobs_where, runs_where
from wakeful.store.rows import JobFilter, RunFilter

_LIVE: Final = frozenset({"pending", "retrying", "running"})


def list_jobs(only: JobFilter) -> tuple[str, list[str | int]]:
    """Return the statement and the parameters that list these jobs. jobs_name: a range, in its order."""
    where, args = ["j.deleted_at IS NULL", "j.workspace = $1"], [only.workspace]
    if only.agent is not None:
        args.append(only.agent)
        where.append(f"j.agent = ${len(args)}")
    if only.name is not None:
        args.append(only.name)
        where.append(f"j.name = ${len(args)}")
    if not only.include_disabled:
        where.append("j.enabled")
    if only.after is not None:
        args.extend(only.after)
        where.append(f"(j.agent, j.name) > (${len(args) - 1}, ${len(args)})")
    for name, value in only.labels:
        args.append(name)
        has = f"j.labels::jsonb ->> ${len(args)}"
        if value is not None:
            args.append(value)
        where.append(f"{has} IS NOT NULL" if value is None else f"{has} = ${len(args)}")
    query = f"{' AND '.join(where)} ORDER BY j.agent, j.name LIMIT ${len(args) + 1}"
    return jobs_where(query), [*args, only.limit]


def list_runs(only: RunFilter) -> tuple[str, list[str | int | list[str]]]:
    """Return the statement that lists these runs, and its parameters.

    Newest first from the narrowest index there is: runs_of_job, runs_of_instance, runs_dead, or
    runs_of_workspace, which knows the agent too. Live runs are few among all that were, and are picked
    from their own table.
    """
    where = ["r.workspace = $1"]
    args: list[str | int | list[str]] = [only.workspace]
    for condition, value in (
        ("r.agent = ", only.agent),
        ("r.job_id = ", only.job_id),
        ("r.instance_id = ", only.instance_id),
        ("r.trigger = ", only.trigger),
        ("r.id < ", only.before),
        ("r.state = ANY", list(only.states) or None),
    ):
        if value is not None:
            args.append(value)
            where.append(f"{condition}(${len(args)})")
    if only.dead:
        where.append("r.dead")
    live = only.states and _LIVE.issuperset(only.states) and only.job_id is None and only.instance_id is None
    query = f"{' AND '.join(where)} ORDER BY r.id DESC LIMIT ${len(args) + 1}"
    return runs_where(query, "JOIN live_runs l ON l.run_id = r.id" if live else ""), [*args, only.limit]
