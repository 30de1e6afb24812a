"""Find jobs, agents and runs by what a person types: for the command palette and other searches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from wakeful.errors import InvalidArgument
from wakeful.job.job import JobRecord
from wakeful.service.auth.access import Principal
from wakeful.service.jobs.job_query import read_job_query
from wakeful.service.jobs.jobs import JobService
from wakeful.service.runs.runs import RunService
from wakeful.store.port import Store
from wakeful.store.row_mapping import job_from_row
from wakeful.store.rows import JobFilter, RunView

#: How many of each kind are found.
FOUND: Final = 8
_RUNS: Final = 5
#: The beginning of an id, or a whole one: eight digits and more.
_ID: Final = re.compile(r"[0-9a-f]{8}-?[0-9a-f-]*")
_DIGITS: Final = 32


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What was found."""

    jobs: Sequence[JobRecord]
    agents: Sequence[str]
    runs: Sequence[RunView]


class SearchService:
    """Searches what the principal sees."""

    def __init__(self, store: Store, jobs: JobService, runs: RunService) -> None:
        self._store = store
        self._jobs = jobs
        self._runs = runs

    async def search(self, principal: Principal, workspace: str, text: str) -> SearchResult:
        """Return jobs and agents whose names have the text, and runs whose ids begin with it.

        Jobs whose whole name is the text come first.
        """
        query = read_job_query({"q": text})
        jobs = await self._jobs.list(principal, workspace, query=query, limit=FOUND)
        named = await self._find_jobs(principal, workspace, query.q or "")
        known = {job.id for job in named}
        return SearchResult(
            [*named, *(job for job in jobs if job.id not in known)][:FOUND],
            await self._agents(principal, workspace, query.q or ""),
            await self._find_runs(principal, workspace, query.q or ""),
        )

    async def _find_jobs(self, principal: Principal, workspace: str, text: str) -> list[JobRecord]:
        """Return the jobs of this name, or `agent/name`; there may be many others that have the text."""
        agent, slash, name = text.rpartition("/")
        if not name or (slash and principal.agent not in (None, agent)):
            return []
        only = JobFilter(workspace, agent if slash else principal.agent, name=name, limit=FOUND)
        found: list[JobRecord] = []
        for row in await self._store.jobs(only):
            with suppress(InvalidArgument):  # one that cannot be read is left out, as in the list
                found.append(job_from_row(row))
        return found

    async def _agents(self, principal: Principal, workspace: str, text: str) -> list[str]:
        if principal.agent is not None:
            return [principal.agent] if text in principal.agent else []
        return [row.name for row in await self._store.agents_page(workspace, None, FOUND, text)]

    async def _find_runs(self, principal: Principal, workspace: str, text: str) -> Sequence[RunView]:
        bounds = id_range(text)
        if bounds is None:
            return ()
        first, last = bounds
        return await self._runs.list(principal, workspace, since=first, before=last, limit=_RUNS)


def id_range(text: str) -> tuple[str, str] | None:
    """Return the first and the last id that begin with a text; None if it is no beginning of an id.

    >>> id_range("01a1e3b0-5a")
    ('01a1e3b0-5a00-0000-0000-000000000000', '01a1e3b0-5aff-ffff-ffff-ffffffffffff')
    >>> id_range("report")
    """
    digits = text.replace("-", "")
    if not _ID.fullmatch(text) or len(digits) > _DIGITS:
        return None
    # The last id is a bound that is not included: of a whole id, the next one.
    first = digits.ljust(_DIGITS, "0")
    last = digits.ljust(_DIGITS, "f") if len(digits) < _DIGITS else f"{int(digits, 16) + 1:032x}"[-_DIGITS:]
    return _as_id(first), _as_id(last)


def _as_id(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
