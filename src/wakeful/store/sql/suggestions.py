"""Suggestions for jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from wakeful.errors import NotFound
from wakeful.evolution.suggestion import Suggestion
from wakeful.store.rows import JobRow
from wakeful.store.sql.driver import Row, Session
from wakeful.store.suggestions import SuggestionDecision, SuggestionFilter
from wakeful.values.ids import is_id

_IDS: Final = ("id", "job_id")
_FIELDS: Final = tuple(
    f"{name.removesuffix('_ms')}_at" if name.endswith("_ms") else name for name in Suggestion._fields
)
_COLUMNS: Final = ", ".join(f"s.{name}::text" if name in _IDS else f"s.{name}" for name in _FIELDS)
#: The first column that changes, and all from there on.
_FIRST: Final = _FIELDS.index("status")
_CHANGING: Final = ", ".join(f"{name} = ${number}" for number, name in enumerate(_FIELDS[_FIRST:], 2))
_VALUES: Final = ", ".join(f"${number}" for number in range(1, len(_FIELDS) + 1))

#: the primary key, and suggestions_open
ADD: Final = f"""
    INSERT INTO suggestions ({", ".join(_FIELDS)}) VALUES ({_VALUES}) ON CONFLICT DO NOTHING"""
#: the primary key
CHANGE: Final = f"UPDATE suggestions SET {_CHANGING} WHERE id = $1"
#: the primary key
REFRESH: Final = f"{CHANGE} AND status = 'open'"
#: the primary key
SUGGESTION: Final = f"SELECT {_COLUMNS} FROM suggestions s WHERE s.id = $1 AND s.workspace = $2"
#: the primary key, once for each
BY_IDS: Final = f"SELECT {_COLUMNS} FROM suggestions s WHERE s.id = ANY($1::uuid[])"
#: the primary key
LOCK_SUGGESTION: Final = f"SELECT {_COLUMNS} FROM suggestions s WHERE s.id = $1 FOR UPDATE"
#: the table, all of it; for each that was decided, the primary key of jobs
PRUNE: Final = """
    DELETE FROM suggestions WHERE decided_at < $1 AND (status = 'withdrawn' OR NOT EXISTS (
        SELECT 1 FROM jobs j WHERE j.id = suggestions.job_id AND j.deleted_at IS NULL))"""


def list_statement(only: SuggestionFilter) -> tuple[str, list[object]]:
    """Return the statement for a list: it reads one index backwards.

    That is suggestions_of_job, suggestions_of_agent, suggestions_waiting or suggestions_of_workspace.
    """
    args: list[object] = [only.workspace]
    where = ["s.workspace = $1"]

    def add(condition: str, value: object) -> None:
        args.append(value)
        where.append(condition.format(f"${len(args)}"))

    if only.agent is not None:
        add("s.agent = {}", only.agent)
    if only.job is not None:
        add("s.job_id = {}" if is_id(only.job) else "s.job_name = {}", only.job)
    if only.before is not None:
        add("s.id < {}", only.before)
    if only.statuses:
        named = ", ".join(f"'{status}'" for status in only.statuses)
        where.append(f"s.status = {named}" if len(only.statuses) == 1 else f"s.status IN ({named})")
    args.append(only.limit)
    return (
        f"SELECT {_COLUMNS} FROM suggestions s WHERE {' AND '.join(where)} "
        f"ORDER BY s.id DESC LIMIT ${len(args)}"
    ), args


async def suggestion(session: Session, workspace: str, suggestion_id: str) -> Suggestion | None:
    """Return the suggestion of that id."""
    row = await session.row(SUGGESTION, suggestion_id, workspace) if is_id(suggestion_id) else None
    return None if row is None else _suggestion(row)


async def by_ids(session: Session, ids: Sequence[str]) -> list[Suggestion]:
    """Return those of these suggestions that exist."""
    return list(map(_suggestion, await session.rows(BY_IDS, list(ids)))) if ids else []


async def suggestions(session: Session, only: SuggestionFilter) -> list[Suggestion]:
    """Return the suggestions that match, newest first."""
    if only.before is not None and not is_id(only.before):
        return []
    statement, args = list_statement(only)
    return list(map(_suggestion, await session.rows(statement, *args)))


async def write(session: Session, changed: Sequence[Suggestion]) -> list[str]:
    """Add suggestions, or change open ones of the same id. Returns the ids of those that were written."""
    written = []
    for each in changed:  # few: most analyses change none
        refreshed = await session.execute(REFRESH, each.id, *each[_FIRST:])
        if refreshed or await session.execute(ADD, *each):
            written.append(each.id)
    return written


async def change(
    session: Session,
    workspace: str,
    suggestion_id: str,
    decide: Callable[[Suggestion], Suggestion | None],
) -> tuple[Suggestion | None, bool]:
    """Lock the suggestion and write what `decide` returns. Returns it, and whether it was written."""
    old = await _lock(session, suggestion_id)
    if old is None or old.workspace != workspace:
        return None, False
    new = decide(old)
    if new is None:
        return old, False
    await session.execute(CHANGE, new.id, *new[_FIRST:])
    return new, True


async def lock(session: Session, decision: SuggestionDecision) -> Suggestion:
    """Lock the suggestion that a change of a job is about."""
    found = await _lock(session, decision.suggestion_id)
    if found is None:
        raise NotFound("the suggestion was deleted meanwhile")
    return found


async def decide(session: Session, decision: SuggestionDecision, locked: Suggestion, job: JobRow) -> None:
    """Write the suggestion after its job was changed."""
    new = decision.decide(locked, job)
    await session.execute(CHANGE, locked.id, *new[_FIRST:])


async def prune(session: Session, before_ms: int) -> None:
    """Delete old suggestions that no longer matter."""
    await session.execute(PRUNE, before_ms)


async def _lock(session: Session, suggestion_id: str) -> Suggestion | None:
    row = await session.row(LOCK_SUGGESTION, suggestion_id) if is_id(suggestion_id) else None
    return None if row is None else _suggestion(row)


def _suggestion(row: Row) -> Suggestion:
    return Suggestion(*row)
