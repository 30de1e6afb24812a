"""Jobs, as users read them, and the conditions of their lists (`JobFilter`).

All conditions but `failing` are decided from the entries of the index jobs_list, so that a search reads no
row of the table that it does not return. A text that is not a UUID is the id of no job: it is not found, and
not an error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from wakeful.errors import AlreadyExists
from wakeful.job.job import AGENT_INACTIVE
from wakeful.job.self_scheduling import APPROVAL
from wakeful.job.start_rules import BudgetBlock
from wakeful.run.usage import Spent, limit_usage, utc_day
from wakeful.signal.event_catalog import JOB_PREFIX
from wakeful.store.columns import reader, select_list
from wakeful.store.internal_jobs import IN_SQL
from wakeful.store.rows import JobFilter, JobRow, JobWithRuns
from wakeful.store.sql.conditions import Conditions
from wakeful.store.sql.driver import SqlSession, Texts
from wakeful.store.sql.runs import last_runs
from wakeful.values.ids import is_id
from wakeful.values.stored_text import is_storable

#: The columns of a job `j` as `JobRow`; in PostgreSQL with its cursor `c`.
JOB_ROW: Final = Texts(
    sqlite=select_list(JobRow._fields, "j"),
    postgresql=select_list(
        JobRow._fields,
        "j",
        {
            "id": "j.id::text",
            "old_secret_until_ms": "j.old_secret_until_at",
            "next_ms": "c.next_at",
            "wake_ms": "c.wake_at",
            "run_count": "c.run_count",
            "instance_id": "j.instance_id::text",
        },
    ),
)


def read_jobs(condition: str, index: str = "", end: str = "", more: str = "") -> Texts:
    """Return the statement that reads these jobs (`j`; in PostgreSQL with their cursors `c`) as `JobRow`.

    SQLite uses the index of this name, if there is one. `more` are further columns.
    """
    hint = f"INDEXED BY {index}" if index else ""
    return Texts(
        sqlite=f"SELECT {JOB_ROW.sqlite} {more} FROM jobs j {hint} WHERE {condition} {end}",
        postgresql=f"""
    SELECT {JOB_ROW.postgresql} {more} FROM cursors c JOIN jobs j ON j.id = c.job_id
    WHERE {condition} {end}""",
    )


_NAMED: Final = "j.workspace = $1 AND j.agent = $2 AND j.name = $3 AND j.deleted_at IS NULL"
#: jobs_name; in PostgreSQL, here and below, also the cursors' primary key
JOB: Final = read_jobs(_NAMED, "jobs_name")
_BLOCKED: Final = """LEFT JOIN budget_blocks b ON b.day = $4 AND b.workspace = j.workspace
        AND b.agent IN ('', j.agent) AND b.job IN ('', j.id::text)"""
_BLOCK: Final = "b.day, b.workspace, b.agent, b.job, b.cap, b.most"
#: jobs_name and the primary key of budget_blocks: the caps that are reached of the job, its agent and its
#: workspace
JOB_AND_BLOCKS: Final = Texts(
    sqlite=f"""
    SELECT {JOB_ROW.sqlite}, {_BLOCK} FROM jobs j INDEXED BY jobs_name {_BLOCKED} WHERE {_NAMED}""",
    postgresql=f"""
    SELECT {JOB_ROW.postgresql}, {_BLOCK}
    FROM cursors c JOIN jobs j ON j.id = c.job_id {_BLOCKED} WHERE {_NAMED}""",
)
#: the primary key
ANY_JOB_BY_ID: Final = read_jobs("j.id = $1")
JOB_BY_ID: Final = read_jobs("j.id = $1 AND j.deleted_at IS NULL")
#: the primary key, once for each
JOB_CREATORS: Final = "SELECT j.id::text, j.created_by FROM jobs j WHERE j.id = ANY($1::uuid[])"
#: the primary key, once for each
JOB_LABELS: Final = "SELECT j.id::text, j.labels FROM jobs j WHERE j.id = ANY($1::uuid[])"
#: the primary key, once for each
EXISTING_JOBS: Final = "SELECT j.id::text FROM jobs j WHERE j.id = ANY($1::uuid[]) AND j.deleted_at IS NULL"
#: the primary key, once for each
JOBS_BY_IDS: Final = read_jobs("j.id = ANY($1::uuid[]) AND j.deleted_at IS NULL")
#: jobs_name, once for each
TAKEN_NAMES: Final = """
    SELECT j.name FROM jobs j
    WHERE j.workspace = $1 AND j.agent = $2 AND j.name = ANY($3::text[]) AND j.deleted_at IS NULL"""
#: jobs_schedule: a range of it, in its order
SCHEDULES: Final = read_jobs(
    "j.instance_id = $1 AND j.deleted_at IS NULL",
    "jobs_schedule",
    "ORDER BY j.schedule_origin, j.schedule_id",
)
#: What is read with one job at the instant $4 on the day $5. hooks_of_job; the primary key of spending;
#: jobs_name. Not EXISTS, for which PostgreSQL may read the whole table
_DETAILS: Final = """,
    (SELECT true FROM hooks h
        WHERE h.job_id = j.id AND (h.expires_at IS NULL OR h.expires_at > $4) LIMIT 1),
    j.precheck_state,
    (SELECT s.tokens FROM spending s
        WHERE s.workspace = j.workspace AND s.agent = j.agent AND s.job = j.id::text AND s.day = $5),
    (SELECT s.cost FROM spending s
        WHERE s.workspace = j.workspace AND s.agent = j.agent AND s.job = j.id::text AND s.day = $5),
    j.after_job IS NULL OR (SELECT true FROM jobs u /*+ INDEXED BY jobs_name */
        WHERE u.workspace = j.workspace AND u.agent = j.agent AND u.name = j.after_job
            AND u.deleted_at IS NULL)"""
#: jobs_name, and those of `_DETAILS`
JOB_WITH_DETAILS: Final = read_jobs(
    "j.workspace = $1 AND j.agent = $2 AND j.name = $3 AND j.deleted_at IS NULL", "jobs_name", more=_DETAILS
)
#: the primary key, and those of `_DETAILS`
JOB_WITH_DETAILS_BY_ID: Final = read_jobs(
    "j.id = $3 AND j.workspace = $1 AND j.agent = $2 AND j.deleted_at IS NULL", more=_DETAILS
)

#: The kinds of schedule and target of a job, as the triggers of migration 14 set them in SQLite.
SCHEDULE_KIND: Final = """
    CASE WHEN {timing} IS NOT NULL
            THEN CASE WHEN json_valid({timing}) THEN json_extract({timing}, '$.schedule.kind') END
        WHEN {after_job} IS NOT NULL THEN 'after' ELSE 'none' END"""
TARGET_KIND: Final = """
    CASE WHEN json_valid({work}) THEN coalesce(json_extract({work}, '$.target.kind'), 'pull') END"""
_OF_J: Final = {"timing": "j.timing", "after_job": "j.after_job", "work": "j.work"}
#: Jobs that code of schema 13 created in SQLite have no kinds: they are computed from the rows of these.
_SCHEDULE_KIND: Final = Texts(
    sqlite=f"coalesce(j.schedule_kind, {SCHEDULE_KIND.format(**_OF_J)})", postgresql="j.schedule_kind"
)
_TARGET_KIND: Final = Texts(
    sqlite=f"coalesce(j.target_kind, {TARGET_KIND.format(**_OF_J)})", postgresql="j.target_kind"
)
#: `short_labels` is in the index jobs_list of PostgreSQL; it is null if the labels are too long for an index
_LABELS: Final = "coalesce(j.short_labels, (SELECT l.labels FROM jobs l WHERE l.id = j.id))"
#: That a job has a label, by the mark of its name and a condition on its value.
_HAS_LABEL: Final = Texts(
    sqlite="""CASE WHEN j.labels <> '{{}}' AND json_valid(j.labels) THEN EXISTS (
        SELECT 1 FROM json_each(j.labels) l WHERE l.key = {name} AND l.value {value}) END""",
    postgresql=f"""CASE WHEN {_LABELS} = '{{{{}}}}' THEN false
        ELSE text_at({_LABELS}, ARRAY[{{name}}::text], NULL) {{value}} END""",
)
#: The states of jobs in lists, each as a condition on a job `j`.
STATES: Final = {
    "active": "j.enabled",
    "paused": "j.disabled_reason = 'paused'",
    "approval": f"j.disabled_reason = '{APPROVAL}'",
    "inactive": f"j.disabled_reason = '{AGENT_INACTIVE}'",
    "ended": f"NOT j.enabled AND coalesce(j.disabled_reason, '') NOT IN ('paused', '{APPROVAL}', "
    f"'{AGENT_INACTIVE}')",
    "failing": "j.failures > 0",
}
CREATORS: Final = {
    "agent": "j.created_by LIKE 'agent:%'",
    "person": "j.created_by <> '' AND j.created_by NOT LIKE 'agent:%'",
}

#: Fewer jobs than this are sorted by their next tick. More are read in the order of all ticks, in which few
#: other jobs lie between them.
FEW: Final = 2_000


def _conditions(only: JobFilter) -> Conditions:
    """Return the conditions of a filter."""
    found = Conditions()
    found.add("j.deleted_at IS NULL")
    found.compare("j.workspace", "=", only.workspace)
    for column, value in (("agent", only.agent), ("name", only.name), ("created_by", only.created_by)):
        found.compare(f"j.{column}", "=", value)
    for kind, value in ((_SCHEDULE_KIND, only.schedule_kind), (_TARGET_KIND, only.target_kind)):
        if value is not None:
            mark = found.mark(value)
            found.add(Texts(f"{kind.sqlite} = {mark}", f"{kind.postgresql} = {mark}"))
    if not only.include_disabled:
        found.add("j.enabled")
    if only.q:
        found.add(_has_text(found, only.q))
    if only.state is not None:
        found.add(STATES[only.state])
    if only.creator is not None:
        found.add(CREATORS[only.creator])
    if not only.internal:
        found.add(f"j.name NOT IN ({IN_SQL}) AND j.name NOT LIKE '{JOB_PREFIX}%'")
    for label, value in only.labels:
        if not is_storable(label) or not is_storable(value or ""):
            found.add("false")
            continue
        name = found.mark(label)
        matches = "IS NOT NULL" if value is None else f"= {found.mark(value)}"
        found.add(Texts(*(text.format(name=name, value=matches) for text in _HAS_LABEL)))
    return found


def _has_text(found: Conditions, q: str) -> str:
    """Return that `agent/name` has this text. To put the two together would cost more than the search."""
    agent, slash, name = q.rpartition("/")
    if not slash:
        mark = found.mark(q)
        return f"(strpos(j.name, {mark}) > 0 OR strpos(j.agent, {mark}) > 0)"
    ends = f"substr(j.agent, length(j.agent) - {len(agent) - 1}) = {found.mark(agent)}" if agent else "true"
    starts = f"substr(j.name, 1, {len(name)}) = {found.mark(name)}" if name else "true"
    return f"{ends} AND {starts}"


def list_jobs(only: JobFilter, few: bool = False) -> tuple[Texts, list[object]]:
    """Return the statement and the parameters that list these jobs.

    By name: a range of jobs_list, or of jobs_failing_by_name, in its order. By the next tick: jobs_wake or
    cursors_wake in its order or, if the filter finds `few`, those of jobs_list. A row of the table is read
    whole only if it is returned.
    """
    found = _conditions(only)
    if only.order == "name":
        if only.after is not None:
            agent, name = map(found.mark, only.after)
            found.add(f"(j.agent, j.name) > ({agent}, {name})")
        part = f"LIMIT {found.mark(only.limit)}"
        if only.offset:
            part += f" OFFSET {found.mark(only.offset)}"
        picked = f"""
            SELECT j.id, j.agent, j.name FROM jobs j WHERE {found.text()}
            ORDER BY j.agent, j.name {part}"""
        return Texts(
            _read_picked(_index(only), found.sqlite(), "j.agent, j.name", part),
            f"{_read_of(picked)} ORDER BY k.agent, k.name",
        ), found.args
    lite = "j.next_at IS NOT NULL AND j.wake_at IS NOT NULL"
    great = "c.wake_at IS NOT NULL AND c.next_at IS NOT NULL"
    if only.after_tick is not None:
        wake_ms, job_id = (found.mark(each) for each in only.after_tick)
        # If that job was deleted, the one that was created before it: rows and ids are in the same order.
        row = f"(SELECT p.rowid FROM jobs p WHERE p.id <= {job_id} ORDER BY p.id DESC LIMIT 1)"
        lite += f" AND (j.wake_at, j.rowid) > ({wake_ms}, coalesce({row}, 0))"
        great += f" AND (c.wake_at, c.job_id) > ({wake_ms}, {job_id})"
    limit = f"LIMIT {found.mark(only.limit)}"
    ticks = f"SELECT c.job_id AS id, c.wake_at FROM cursors c WHERE {great}"
    if few:
        picked = f"""
            WITH m AS MATERIALIZED (SELECT j.id FROM jobs j WHERE {found.text()})
            SELECT t.id, t.wake_at FROM m JOIN ({ticks}) t ON t.id = m.id
            ORDER BY t.wake_at, t.id {limit}"""
    else:  # OFFSET 0: the ticks are sorted before their jobs are read, each by the primary key
        picked = f"""
            SELECT t.id, t.wake_at FROM ({ticks} ORDER BY c.wake_at, c.job_id OFFSET 0) t
            CROSS JOIN LATERAL (SELECT * FROM jobs WHERE jobs.id = t.id OFFSET 0) j
            WHERE {found.text()} ORDER BY t.wake_at, t.id {limit}"""
    index = _index(only) if few else "jobs_wake"
    return Texts(
        _read_picked(index, f"{found.sqlite()} AND {lite}", "j.wake_at, j.rowid", limit),
        f"{_read_of(picked)} ORDER BY k.wake_at, k.id",
    ), found.args


def _index(only: JobFilter) -> str:
    return "jobs_failing_by_name" if only.state == "failing" else "jobs_list"


def _read_picked(index: str, condition: str, order: str, part: str) -> str:
    """Return the statement of SQLite that finds rows in an index, then reads them."""
    return f"""
        SELECT {JOB_ROW.sqlite} FROM (
            SELECT j.rowid AS number FROM jobs j INDEXED BY {index} WHERE {condition}
            ORDER BY {order} {part}) found
        CROSS JOIN jobs j ON j.rowid = found.number ORDER BY {order}"""


def _read_of(picked: str) -> str:
    """Return the statement of PostgreSQL that reads the jobs `k` that a query picks. The primary keys."""
    return f"""
        SELECT {JOB_ROW.postgresql} FROM ({picked}) k
        JOIN jobs j ON j.id = k.id JOIN cursors c ON c.job_id = k.id"""


def count_statement(only: JobFilter, most: int) -> tuple[Texts, list[object]]:
    """Return the statement that counts these jobs, up to `most`. jobs_list, or jobs_failing_by_name."""
    found = _conditions(only)
    limit = found.mark(most)
    lite = f"SELECT 1 FROM jobs j INDEXED BY {_index(only)} WHERE {found.sqlite()} LIMIT {limit}"
    great = f"SELECT FROM jobs j WHERE {found.text()} LIMIT {limit}"
    return Texts(f"SELECT count(*) FROM ({lite}) k", f"SELECT count(*) FROM ({great}) k"), found.args


#: makes a job of its columns
job_row: Final = reader(JobRow)


async def job(session: SqlSession, workspace: str, agent: str, name: str) -> JobRow | None:
    """Return the job of that name, unless deleted."""
    row = await session.row(JOB, workspace, agent, name)
    return None if row is None else job_row(row)


async def taken_names(session: SqlSession, workspace: str, agent: str, names: Sequence[str]) -> set[str]:
    """Return those of these names that jobs of the agent have."""
    return set(await session.column(TAKEN_NAMES, workspace, agent, list(names)))


def name_taken(row: JobRow) -> AlreadyExists:
    """Return the error for a new or changed job whose name another job has."""
    return AlreadyExists(
        f"agent '{row.agent}' already has a job '{row.name}'; update that one, or choose another name"
    )


async def find_name_conflict(session: SqlSession, new: Sequence[JobRow]) -> JobRow | None:
    """Return the first of these new jobs whose name another of them, or an existing job, has."""
    names: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in new:
        names[row.workspace, row.agent].append(row.name)
    seen = {
        (*owner, name)
        for owner, wanted in names.items()
        for name in await taken_names(session, *owner, wanted)
    }
    for row in new:
        if row.key in seen:
            return row
        seen.add(row.key)
    return None


async def job_and_blocks(
    session: SqlSession, workspace: str, agent: str, name: str, day: int
) -> tuple[JobRow, Sequence[BudgetBlock]] | None:
    """Return the job of that name, unless deleted, and the caps reached on that day that apply to it."""
    found = [list(row) for row in await session.rows(JOB_AND_BLOCKS, workspace, agent, name, day)]
    if not found:
        return None
    own = len(JobRow._fields)
    blocks = [BudgetBlock(*row[own:]) for row in found if row[own] is not None]
    return job_row(found[0][:own]), blocks


async def job_by_id(session: SqlSession, job_id: str, *, deleted: bool = False) -> JobRow | None:
    """Return the job of that id, unless deleted; with `deleted` also then."""
    row = await session.row(ANY_JOB_BY_ID if deleted else JOB_BY_ID, job_id) if is_id(job_id) else None
    return None if row is None else job_row(row)


async def job_with_runs(
    session: SqlSession, now_ms: int, workspace: str, agent: str, job: str, runs: int
) -> JobWithRuns | None:
    """Return the job of an agent with this id or name, unless deleted, and so many of its newest runs."""
    args = workspace, agent, job, now_ms, utc_day(now_ms)
    row = await session.row(JOB_WITH_DETAILS_BY_ID, *args) if is_id(job) else None
    row = row or await session.row(JOB_WITH_DETAILS, *args)
    if row is None:
        return None
    *columns, has_hook, precheck_state, tokens, cost, has_upstream = row
    found = job_row(columns)
    return JobWithRuns(
        found,
        bool(has_hook),
        precheck_state,
        Spent() if tokens is None else limit_usage(tokens, cost),
        bool(has_upstream),
        await last_runs(session, workspace, agent, found.id, runs),
    )


async def jobs_by_ids(session: SqlSession, ids: Sequence[str]) -> list[JobRow]:
    """Return those of these jobs that exist and are not deleted, in any order."""
    return [job_row(row) for row in await session.rows(JOBS_BY_IDS, list(filter(is_id, ids)))]


async def existing_jobs(session: SqlSession, ids: Sequence[str]) -> list[str]:
    """Return the ids of those of these jobs that exist and are not deleted, in any order."""
    return await session.column(EXISTING_JOBS, list(filter(is_id, ids)))


async def job_creators(session: SqlSession, ids: Sequence[str]) -> dict[str, str]:
    """Return who created these jobs (`created_by`) by id, also those that are deleted."""
    rows = await session.rows(JOB_CREATORS, list(filter(is_id, ids)))
    return {row[0]: row[1] for row in rows}


async def job_labels(session: SqlSession, ids: Sequence[str]) -> dict[str, str]:
    """Return the labels of these jobs as JSON by id, also of those that are deleted."""
    rows = await session.rows(JOB_LABELS, list(filter(is_id, ids)))
    return {row[0]: row[1] for row in rows}


async def schedules(session: SqlSession, instance_id: str) -> list[JobRow]:
    """Return the jobs of the schedules of an instance, by origin and id."""
    return [job_row(row) for row in await session.rows(SCHEDULES, instance_id)]


async def jobs(session: SqlSession, only: JobFilter) -> list[JobRow]:
    """Return jobs, ordered by agent and name, or by their next tick."""
    few = False
    if only.order == "next":
        found = await count_jobs(session, only, FEW)
        if not found or (only.after_tick is not None and not is_id(only.after_tick[1])):
            return []
        few = found < FEW
    statement, args = list_jobs(only, few)
    return [job_row(row) for row in await session.rows(statement, *args)]


async def count_jobs(session: SqlSession, only: JobFilter, most: int) -> int:
    """Return how many jobs match, at most `most`. The position in the list and the limit do not count."""
    statement, args = count_statement(only, most)
    return int(await session.value(statement, *args) or 0)
