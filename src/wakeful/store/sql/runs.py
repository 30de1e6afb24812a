"""Runs and dead letters, as users read them.

A text that is not a UUID is the id of no run: it is not found, and not an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wakeful.run.dead_letter_groups import DeadLetterRow
from wakeful.run.run import VERIFYING_STATE
from wakeful.store.columns import reader, select_list
from wakeful.store.rows import VERIFYING, AttemptView, DeadLetter, ReportedRun, RunFilter, RunView
from wakeful.store.sql.conditions import Conditions
from wakeful.store.sql.driver import Row, SqlSession, Texts
from wakeful.store.stats import ERROR_READ, DeadLetterFilter
from wakeful.values.ids import is_id

_run_view: Final = reader(RunView)


def run_columns(delivery: str, delivery_error: str, table: str = "r") -> str:
    """Return the columns of a run of this table as `RunView`, with these of its delivery."""
    expressions = {
        "id": f"{table}.id::text",
        "job_id": f"{table}.job_id::text",
        "replay_of": f"{table}.replay_of::text",
        "delivery": delivery,
        "delivery_error": delivery_error,
    }
    return select_list(RunView._fields, table, expressions)


def view_columns(table: str) -> str:
    """Return the columns of a run as `RunView`: the primary key of deliveries, once for each."""
    return run_columns(
        f"""coalesce((SELECT CASE WHEN d.due_at IS NULL THEN d.state ELSE 'pending' END
            FROM deliveries d WHERE d.run_id = {table}.id), 'not_requested')""",
        f"(SELECT d.error FROM deliveries d WHERE d.run_id = {table}.id)",
        table,
    )


#: whether the work of the run `r` is being verified, as `RunView.verifying`
IS_VERIFIED: Final = f"r.state = 'running' AND (r.verifying_attempt = r.attempt OR r.worker = '{VERIFYING}')"
_RUN: Final = f"SELECT {view_columns('r')}"
#: the primary key
RUN: Final = f"{_RUN} FROM runs r WHERE r.id = $1"
#: the primary keys of runs and attempts
RUN_WITH_ATTEMPTS: Final = f"""
    {_RUN}, (SELECT true FROM attempts a WHERE a.run_id = r.id LIMIT 1) FROM runs r WHERE r.id = $1"""
#: the primary key
LOCK_RUN: Final = f"{RUN} FOR UPDATE"
#: the primary key, once for each
RUNS_BY_IDS: Final = f"{_RUN} FROM runs r WHERE r.id = ANY($1::uuid[])"
#: the primary key, once for each
RUN_AGENTS: Final = "SELECT id::text, agent FROM runs WHERE id = ANY($1::uuid[])"
#: the primary keys of runs and jobs, once for each
REPORTED_RUNS: Final = f"""{_RUN}, j.policy, j.work
    FROM runs r LEFT JOIN jobs j ON j.id = r.job_id WHERE r.id = ANY($1::uuid[])"""
#: How many attempts of a run are read. An attempt that does not count has no limit: a run can have thousands.
MOST_ATTEMPTS: Final = 200
#: the attempts' primary key, in its order, backwards
ATTEMPTS: Final = f"""
    SELECT {select_list(AttemptView._fields, "attempts")} FROM attempts WHERE run_id = $1
    ORDER BY attempt DESC LIMIT {MOST_ATTEMPTS}"""
_LETTER: Final = f"""
    SELECT {run_columns("'not_requested'", "NULL")}, coalesce(j.policy, '{{}}'), coalesce(j.work, '{{}}')
    FROM runs r"""
#: the primary keys of runs and jobs, once for each
LETTERS: Final = f"""{_LETTER} LEFT JOIN jobs j ON j.id = r.job_id
    WHERE r.id = ANY($2::uuid[]) AND r.workspace = $1 AND r.dead ORDER BY r.id FOR UPDATE OF r"""
#: runs_dead: the beginning of it, in its order; the jobs' primary key for what is found
OLDEST_LETTERS: Final = f"""{_LETTER} /*+ INDEXED BY runs_dead */ LEFT JOIN jobs j ON j.id = r.job_id
    WHERE r.workspace = $1 AND r.dead ORDER BY r.id LIMIT $2 FOR UPDATE OF r"""
#: runs_running and runs_waiting, all of them
_LIVE_ROWS: Final = """
    r.rowid IN (SELECT rowid FROM runs INDEXED BY runs_running WHERE state = 'running' UNION ALL
        SELECT rowid FROM runs INDEXED BY runs_waiting WHERE state IN ('pending', 'retrying'))"""
#: whether a person verifies the work of the run of `v`
IS_MANUAL: Final = Texts(
    sqlite="json_extract(v.verify, '$.kind') = 'manual'",
    postgresql="text_at(v.verify, '{kind}', NULL) = 'manual'",
)
_ANY_KIND: Final = Texts(sqlite="true", postgresql="true")
_VERIFIED: Final = """
    SELECT v.run_id FROM verifications v /*+ INDEXED BY verifications_of_workspace */
    WHERE v.workspace = $1 AND {0}
    UNION ALL
    SELECT v.run_id FROM verifications v /*+ INDEXED BY verifications_of_workspace */
    WHERE v.workspace IS NULL AND {0}"""
_LIVE: Final = frozenset({"pending", "retrying", "running"})
_UNSUCCESSFUL: Final = frozenset({"failed", "cancelled", "skipped", "missed"})
#: before and after every id
_FIRST: Final = "00000000-0000-0000-0000-000000000000"
_LAST: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"


def _are_among(found: Conditions, states: Sequence[str]) -> None:
    """Add that a run is in one of these states, or is verified; none does not filter."""
    stored = [state for state in states if state != VERIFYING_STATE]
    either = [f"r.state IN ({', '.join(map(found.mark, stored))})"] if stored else []
    if len(stored) < len(states):
        either.append(f"({IS_VERIFIED})")
    if either:
        found.add(f"({' OR '.join(either)})" if len(either) > 1 else either[0])


def list_runs(only: RunFilter) -> tuple[Texts, list[object]]:
    """Return the statement that lists these runs, and its parameters.

    Newest first from the narrowest index there is: runs_of_job, runs_of_instance, runs_dead,
    runs_dead_of_agent, runs_unsuccessful_of_job, runs_unsuccessful, runs_of_agent (SQLite), or
    runs_of_workspace. Live runs are few among all that were, and are picked from their own indexes or table;
    those that are verified, from verifications_of_workspace: those of the workspace, and those without one,
    which replicas of schema 16 added.
    """
    of_owner = only.job_id is None and only.instance_id is None
    verified = only.to_confirm or set(only.states) == {VERIFYING_STATE}
    if only.dead and of_owner and not verified:
        return _list_dead_runs(only)
    found = Conditions(only.workspace)
    found.add("r.workspace = $1")
    found.compare("r.agent", "=", only.agent)
    found.compare("r.job_id", "=", only.job_id)
    found.compare("r.instance_id", "=", only.instance_id)
    found.compare("r.trigger", "=", only.trigger)
    found.compare("r.id", "<", only.before)
    found.compare("r.id", ">=", only.since)
    _are_among(found, only.states)
    if only.dead:
        found.add("r.dead")
    unsuccessful = bool(only.states) and _UNSUCCESSFUL.issuperset(only.states) and not only.dead
    live = bool(only.states) and _LIVE.issuperset(only.states) and of_owner and not verified
    # The conditions of the indexes: each of the runs without success has an error or a reason.
    lite = ["r.state IN ('failed', 'cancelled', 'skipped', 'missed')"] if unsuccessful else []
    great = ["(r.error IS NOT NULL OR r.reason IS NOT NULL)"] if unsuccessful else []
    if verified:
        index = "NOT INDEXED"
        found.add(IS_VERIFIED)
        kinds = IS_MANUAL if only.to_confirm else _ANY_KIND
        of_runs = f"({_VERIFIED.format(kinds.sqlite)}) v CROSS JOIN runs w ON w.id = v.run_id"
        lite.append(f"r.rowid IN (SELECT w.rowid FROM {of_runs})")
        great.append(f"r.id = ANY(ARRAY({_VERIFIED.format(kinds.postgresql)}))")
    elif unsuccessful and only.instance_id is None:
        index = f"INDEXED BY runs_unsuccessful{'' if only.job_id is None else '_of_job'}"
    elif only.job_id is not None:
        index = "INDEXED BY runs_of_job"
    elif only.instance_id is not None:
        index = "INDEXED BY runs_of_instance"
    elif live:
        index = "NOT INDEXED"
        lite.append(_LIVE_ROWS)
    else:
        index = f"INDEXED BY runs_of_{'workspace' if only.agent is None else 'agent'}"
    end = f"ORDER BY r.id DESC LIMIT {found.mark(only.limit)}"
    if only.offset:
        end += f" OFFSET {found.mark(only.offset)}"
    joined = "JOIN live_runs l ON l.run_id = r.id" if live else ""
    return Texts(
        sqlite=f"{_RUN} FROM runs r {index} WHERE {found.sqlite(*lite)} {end}",
        postgresql=f"{_RUN} FROM runs r {joined} WHERE {found.text(*great)} {end}",
    ), found.args


#: runs_of_job: its end, backwards
LAST_RUNS: Final = list_runs(RunFilter("", "", ""))[0]


def _list_dead_runs(only: RunFilter) -> tuple[Texts, list[object]]:
    """Return the statement for dead letters. runs_dead or runs_dead_of_agent: a range of it, backwards."""
    found, owner, index = _dead(only.workspace, only.agent)
    found.add(_comparison(owner, ">=", found.mark(only.since or _FIRST)))
    found.add(_comparison(owner, "<", found.mark(only.before or _LAST)))
    found.compare("r.trigger", "=", only.trigger)
    _are_among(found, only.states)
    text = (
        f"{_RUN} FROM runs r {index} WHERE {found.text()} "
        f"ORDER BY {_order(owner, 'DESC')} LIMIT {found.mark(only.limit)}"
    )
    return Texts(text, text), found.args


def list_dead_letters(only: DeadLetterFilter) -> tuple[str, list[object]]:
    """Return the statement that reads dead letters, and its parameters.

    runs_dead or runs_dead_of_agent: a range of it, in its order or backwards.
    """
    found, owner, index = _dead(only.workspace, only.agent)
    found.add(_comparison(owner, ">", found.mark(only.after or _FIRST)))
    if only.through is not None:
        found.add(_comparison(owner, "<=", found.mark(only.through)))
    if only.before is not None or only.through is None:
        found.add(_comparison(owner, "<", found.mark(only.before or _LAST)))
    return (
        "SELECT r.id::text, r.agent, r.job_id::text, r.job_name, r.reason, r.response_code, "
        f"substr(r.error, 1, {ERROR_READ}), coalesce(r.finished_at, r.created_at) FROM runs r {index} "
        f"WHERE {found.text()} ORDER BY {_order(owner, 'ASC' if only.oldest_first else 'DESC')} "
        f"LIMIT {found.mark(only.limit)}",
        found.args,
    )


# Dead letters are few and may all be old. With equality on the owner and `ORDER BY id`, PostgreSQL may choose
# the primary key, and then reads all newer runs before the first dead letter. A range over (owner, id), in
# that order, fits only the index of dead letters.


def _dead(workspace: str, agent: str | None) -> tuple[Conditions, tuple[str, ...], str]:
    """Return the condition of dead letters, the columns of their owner, and the hint of their index."""
    found = Conditions(workspace)
    found.add("r.dead")
    if agent is None:
        return found, ("workspace",), "/*+ INDEXED BY runs_dead */"
    found.mark(agent)
    return found, ("workspace", "agent"), "/*+ INDEXED BY runs_dead_of_agent */"


def _comparison(owner: tuple[str, ...], operator: str, mark: str) -> str:
    """Return the comparison of (owner, id) with the first parameters and this one."""
    columns = ", ".join(f"r.{name}" for name in (*owner, "id"))
    values = ", ".join(f"${position}" for position in range(1, len(owner) + 1))
    return f"({columns}) {operator} ({values}, {mark})"


def _order(owner: tuple[str, ...], direction: str) -> str:
    return ", ".join(f"r.{name} {direction}" for name in (*owner, "id"))


async def read_run(session: SqlSession, run_id: str) -> RunView | None:
    """Return the run of that id."""
    row = await session.row(RUN, run_id) if is_id(run_id) else None
    return None if row is None else _run_view(row)


async def run_with_attempts(session: SqlSession, run_id: str) -> tuple[RunView, list[AttemptView]] | None:
    """Return the run of that id, and its newest attempts before the last, in order."""
    row = await session.row(RUN_WITH_ATTEMPTS, run_id) if is_id(run_id) else None
    if row is None:
        return None
    *columns, has_attempts = row
    return _run_view(columns), await attempts(session, run_id) if has_attempts else []


async def last_runs(
    session: SqlSession, workspace: str, agent: str, job_id: str, limit: int
) -> list[RunView]:
    """Return the newest runs of a job, newest first."""
    return [_run_view(row) for row in await session.rows(LAST_RUNS, workspace, agent, job_id, limit)]


async def lock_run(session: SqlSession, run_id: str) -> RunView | None:
    """Return the run of that id, locked until the end of the transaction."""
    row = await session.row(LOCK_RUN, run_id) if is_id(run_id) else None
    return None if row is None else _run_view(row)


async def runs_by_ids(session: SqlSession, ids: Sequence[str]) -> list[RunView]:
    """Return those of these runs that exist, in any order."""
    return [_run_view(row) for row in await session.rows(RUNS_BY_IDS, list(filter(is_id, ids)))]


async def run_agents(session: SqlSession, ids: Sequence[str]) -> dict[str, str]:
    """Return the agents of these runs by the id of the run."""
    return dict(map(tuple, await session.rows(RUN_AGENTS, list(filter(is_id, ids)))))


async def runs(session: SqlSession, only: RunFilter) -> list[RunView]:
    """Return runs, newest first (by id)."""
    if not _are_ids(only.job_id, only.before):
        return []
    statement, args = list_runs(only)
    return [_run_view(row) for row in await session.rows(statement, *args)]


async def attempts(session: SqlSession, run_id: str) -> list[AttemptView]:
    """Return the attempts of a run before its last, in order: the newest `MOST_ATTEMPTS`."""
    rows = await session.rows(ATTEMPTS, run_id) if is_id(run_id) else []
    return [AttemptView(*row) for row in reversed(rows)]


async def dead_letters(session: SqlSession, only: DeadLetterFilter) -> list[DeadLetterRow]:
    """Return dead letters, newest first or oldest first."""
    if not _are_ids(only.after, only.through, only.before):
        return []
    statement, args = list_dead_letters(only)
    return [DeadLetterRow(*row) for row in await session.rows(statement, *args)]


async def lock_dead_letters(
    session: SqlSession, workspace: str, which: Sequence[str] | int
) -> list[DeadLetter]:
    """Lock dead letters: those of these ids, in their order, or so many of the oldest of the workspace."""
    if isinstance(which, int):
        return [_letter(row) for row in await session.rows(OLDEST_LETTERS, workspace, which)]
    ids = list(filter(is_id, dict.fromkeys(which)))
    letters = [_letter(row) for row in await session.rows(LETTERS, workspace, ids)]
    found = {letter.run.id: letter for letter in letters}
    return [found[run_id] for run_id in ids if run_id in found]


async def reported_runs(session: SqlSession, ids: Sequence[str]) -> list[ReportedRun]:
    """Return those of these runs that exist, in any order, with the policy and work of their jobs."""
    found = []
    for *columns, policy, work in await session.rows(REPORTED_RUNS, list(filter(is_id, ids))):
        found.append(ReportedRun(_run_view(columns), policy, work))
    return found


def _letter(row: Row) -> DeadLetter:
    *columns, policy, work = row
    return DeadLetter(_run_view(columns), policy, work)


def _are_ids(*given: str | None) -> bool:
    return all(each is None or is_id(each) for each in given)
