"""The statements that list jobs and runs in PostgreSQL, built from their filters.

The rules are those of `statements`.
"""

from __future__ import annotations

from typing import Final

from wakeful.store.postgres.statements import jobs_of, runs_where
from wakeful.store.rows import VERIFYING, JobFilter, RunFilter
from wakeful.store.sql.job_conditions import Conditions, Dialect, Value
from wakeful.store.stats import ERROR_READ, DeadLetterFilter

_LIVE: Final = frozenset({"pending", "retrying", "running"})
#: before and after every id
_FIRST: Final = "00000000-0000-0000-0000-000000000000"
_LAST: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
#: verifications_of_workspace: those of the workspace, and those without one, which replicas of schema 16
#: added; the primary key of runs once for each
_TO_CONFIRM: Final = f"""
    r.id = ANY(ARRAY(
        SELECT v.run_id FROM verifications v
        WHERE v.workspace = $1 AND text_at(v.verify, '{{kind}}', NULL) = 'manual'
        UNION ALL
        SELECT v.run_id FROM verifications v
        WHERE v.workspace IS NULL AND text_at(v.verify, '{{kind}}', NULL) = 'manual'))
    AND r.state = 'running' AND r.worker = '{VERIFYING}'"""
_UNSUCCESSFUL: Final = frozenset({"failed", "cancelled", "skipped", "missed"})


#: `short_labels` is in the index jobs_list; it is null if the labels are too long for an index
_DIALECT: Final = Dialect(
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
        return f"{jobs_of(f'({inner}) k')} ORDER BY k.agent, k.name", found.args
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
    return f"{jobs_of(f'({inner}) k')} ORDER BY k.wake_at, k.id", found.args


def count_jobs(only: JobFilter, most: int) -> tuple[str, list[Value]]:
    """Return the statement that counts these jobs, up to `most`. jobs_list, or jobs_failing_by_name."""
    found = Conditions(_DIALECT, only)
    limit = found.mark(most)
    return f"SELECT count(*) FROM (SELECT FROM jobs j WHERE {found.text} LIMIT {limit}) k", found.args


def list_runs(only: RunFilter) -> tuple[str, list[str | int | list[str]]]:
    """Return the statement that lists these runs, and its parameters.

    Newest first from the narrowest index there is: runs_of_job, runs_of_instance, runs_dead,
    runs_dead_of_agent, runs_unsuccessful_of_job, runs_unsuccessful, or runs_of_workspace. The last two know
    the agent too. Live runs are few among all that were, and are picked from their own table;
    those to confirm, from verifications.
    """
    if only.dead and only.job_id is None and only.instance_id is None and not only.to_confirm:
        return _list_dead_runs(only)
    where = ["r.workspace = $1"]
    args: list[str | int | list[str]] = [only.workspace]
    for condition, value in (
        ("r.agent = ", only.agent),
        ("r.job_id = ", only.job_id),
        ("r.instance_id = ", only.instance_id),
        ("r.trigger = ", only.trigger),
        ("r.id < ", only.before),
        ("r.id >= ", only.since),
        ("r.state = ANY", list(only.states) or None),
    ):
        if value is not None:
            args.append(value)
            where.append(f"{condition}(${len(args)})")
    if only.to_confirm:
        where.append(_TO_CONFIRM)
    if only.dead:
        where.append("r.dead")
    elif only.states and _UNSUCCESSFUL.issuperset(only.states):
        # The condition of the index: each of these runs has an error or a reason.
        where.append("(r.error IS NOT NULL OR r.reason IS NOT NULL)")
    live = only.states and _LIVE.issuperset(only.states) and only.job_id is None and only.instance_id is None
    live = live and not only.to_confirm
    query = f"{' AND '.join(where)} ORDER BY r.id DESC LIMIT ${len(args) + 1}"
    args.append(only.limit)
    if only.offset:
        args.append(only.offset)
        query += f" OFFSET ${len(args)}"
    return runs_where(query, "JOIN live_runs l ON l.run_id = r.id" if live else ""), args


def _list_dead_runs(only: RunFilter) -> tuple[str, list[str | int | list[str]]]:
    """Return the statement for dead letters. runs_dead or runs_dead_of_agent: a range of it, backwards."""
    owner = ("workspace",) if only.agent is None else ("workspace", "agent")
    args: list[str | int | list[str]] = [only.workspace]
    if only.agent is not None:
        args.append(only.agent)
    where = ["r.dead"]
    for operator, bound in ((">", _FIRST), ("<", only.before or _LAST)):
        args.append(bound)
        where.append(_compared(owner, operator, len(args)))
    for condition, value in (("r.trigger = ", only.trigger), ("r.state = ANY", list(only.states) or None)):
        if value is not None:
            args.append(value)
            where.append(f"{condition}(${len(args)})")
    query = f"{' AND '.join(where)} ORDER BY {_order(owner, 'DESC')} LIMIT ${len(args) + 1}"
    return runs_where(query), [*args, only.limit]


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
