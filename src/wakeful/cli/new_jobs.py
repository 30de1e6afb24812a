"""Many new jobs of a file: checked and created in few requests. The jobs that exist have one request each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from wakeful.cli.concurrency import for_each, raise_if_unreachable
from wakeful.cli.session import CliSession
from wakeful.client.connection import error_of_code
from wakeful.client.types import JobShape
from wakeful.errors import AlreadyExists, ItemError, WakefulError
from wakeful.values.json_value import Json, compact

#: How many jobs, and how many bytes, a request has: less than it may have, so that progress is visible.
_JOBS: Final = 1_000
_BYTES: Final = 4 * 1024 * 1024


class _Document(Protocol):
    """A job of a file."""

    @property
    def agent(self) -> str: ...
    @property
    def document(self) -> dict[str, Json]: ...


J = TypeVar("J", bound=_Document)


def group_new_jobs(jobs: Sequence[J]) -> Iterator[list[J]]:
    """Return new jobs in groups that one request can create: of one agent, two at least."""
    by_agent: dict[str, list[J]] = {}
    for job in jobs:
        by_agent.setdefault(job.agent, []).append(job)
    for several in by_agent.values():
        group: list[J] = []
        size = 0
        for job in several:
            length = len(compact(job.document).encode(errors="replace"))
            if len(group) == _JOBS or size + length > _BYTES:
                yield from ([group] if len(group) > 1 else ())
                group, size = [], 0
            group.append(job)
            size += length
        yield from ([group] if len(group) > 1 else ())


async def create_together(s: CliSession, group: Sequence[_Document]) -> list[JobShape] | None:
    """Create a group of new jobs. None: nothing was created, since the server refuses one of them at least.

    Each of them can be saved alone then: another program may have created one meanwhile, or a quota is left
    for some. The jobs of the result have only their names, their secrets and their warnings.
    """
    try:
        documents = [each.document for each in group]
        return await s.client.create_jobs(group[0].agent, jobs=documents, brief=True)
    except WakefulError as error:
        raise_if_unreachable([error])
        return None


async def check_documents(
    s: CliSession, jobs: Sequence[J], is_new: Callable[[J], bool]
) -> tuple[list[tuple[J, JobShape]], list[tuple[J, WakefulError]]]:
    """Have the server check the documents of jobs.

    Return the jobs that exist, as they would be saved, and those that it refuses, in their order. A server of
    an earlier version does not say how they would be saved.
    """
    refused: dict[int, WakefulError] = {}
    left = {id(job): job for job in jobs}
    with s.out.show_progress("checking", len(jobs)) as step:
        for group in group_new_jobs([job for job in jobs if is_new(job)]):
            checked = await _check_group(s, group)
            refused |= {job: error for job, error in checked.items() if error is not None}
            left = {job: each for job, each in left.items() if job not in checked}
            step(len(checked))
        checked_alone, failed = await for_each(
            [*left.values()], lambda job: s.client.check_job(job.agent, job.document), step
        )
    raise_if_unreachable(error for _, error in failed)
    refused |= {id(job): error for job, error in failed}
    would_be = [(job, checked) for job, checked in checked_alone if checked is not None]
    return would_be, [(job, refused[id(job)]) for job in jobs if id(job) in refused]


async def _check_group(s: CliSession, group: Sequence[_Document]) -> Mapping[int, WakefulError | None]:
    """Return the error, or none, of each job that was checked with the others, by its `id`.

    One whose name is taken meanwhile is not among them: it is checked as a change.
    """
    checked: dict[int, WakefulError | None] = {id(each): None for each in group}
    try:
        documents = [each.document for each in group]
        await s.client.create_jobs(group[0].agent, jobs=documents, dry_run=True)
    except WakefulError as error:
        raise_if_unreachable([error])
        found: dict[int, list[ItemError]] = {}
        for item in error.errors:
            if 0 <= item.index < len(group):
                found.setdefault(item.index, []).append(item)
        if not found:  # a server of an earlier version: each is checked alone
            return {}
        for index, items in found.items():
            if any(item.code == AlreadyExists.code for item in items):
                del checked[id(group[index])]
            else:
                lines = [f"{item.field}: {item.message}" if item.field else item.message for item in items]
                checked[id(group[index])] = error_of_code(items[0].code)("\n".join(lines))
    return checked
