"""The suggestions of a workspace, as `app.suggestions` and the clients offer them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from wakeful.model import Page, Suggestion


class SuggestionsApi(Protocol):
    """The suggestions of a workspace: better settings for jobs, of agents with `evolution: suggest`."""

    async def list(
        self,
        *,
        statuses: Iterable[str] = (),
        agent: str | None = None,
        job: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Suggestion]:
        """Return suggestions, newest first; `job` is a name or an id, `cursor` is that of the previous page.

        Statuses: `open`, `applied`, `dismissed`, `rolled_back`, `withdrawn`.
        """
        ...

    async def get(self, suggestion_id: str) -> Suggestion:
        """Return a suggestion, or raise NotFound."""
        ...

    async def apply(self, suggestion_id: str) -> Suggestion:
        """Change the job as suggested.

        FailedPrecondition: it is not open; or its job was changed since the analysis, and it is withdrawn.
        """
        ...

    async def dismiss(self, suggestion_id: str) -> Suggestion:
        """Dismiss an open suggestion: it returns only if its figure gets much worse, or its job is changed.

        Dismissing it again changes nothing. FailedPrecondition: it is neither open nor dismissed.
        """
        ...

    async def rollback(self, suggestion_id: str) -> Suggestion:
        """Give the job the settings back that it had before the suggestion was applied.

        FailedPrecondition: it is not applied, or its job was changed since.
        """
        ...
