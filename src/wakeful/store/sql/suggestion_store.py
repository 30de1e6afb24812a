"""The facade for suggestions, and for the summaries of runs that they follow from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from wakeful.evolution_rules import RunSummary
from wakeful.store.audit import AuditEntry, written
from wakeful.store.sql import run_summaries, suggestions
from wakeful.store.sql.base import Recorded, SqlBase
from wakeful.store.suggestions import SuggestionFilter
from wakeful.suggestion import Suggestion

D = TypeVar("D")


class SqlSuggestions(SqlBase[D]):
    """Suggestions in an SQL database. Each method is that of `port.Store`."""

    async def suggestion(self, workspace: str, suggestion_id: str) -> Suggestion | None:
        return await self._read(suggestions.suggestion, workspace, suggestion_id)

    async def suggestions(self, only: SuggestionFilter) -> list[Suggestion]:
        return await self._read(suggestions.suggestions, only)

    async def write_suggestions(self, changed: Sequence[Suggestion]) -> None:
        if changed:
            await self._driver.write(self._shared(suggestions.write), changed)

    async def change_suggestion(
        self,
        workspace: str,
        suggestion_id: str,
        change: Callable[[Suggestion], Suggestion | None],
        entries: Sequence[AuditEntry] = (),
    ) -> Suggestion | None:
        recorded: Recorded[tuple[Suggestion | None, bool]] = Recorded(entries, written)
        write = self._shared(suggestions.change)
        found, _ = await self._record(recorded, write, workspace, suggestion_id, change)
        return found

    async def run_summaries(
        self, job_ids: Sequence[str], since_ms: int, peak_jobs: int
    ) -> Mapping[str, RunSummary]:
        if not job_ids:
            return {}
        read = run_summaries.run_summaries
        return await self._read(read, self._driver.kind, job_ids, since_ms, peak_jobs)

    async def prune_suggestions(self, before_ms: int) -> None:
        await self._driver.write(self._shared(suggestions.prune), before_ms)
