"""The facade for suggestions, and for the summaries of runs that they follow from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from wakeful.duration import DAY, WEEK
from wakeful.evolution.rules import RunSummary
from wakeful.evolution.suggestion import Suggestion
from wakeful.store.audit import AuditEntry, written
from wakeful.store.changelog import TransactionEvents
from wakeful.store.sql import run_summaries, suggestions
from wakeful.store.sql.base import Recorded, SqlBase
from wakeful.store.suggestions import SuggestionFilter

D = TypeVar("D")

#: How much of the runs one statement reads: those of so much time, or of so many jobs.
_SLICE_MS: Final = WEEK
_JOBS_AT_ONCE: Final = 10


class SqlSuggestions(SqlBase[D]):
    """Suggestions in an SQL database. Each method is that of `port.Store`."""

    async def suggestion(self, workspace: str, suggestion_id: str) -> Suggestion | None:
        return await self._read(suggestions.suggestion, workspace, suggestion_id)

    async def suggestions(self, only: SuggestionFilter) -> list[Suggestion]:
        return await self._read(suggestions.suggestions, only)

    async def suggestions_by_ids(self, ids: Sequence[str]) -> list[Suggestion]:
        return await self._read(suggestions.by_ids, ids)

    async def write_suggestions(self, changed: Sequence[Suggestion]) -> None:
        async def write(db: D, events: TransactionEvents) -> None:
            events.suggested(await suggestions.write(self._driver.session(db), changed))

        if changed:
            await self._driver.write(write)

    async def change_suggestion(
        self,
        workspace: str,
        suggestion_id: str,
        change: Callable[[Suggestion], Suggestion | None],
        entries: Sequence[AuditEntry] = (),
    ) -> Suggestion | None:
        recorded: Recorded[tuple[Suggestion | None, bool]] = Recorded(entries, written)

        async def write(db: D, events: TransactionEvents) -> tuple[Suggestion | None, bool]:
            session = self._driver.session(db)
            found, changed = await suggestions.change(session, workspace, suggestion_id, change)
            if changed:
                events.suggested([suggestion_id])
            return found, changed

        found, _ = await self._record(recorded, write)
        return found

    async def run_summaries(
        self, job_ids: Sequence[str], since_ms: int, peak_jobs: int
    ) -> Mapping[str, RunSummary]:
        kind, end_ms = self._driver.kind, self.clock.now_ms() + DAY
        totals: dict[str, run_summaries.Totals] = {}
        for first_ms in range(since_ms, end_ms, _SLICE_MS) if job_ids else ():
            between = first_ms, min(first_ms + _SLICE_MS, end_ms)
            await self._read(run_summaries.add_slice, kind, job_ids, between, peak_jobs, totals)
        found: dict[str, int] = {}
        overlapped = [job_id for job_id, total in totals.items() if total.counts[1]]
        for first in range(0, len(overlapped), _JOBS_AT_ONCE):
            ids = overlapped[first : first + _JOBS_AT_ONCE]
            found.update(await self._read(run_summaries.read_durations, kind, ids, (since_ms, end_ms)))
        return {job_id: total.summary(found.get(job_id)) for job_id, total in totals.items()}

    async def prune_suggestions(self, before_ms: int) -> None:
        await self._driver.write(self._shared(suggestions.prune), before_ms)
