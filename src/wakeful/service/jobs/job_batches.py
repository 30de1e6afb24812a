"""Requests with many new jobs: how many they may have, and how the errors of all of them are reported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from wakeful.errors import AlreadyExists, InvalidArgument, ItemError, PermissionDenied, WakefulError
from wakeful.job.job import InvalidChain, check_chain
from wakeful.store.port import Store
from wakeful.store.rows import JobRow
from wakeful.values.json_value import Json

#: How many jobs one request creates.
MAX_BATCH: Final = 10_000
#: The errors that one document of many can have.
DOCUMENT_ERRORS: Final = (InvalidArgument, PermissionDenied)
#: How many errors the message has; `errors` has all of them.
_SHOWN: Final = 20
_FIELD: Final = re.compile(r"[A-Za-z][\w.\[\]-]*")


def read_batch(document: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the documents of the jobs that a request creates.

    >>> read_batch({"jobs": [{"name": "digest"}]})
    [{'name': 'digest'}]
    """
    jobs = document.get("jobs")
    if not isinstance(jobs, list) or not 1 <= len(jobs) <= MAX_BATCH:
        raise InvalidArgument(f"jobs: write a list of 1 to {MAX_BATCH} jobs")
    return jobs


def check_owner(document: object, agent: str) -> None:
    """Raise InvalidArgument for a document that is no object, or that names another agent."""
    if not isinstance(document, Mapping):
        raise InvalidArgument("write an object with a name and a schedule")
    named = document.get("agentId", document.get("agent_id"))
    if named not in (None, agent):
        raise InvalidArgument(
            f"agentId: the job is one of '{agent[:64]}', and the document names another agent; a job stays "
            "with its agent"
        )


def split_error(index: int, error: WakefulError) -> list[tuple[ItemError, type[WakefulError]]]:
    """Return the errors of the document at this place, one for each line of the message.

    >>> split_error(7, InvalidArgument("name: it is empty"))[0][0]
    ItemError(index=7, field='name', code='invalid-argument', message='it is empty')
    """
    found = []
    for line in error.message.splitlines():
        field, colon, sentence = line.partition(": ")
        if colon and _FIELD.fullmatch(field):
            item = ItemError(index, field, error.code, sentence)
        else:
            item = ItemError(index, None, error.code, line)
        found.append((item, type(error)))
    return found


def join_errors(found: Iterable[tuple[ItemError, type[WakefulError]]]) -> WakefulError:
    """Return one error with all errors of the documents, of the class of the first.

    >>> found = split_error(2, InvalidArgument("name: it is empty")) + split_error(0, AlreadyExists("taken"))
    >>> join_errors(found)
    AlreadyExists('jobs[0]: taken\\njobs[2]: name: it is empty')
    """
    ordered = sorted(found, key=lambda each: each[0].index)
    errors = [item for item, _ in ordered]
    lines = [
        f"jobs[{each.index}]: {f'{each.field}: ' if each.field else ''}{each.message}"
        for each in errors[:_SHOWN]
    ]
    if len(errors) > _SHOWN:
        lines.append(f"and {len(errors) - _SHOWN} more errors")
    joined = ordered[0][1]("\n".join(lines))
    joined.errors = errors
    return joined


async def find_conflicts(
    store: Store, workspace: str, agent: str, rows: Mapping[int, JobRow]
) -> list[tuple[ItemError, type[WakefulError]]]:
    """Return the errors of new jobs of an agent, by their place: taken names, and chains without an end."""
    found: list[tuple[ItemError, type[WakefulError]]] = []
    names = [row.name for row in rows.values()]
    taken = await store.taken_names(workspace, agent, names)
    first: dict[str, int] = {}
    for index, row in rows.items():
        if row.name in taken:
            found += split_error(
                index, AlreadyExists(f"name: agent '{agent}' already has a job '{row.name}'")
            )
        elif first.setdefault(row.name, index) != index:
            found += split_error(
                index, AlreadyExists(f"name: jobs[{first[row.name]}] has the name '{row.name}' too")
            )
    chained = {index: row for index, row in rows.items() if row.after_job is not None}
    if chained:
        wanted = sorted({row.after_job for row in chained.values() if row.after_job is not None})
        after = {
            **await store.jobs_before(workspace, agent, wanted),
            **{row.name: row.after_job for row in rows.values()},
        }
        for index, row in chained.items():
            try:
                check_chain(row.name, after)
            except InvalidChain as error:
                found += split_error(index, error)
    return found


def describe_batch(rows: Iterable[JobRow]) -> dict[str, Json]:
    """Return what the audit log says of jobs that were created together."""
    names: list[Json] = [row.name for row in rows]
    return {"count": len(names), "jobs": names}
