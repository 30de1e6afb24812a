"""The statements that list jobs and runs in PostgreSQL, built from their filters.

The rules are those of `statements`.
"""

from __future__ import annotations

from typing import Final

from wakeful.store.overviews import ERROR_READ, DeadLetterFilter
from wakeful.store.postgres.statements import jobs_where, runs_where
from wakeful.store.rows import JobFilter, RunFilter

_LIVE: Final = frozenset({"pending", "retrying", "running"})
#: before and after every id
_FIRST: Final = "00000000-0000-0000-0000-000000000000"
_LAST: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"


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

    Newest first from the narrowest index there is: runs_of_job, runs_of_instance, runs_dead,
    runs_dead_of_agent, or runs_of_workspace, which knows the agent too. Live runs are few among all that
    were, and are picked from their own table.
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


def dead_letters(only: DeadLetterFilter) -> tuple[str, list[str | int]]:
    """Return the statement that reads dead letters, and its parameters.

    runs_dead or runs_dead_of_agent: a range of it, in its order or backwards.
    """
    owner = ("workspace",) if only.agent is None else ("workspace", "agent")
    args: list[str | int] = [only.workspace] if only.agent is None else [only.workspace, only.agent]
    where = ["r.dead"]
    for operator, value in (
        (">", only.after or _FIRST),
        ("<=", only.through or _LAST),
        ("<", only.before or _LAST),
    ):
        args.append(value)
        where.append(_compared(owner, operator, len(args)))
    order = _order(owner, "ASC" if only.oldest_first else "DESC")
    return (
        "SELECT r.id::text, r.agent, r.job_id::text, r.job_name, r.reason, r.response_code, "
        f"substr(r.error, 1, {ERROR_READ}), coalesce(r.finished_at, r.created_at) FROM runs r "
        f"WHERE {' AND '.join(where)} ORDER BY {order} LIMIT ${len(args) + 1}",
        [*args, only.limit],
    )


# Dead letters are few and may all be old. With equality on the owner and `ORDER BY id`, PostgreSQL may choose
# the primary key, and then reads all newer runs before the first dead letter. A range over (owner, id), in
# that order, fits only the index of dead letters.


def _compared(owner: tuple[str, ...], operator: str, number: int) -> str:
    """Return the comparison of (owner, id) with the first parameters and the one of that number."""
    columns = ", ".join(f"r.{name}" for name in (*owner, "id"))
    values = ", ".join(f"${position}" for position in (*range(1, len(owner) + 1), number))
    return f"({columns}) {operator} ({values})"


def _order(owner: tuple[str, ...], direction: str) -> str:
    return ", ".join(f"r.{name} {direction}" for name in (*owner, "id"))
