"""The suggestions of a workspace: their methods, implemented by requests to a server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from wakeful.model import Page, Suggestion
from wakeful.model.codec import from_json, page_from_json

if TYPE_CHECKING:
    from wakeful.client.rest import RestClient


class Suggestions:
    """The suggestions of a workspace: `client.suggestions`.

    They are better settings for jobs, of agents with `evolution: suggest`.
    """

    def __init__(self, rest: RestClient) -> None:
        self._rest = rest

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
        page = await self._rest.list_suggestions(
            status=",".join(statuses) or None, agent=agent, job=job, limit=limit, cursor=cursor
        )
        return page_from_json(Suggestion, page)

    async def get(self, suggestion_id: str) -> Suggestion:
        """Return a suggestion, or raise NotFound."""
        return from_json(Suggestion, await self._rest.get_suggestion(suggestion_id))

    async def apply(self, suggestion_id: str) -> Suggestion:
        """Change the job as suggested.

        FailedPrecondition: it is not open; or its job was changed since the analysis, and it is withdrawn.
        """
        return from_json(Suggestion, await self._rest.apply_suggestion(suggestion_id))

    async def dismiss(self, suggestion_id: str) -> Suggestion:
        """Dismiss an open suggestion: it returns only if its figure gets much worse, or its job is changed.

        Dismissing it again changes nothing. FailedPrecondition: it is neither open nor dismissed.
        """
        return from_json(Suggestion, await self._rest.dismiss_suggestion(suggestion_id))

    async def rollback(self, suggestion_id: str) -> Suggestion:
        """Give the job the settings back that it had before the suggestion was applied.

        FailedPrecondition: it is not applied, or its job was changed since.
        """
        return from_json(Suggestion, await self._rest.roll_back_suggestion(suggestion_id))
