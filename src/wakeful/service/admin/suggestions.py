"""Suggestions: read them, apply, dismiss and roll them back. A person decides, never an agent's key."""

from __future__ import annotations

import builtins
import json
from collections.abc import Mapping, Sequence
from typing import Final

from wakeful.errors import FailedPrecondition, NotFound
from wakeful.evolution.suggestion import SUGGESTION_STATUSES, Suggestion, SuggestionStatus
from wakeful.service.auth.access import Action, Principal, visible_agent
from wakeful.service.auth.accounts import Accounts
from wakeful.service.filters import check_choices
from wakeful.service.jobs.job_editor import SuggestionEdit
from wakeful.service.jobs.jobs import JobService
from wakeful.service.row_codec import instant
from wakeful.store.port import Store
from wakeful.store.rows import JobRow
from wakeful.store.sql.suggestions import SuggestionDecision, SuggestionFilter
from wakeful.values.json_value import Json, compact

#: Wakeful itself, when it rolls back a suggestion.
WAKEFUL: Final = Principal("wakeful", "admin", None)


class SuggestionService:
    """Reads suggestions and carries out what a person decides."""

    def __init__(self, store: Store, accounts: Accounts, jobs: JobService) -> None:
        self._store = store
        self._accounts = accounts
        self._jobs = jobs

    async def get(self, principal: Principal, workspace: str, suggestion_id: str) -> Suggestion:
        """Return the suggestion of that id, or raise NotFound."""
        return await self._one(principal, "read", workspace, suggestion_id)

    async def list(
        self,
        principal: Principal,
        workspace: str,
        *,
        agent: str | None = None,
        job: str | None = None,
        statuses: Sequence[str] = (),
        before: str | None = None,
        limit: int = 50,
    ) -> builtins.list[Suggestion]:
        """List suggestions, newest first; `job` is a name or an id.

        `before` is the id of the last suggestion of the previous page.
        """
        await self._accounts.authorize(principal, "read", workspace, agent)
        check_choices("status", statuses, SUGGESTION_STATUSES)
        visible = visible_agent(principal, agent)
        found = await self._store.suggestions(
            SuggestionFilter(workspace, visible, job, tuple(statuses), before, limit)
        )
        if not found:
            await self._accounts.check_agent(principal, workspace, agent)
        await self._accounts.names.load(each.decided_by for each in found)
        return found

    async def apply(self, principal: Principal, workspace: str, suggestion_id: str) -> Suggestion:
        """Change the job as suggested.

        FailedPrecondition: it is not open; or its job was changed since the analysis, and it is withdrawn.
        """
        found = await self._one(principal, "suggestion.decide", workspace, suggestion_id)
        _check_status(found, "open", "applied")
        job = await self._store.job_by_id(found.job_id)
        if job is None or job.version != found.job_version:
            await self._withdraw(found)
            what = "deleted" if job is None else "changed"
            raise FailedPrecondition(
                f"job '{found.job_name}' was {what} since it was analyzed, so the suggestion is withdrawn; "
                "the next analysis looks at it again"
            )
        return await self._edit(principal, found, "apply", "open", "applied", json.loads(found.change))

    async def rollback(
        self, principal: Principal, workspace: str, suggestion_id: str, evaluation: str | None = None
    ) -> Suggestion:
        """Give the job the settings back that it had before the suggestion was applied.

        `evaluation` is why, for an automatic rollback. FailedPrecondition: it is not applied, or its job was
        changed since.
        """
        found = await self._one(principal, "suggestion.decide", workspace, suggestion_id)
        _check_status(found, "applied", "rolled back")
        job = await self._store.job_by_id(found.job_id)
        if job is None or job.version != found.job_version:
            what = "deleted" if job is None else "changed"
            raise FailedPrecondition(
                f"job '{found.job_name}' was {what} since the suggestion was applied, so it cannot be rolled "
                "back; change the job instead"
            )
        before = json.loads(found.before)
        return await self._edit(principal, found, "rollback", "applied", "rolled_back", before, evaluation)

    async def dismiss(self, principal: Principal, workspace: str, suggestion_id: str) -> Suggestion:
        """Dismiss an open suggestion: it does not return until its figure is much worse, or the job changed.

        Dismissing it again changes nothing.
        """
        found = await self._one(principal, "suggestion.decide", workspace, suggestion_id)
        now_ms = self._store.clock.now_ms()

        def change(old: Suggestion) -> Suggestion | None:
            if old.status == "dismissed":
                return None
            _check_status(old, "open", "dismissed")
            return old._replace(status="dismissed", decided_ms=now_ms, decided_by=principal.actor)

        entry = principal.entry(workspace, "suggestion.dismiss", _subject(found), _details(found))
        changed = await self._store.change_suggestion(workspace, suggestion_id, change, [entry])
        if changed is None:
            raise _no_suggestion(suggestion_id)
        return changed

    async def _edit(
        self,
        principal: Principal,
        found: Suggestion,
        verb: str,
        expected: SuggestionStatus,
        status: SuggestionStatus,
        patch: Mapping[str, Json],
        evaluation: str | None = None,
    ) -> Suggestion:
        """Change the job and the suggestion in one transaction."""
        written: builtins.list[Suggestion] = []

        def decide(locked: Suggestion, job: JobRow) -> Suggestion:
            _check_status(locked, expected, status.replace("_", " "))
            new = locked._replace(
                status=status,
                job_version=job.version,
                decided_ms=job.updated_ms,
                decided_by=principal.actor,
            )
            if evaluation is not None:
                new = new._replace(evaluated_ms=job.updated_ms, evaluation=evaluation)
            written[:] = [new]
            return new

        entry = principal.entry(
            found.workspace, f"suggestion.{verb}", _subject(found), _details(found, dict(patch))
        )
        await self._jobs.update(
            principal,
            found.workspace,
            found.agent,
            found.job_id,
            patch,
            version=found.job_version,
            suggestion=SuggestionEdit(SuggestionDecision(found.id, decide), entry),
        )
        return written[0]

    async def _withdraw(self, found: Suggestion) -> None:
        now_ms = self._store.clock.now_ms()

        def change(old: Suggestion) -> Suggestion | None:
            return old._replace(status="withdrawn", decided_ms=now_ms) if old.status == "open" else None

        await self._store.change_suggestion(found.workspace, found.id, change)

    async def _one(
        self, principal: Principal, action: Action, workspace: str, suggestion_id: str
    ) -> Suggestion:
        await self._accounts.authorize(principal, "read", workspace)
        found = await self._store.suggestion(workspace, suggestion_id)
        if found is None or (principal.role == "agent" and found.agent != principal.agent):
            raise _no_suggestion(suggestion_id)
        await self._accounts.authorize(principal, action, workspace, found.agent)
        await self._accounts.names.load((found.decided_by,))
        return found


def _check_status(suggestion: Suggestion, expected: SuggestionStatus, verb: str) -> None:
    if suggestion.status != expected:
        since = f" since {instant(suggestion.decided_ms)}" if suggestion.decided_ms is not None else ""
        status = suggestion.status.replace("_", " ")
        raise FailedPrecondition(
            f"suggestion {suggestion.id} is {status}{since}; only an {expected} one can be {verb}"
        )


def _subject(suggestion: Suggestion) -> str:
    return f"{suggestion.agent}/{suggestion.job_name}"


def _details(suggestion: Suggestion, patch: Json = None) -> str:
    details: dict[str, Json] = {"suggestion": suggestion.id, "rule": suggestion.rule}
    return compact({**details, **({} if patch is None else {"change": patch})})


def _no_suggestion(suggestion_id: str) -> NotFound:
    return NotFound(f"no suggestion '{suggestion_id[:64]}'; list the suggestions to see their ids")
