"""Which Jobs of an executor are of current attempts. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from wakeful.remote.kubernetes.states import JobView


class Attempt(NamedTuple):
    """One attempt of a run."""

    run_id: str
    number: int


def current_attempts(jobs: Iterable[JobView]) -> dict[Attempt, JobView]:
    """Return the Job of the last attempt of each run.

    >>> [job.name for job in current_attempts([JobView("a-1", "a", 1), JobView("a-2", "a", 2)]).values()]
    ['a-2']
    """
    last: dict[str, JobView] = {}
    for job in jobs:
        if job.run_id not in last or last[job.run_id].attempt < job.attempt:
            last[job.run_id] = job
    return {Attempt(job.run_id, job.attempt): job for job in last.values()}


def outdated(jobs: list[JobView]) -> list[JobView]:
    """Return the Jobs whose run has a Job of a later attempt.

    >>> [job.name for job in outdated([JobView("a-1", "a", 1), JobView("a-2", "a", 2)])]
    ['a-1']
    """
    current = current_attempts(jobs)
    return [job for job in jobs if Attempt(job.run_id, job.attempt) not in current]
