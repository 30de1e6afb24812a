"""Suggestions for jobs (`wakeful.evolution.suggestion`), and the summaries of runs that they follow from.

`suggestions` has one row per suggestion. UNIQUE (job_id, rule) among open ones. A suggestion is applied and
rolled back in the transaction that changes its job (`JobStore.change_job`). It outlives its job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from wakeful.evolution.rules import RunSummary
from wakeful.evolution.suggestion import Suggestion
from wakeful.store.audit import AuditEntry
from wakeful.store.rows import JobRow

#: The jobs that analyze an agent and evaluate its suggestions, and the labels that mark them as internal.
ANALYSIS_JOB: Final = "wakeful-analysis"
EVALUATION_JOB: Final = "wakeful-evaluation"
EVOLUTION_LABELS: Final = '{"system":"evolution"}'


class SuggestionFilter(NamedTuple):
    """Which suggestions to list; None does not filter."""

    workspace: str
    agent: str | None = None
    #: the id or the name of a job
    job: str | None = None
    statuses: tuple[str, ...] = ()
    #: only suggestions with an id lower than this one: ids are in the order of creation
    before: str | None = None
    limit: int = 50


class SuggestionDecision(NamedTuple):
    """A change of a suggestion in the transaction that changes its job."""

    suggestion_id: str
    #: gets the locked suggestion, and the job afterwards; FailedPrecondition rolls everything back
    decide: Callable[[Suggestion, JobRow], Suggestion]


class SuggestionStore(Protocol):
    """The part of a store that holds suggestions."""

    async def suggestion(self, workspace: str, suggestion_id: str) -> Suggestion | None:
        """Return the suggestion of that id."""
        ...

    async def suggestions(self, only: SuggestionFilter) -> list[Suggestion]:
        """Return the suggestions that match, newest first."""
        ...

    async def suggestions_by_ids(self, ids: Sequence[str]) -> list[Suggestion]:
        """Return those of these suggestions that exist, in any order."""
        ...

    async def write_suggestions(self, changed: Sequence[Suggestion]) -> None:
        """Add suggestions, or give open ones of the same id these values. Others stay as they are.

        A second open suggestion of one rule for a job is not added.
        """
        ...

    async def change_suggestion(
        self,
        workspace: str,
        suggestion_id: str,
        change: Callable[[Suggestion], Suggestion | None],
        entries: Sequence[AuditEntry] = (),
    ) -> Suggestion | None:
        """Lock the suggestion and write what `change` returns; None leaves it. Returns it afterwards.

        Returns None if there is no such suggestion.
        """
        ...

    async def run_summaries(
        self, job_ids: Sequence[str], since_ms: int, peak_jobs: int
    ) -> Mapping[str, RunSummary]:
        """Return what the runs of these jobs amount to since then, and since each job was last changed.

        A peak is an instant at which so many of these jobs fire. Jobs without runs are left out. The database
        computes it, a week at a time: a row for each job is read, not the runs.
        """
        ...

    async def prune_suggestions(self, before_ms: int) -> None:
        """Delete suggestions that were withdrawn before then, or decided before then if their job is gone."""
        ...
