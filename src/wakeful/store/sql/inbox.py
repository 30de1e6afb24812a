"""The inbox: what waits for a person (`wakeful.run.inbox`), read from the tables that say so.

Each kind has one index that holds only what may wait, in the order of the list, and one statement. So a page
takes four statements, and the counts take one, however much waits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple

from wakeful.job.self_scheduling import APPROVAL
from wakeful.run.inbox import COUNTED, INBOX_KINDS, MAX_DETAIL, InboxKind, InboxRow
from wakeful.store.sql.base import SqlBase, reads
from wakeful.store.sql.driver import SqlSession, Statement, Texts
from wakeful.store.sql.runs import IS_MANUAL, IS_VERIFIED
from wakeful.values.ids import is_id

_HINT: Final = re.compile(r"/\*\+ INDEXED BY \w+ \*/")


class InboxFilter(NamedTuple):
    """Which items to list; None does not filter."""

    workspace: str
    agent: str | None = None
    kinds: tuple[InboxKind, ...] = INBOX_KINDS
    #: only items that come after this position: since when, and the id of what it is about
    after: tuple[int, str] | None = None
    limit: int = 50


class _Source(NamedTuple):
    """Where the items of a kind are."""

    columns: str
    #: the tables, and the condition. `{after}` is that on the position, or nothing
    tables: Statement
    where: Statement
    agent: str
    #: since when, and the id: the order of its index after the workspace
    order: tuple[str, str]


_SOURCES: Final[Mapping[InboxKind, _Source]] = {
    # verifications_inbox: a part of it, backwards; the primary key of runs for each. PostgreSQL would expect
    # that few of them wait, and sort all: it does not look into what has OFFSET
    "verification": _Source(
        "v.run_id::text, v.workspace, r.agent, r.job_id::text, r.job_name, v.run_id::text, v.at, v.due_at, "
        f"v.attempt, substr(r.output, 1, {MAX_DETAIL}), NULL, NULL",
        Texts(
            sqlite="verifications v /*+ INDEXED BY verifications_inbox */ "
            "/*+ CROSS */ JOIN runs r ON r.id = v.run_id",
            postgresql=f"""(
                SELECT v.*, {IS_MANUAL.postgresql} AS manual FROM verifications v
                WHERE v.workspace = $1{{after}} ORDER BY v.at DESC, v.run_id DESC OFFSET 0) v
            CROSS JOIN LATERAL (
                SELECT r.agent, r.job_id, r.job_name, r.output, {IS_VERIFIED} AS verified
                FROM runs r WHERE r.id = v.run_id OFFSET 0) r""",
        ),
        Texts(
            sqlite=f"v.workspace = $1 AND {IS_MANUAL.sqlite} AND {IS_VERIFIED}{{after}}",
            postgresql="v.manual AND r.verified",
        ),
        "r.agent",
        ("v.at", "v.run_id"),
    ),
    # jobs_inbox: a part of it, backwards
    "approval": _Source(
        "j.id::text, j.workspace, j.agent, j.id::text, j.name, NULL, j.updated_at, NULL, j.version, "
        f"substr(j.description, 1, {MAX_DETAIL}), NULL, NULL",
        "jobs j /*+ INDEXED BY jobs_inbox */",
        f"j.workspace = $1 AND j.disabled_reason = '{APPROVAL}' AND j.deleted_at IS NULL{{after}}",
        "j.agent",
        ("j.updated_at", "j.id"),
    ),
    # suggestions_inbox: a part of it, backwards
    "suggestion": _Source(
        "s.id::text, s.workspace, s.agent, s.job_id::text, s.job_name, NULL, s.created_at, NULL, "
        "s.job_version, s.figures, s.rule, s.change",
        "suggestions s /*+ INDEXED BY suggestions_inbox */",
        "s.workspace = $1 AND s.status = 'open'{after}",
        "s.agent",
        ("s.created_at", "s.id"),
    ),
    # job_incidents_inbox: a part of it, backwards
    "incident": _Source(
        "i.id::text, i.workspace, i.agent, i.job_id::text, i.job_name, i.last_run_id::text, i.opened_at, "
        f"NULL, NULL, substr(i.error, 1, {MAX_DETAIL}), i.cause, NULL",
        "job_incidents i /*+ INDEXED BY job_incidents_inbox */",
        "i.workspace = $1 AND i.closed_at IS NULL AND i.acknowledged_at IS NULL{after}",
        "i.agent",
        ("i.opened_at", "i.id"),
    ),
}


def by_ids_statement(kind: InboxKind) -> Statement:
    """Return the statement that reads items of a kind by the ids of what they are about: the primary keys."""
    source = _SOURCES[kind]
    workspace, id_ = f"{source.order[1][:1]}.workspace = $1", f"{source.order[1]} = ANY($1::uuid[])"
    texts = _select(source, source.columns, "")
    return Texts(*(_HINT.sub("", text.replace(workspace, id_)) for text in texts))


def _select(source: _Source, columns: str, more: str, after: str = "") -> Texts:
    """Return `SELECT columns … WHERE … more`, for each database."""
    tables, where = (each if isinstance(each, Texts) else Texts(each, each) for each in source[1:3])
    texts = (
        f"SELECT {columns} FROM {table} WHERE {condition}{more}"
        for table, condition in zip(tables, where, strict=True)
    )
    return Texts(*(text.replace("{after}", after) for text in texts))


def list_statement(kind: InboxKind, only: InboxFilter) -> tuple[Statement, list[object]]:
    """Return the statement that lists the items of a kind, newest first, and its parameters."""
    source = _SOURCES[kind]
    given: list[object] = [only.workspace, only.limit]
    more, after = "", ""
    if only.agent is not None:
        given.append(only.agent)
        more += f" AND {source.agent} = ${len(given)}"
    if only.after is not None:
        given += only.after
        after = f" AND ({', '.join(source.order)}) < (${len(given) - 1}, ${len(given)})"
    order = ", ".join(f"{column} DESC" for column in source.order)
    return _select(source, source.columns, f"{more} ORDER BY {order} LIMIT $2", after), given


def count_statement(*, of_agent: bool) -> Statement:
    """Return the statement that counts the items of each kind, up to `$2`, of a workspace or an agent."""
    found = [
        _select(source, "1", f"{f' AND {source.agent} = $3' if of_agent else ''} LIMIT $2")
        for source in map(_SOURCES.__getitem__, INBOX_KINDS)
    ]
    counts = [
        ", ".join(f"(SELECT count(*) FROM ({each}) n)" for each in texts)
        for texts in zip(*found, strict=True)
    ]
    return Texts(*(f"SELECT {each}" for each in counts))


async def inbox(session: SqlSession, only: InboxFilter) -> list[InboxRow]:
    """Return what waits for a person, newest first."""
    if only.after is not None and not is_id(only.after[1]):
        return []
    found = []
    for kind in only.kinds:
        statement, args = list_statement(kind, only)
        found.append([InboxRow(kind, *row) for row in await session.rows(statement, *args)])
    newest_first = merge(*found, key=lambda row: row.position, reverse=True)
    return list(islice(newest_first, only.limit))


async def inbox_items(session: SqlSession, ids: Mapping[InboxKind, Sequence[str]]) -> list[InboxRow]:
    """Return those that wait of these runs, jobs, suggestions and incidents, in any order."""
    found = []
    for kind, chosen in ids.items():
        if chosen:
            rows = await session.rows(by_ids_statement(kind), list(chosen))
            found += [InboxRow(kind, *row) for row in rows]
    return found


async def count_inbox(session: SqlSession, workspace: str, agent: str | None = None) -> dict[str, int]:
    """Return how much of each kind waits for a person, each up to `COUNTED`."""
    given = (workspace, COUNTED) if agent is None else (workspace, COUNTED, agent)
    row = await session.row(count_statement(of_agent=agent is not None), *given)
    return dict(zip(INBOX_KINDS, map(int, row or ()), strict=True))


class SqlInbox(SqlBase):
    """The inbox."""

    inbox = reads(inbox)
    inbox_items = reads(inbox_items)
    inbox_counts = reads(count_inbox)
