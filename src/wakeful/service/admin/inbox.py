"""The inbox: what waits for a person, and the decisions, each by the service of what it is about."""

from __future__ import annotations

import builtins
import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, cast

from wakeful.errors import FailedPrecondition, InvalidArgument
from wakeful.evolution.suggestion import RuleName, describe
from wakeful.run.inbox import (
    INBOX_ACTIONS,
    INBOX_KINDS,
    InboxAction,
    InboxKind,
    InboxRow,
    parse_item_id,
)
from wakeful.service.admin.incidents import IncidentService
from wakeful.service.admin.suggestions import SuggestionService
from wakeful.service.auth.access import MAY, Action, Principal, Role, check_person, visible_agent
from wakeful.service.auth.accounts import Accounts
from wakeful.service.filters import check_choices
from wakeful.service.jobs.jobs import JobService
from wakeful.service.runs.runs import MAX_REASON, RunService
from wakeful.store.port import Store
from wakeful.store.sql.inbox import InboxFilter

_PERMISSIONS: Final[Mapping[InboxKind, Action]] = {
    "verification": "verify",
    "approval": "job.write",
    "suggestion": "suggestion.decide",
    "incident": "incident.acknowledge",
}


class Decided(NamedTuple):
    """What a person decided."""

    id: str
    kind: InboxKind
    action: InboxAction
    #: of what it is about
    state: str


class InboxService:
    """Lists what waits for a person, and carries out what a person decides."""

    def __init__(
        self,
        store: Store,
        accounts: Accounts,
        jobs: JobService,
        runs: RunService,
        suggestions: SuggestionService,
        incidents: IncidentService,
    ) -> None:
        self._store = store
        self._accounts = accounts
        self._jobs = jobs
        self._runs = runs
        self._suggestions = suggestions
        self._incidents = incidents

    async def list(
        self,
        principal: Principal,
        workspace: str,
        *,
        kinds: Sequence[str] = (),
        agent: str | None = None,
        after: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> builtins.list[InboxRow]:
        """List what waits, newest first; `after` is the position of the last item of the previous page."""
        await self._accounts.authorize(principal, "read", workspace, agent)
        chosen = tuple(kind for kind in INBOX_KINDS if kind in kinds or not kinds)
        check_choices("kind", kinds, INBOX_KINDS)
        visible = visible_agent(principal, agent)
        found = await self._store.inbox(InboxFilter(workspace, visible, chosen, after, limit))
        if not found:
            await self._accounts.check_agent(principal, workspace, agent)
        return found

    async def counts(
        self, principal: Principal, workspace: str, *, agent: str | None = None
    ) -> Mapping[str, int]:
        """Return how much of each kind waits, each up to 1,000."""
        await self._accounts.authorize(principal, "read", workspace, agent)
        return await self._store.inbox_counts(workspace, visible_agent(principal, agent))

    async def decide(
        self,
        principal: Principal,
        workspace: str,
        item_id: str,
        action: InboxAction,
        *,
        reason: str | None = None,
        version: int | None = None,
    ) -> Decided:
        """Approve or reject what waits; a person decides.

        `version` is that of the item: what changed since is not decided. FailedPrecondition: it does not wait
        any more, such as after another person decided.
        """
        await self._accounts.authorize(principal, "read", workspace)
        kind, subject_id = parse_item_id(item_id)
        if reason is not None and len(reason) > MAX_REASON:
            raise InvalidArgument(f"reason: write at most {MAX_REASON} characters")
        check_person(principal, f"decide about '{item_id}'")
        if action not in INBOX_ACTIONS[kind]:
            raise InvalidArgument("an incident is approved, which acknowledges it; it cannot be rejected")
        approved = action == "approve"
        if kind == "verification":
            run = await self._runs.verify(
                principal, workspace, subject_id, approved, reason=reason, attempt=version
            )
            state = run.state
        elif kind == "approval":
            job = await self._jobs.decide_approval(
                principal, workspace, subject_id, approved, note=reason, version=version
            )
            state = "active" if job.enabled else str(job.disabled_reason)
        elif kind == "suggestion":
            decide = self._suggestions.apply if approved else self._suggestions.dismiss
            suggestion = await decide(principal, workspace, subject_id)
            _check_decider(principal, item_id, suggestion.decided_by, suggestion.status)
            state = suggestion.status
        else:
            incident = await self._incidents.acknowledge(principal, workspace, subject_id, reason)
            _check_decider(principal, item_id, incident.acknowledged_by, incident.state)
            state = incident.state
        return Decided(item_id, kind, action, state)


def describe_item(row: InboxRow) -> str | None:
    """Return what helps to decide about an item."""
    if row.kind != "suggestion":
        return row.text or None
    rule = cast(RuleName, row.what)
    return describe(rule, json.loads(row.text or "{}"), json.loads(row.change or "{}"))


def deciders(kind: InboxKind) -> tuple[Role, ...]:
    """Return the roles that may decide about items of a kind."""
    return tuple(sorted(MAY[_PERMISSIONS[kind]] - {"agent"}))


def may_decide(principal: Principal, kind: InboxKind) -> bool:
    """Return whether the caller may decide about items of a kind: it is a person with the role."""
    return principal.is_person and principal.role in deciders(kind)


def allowed_actions(principal: Principal, kind: InboxKind) -> tuple[InboxAction, ...]:
    """Return what the caller may do about items of a kind."""
    return INBOX_ACTIONS[kind] if may_decide(principal, kind) else ()


def _check_decider(principal: Principal, item_id: str, decided_by: str | None, state: str) -> None:
    """Raise FailedPrecondition if another person has decided the same before."""
    if decided_by != principal.actor:
        raise FailedPrecondition(
            f"'{item_id}' is {state} already: another person was faster; reload the inbox"
        )
