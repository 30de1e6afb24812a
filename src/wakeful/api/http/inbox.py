"""The inbox over HTTP: list and count what waits for a person, approve and reject."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Final, cast

from fastapi import Query
from starlette.responses import Response

from wakeful.api.http.dependencies import (
    OptionalDocument,
    WorkspaceDep,
    refuse_unknown,
)
from wakeful.api.http.idempotency import Once, OnceRequest
from wakeful.api.http.operations import WORKSPACE, ApiRouter
from wakeful.api.http.paging import Cursor, Limit, OfAgent, page, read_cursor, split_words
from wakeful.api.http.responses import JsonResponse
from wakeful.errors import InvalidArgument
from wakeful.model.codec import to_json
from wakeful.run.inbox import INBOX_KINDS, InboxAction
from wakeful.service.serializers import INBOX_DECISIONS, inbox_counts, serialize_inbox_item

router: Final = ApiRouter("inbox", prefix=f"{WORKSPACE}/inbox")

Kinds = Annotated[
    str | None,
    Query(description=f"Only of these kinds, with commas: some of {', '.join(INBOX_KINDS)}."),
]


@router.operation("GET", "List what waits for a person", "Inbox")
async def list_inbox(
    about: WorkspaceDep, kind: Kinds = None, agent: OfAgent = None, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """Runs to confirm, jobs to approve, open suggestions, new incidents. Newest first.

    `counts` is how much waits of all kinds, also beyond the page.
    """
    kinds = split_words(kind)
    scope = ["inbox", about.workspace, about.principal.agent, agent, sorted(kinds)]
    after = cast("tuple[int, str]", tuple(read_cursor(cursor, scope, int, str))) if cursor else None
    inbox = about.services.admin.inbox
    found = await inbox.list(*about.caller, kinds=kinds, agent=agent, after=after, limit=limit + 1)
    shown, following = page(found, limit, scope, lambda row: row.position)
    counts = await inbox.counts(*about.caller, agent=agent)
    return JsonResponse(
        {
            "items": [serialize_inbox_item(about.principal, row) for row in shown],
            "cursor": following,
            "counts": to_json(inbox_counts(counts)),
        }
    )


@router.operation("GET /counts", "Count what waits for a person", "InboxCounts")
async def count_inbox(about: WorkspaceDep, agent: OfAgent = None) -> Response:
    """Each kind is counted up to 1,000."""
    counts = await about.services.admin.inbox.counts(*about.caller, agent=agent)
    return JsonResponse(to_json(inbox_counts(counts)))


@router.operation(
    "POST /{item_id}/approve",
    "Approve what waits",
    "InboxDecision",
    409,
    body=("InboxDecisionDocument", {"version": 1}),
)
async def approve_item(item_id: str, once: Once, body: OptionalDocument) -> Response:
    """Confirms the work of a run, resumes a job, applies a suggestion, or acknowledges an incident.

    Requires one of the roles `deciders` of the item. 409: another person has decided, or it changed since.
    """
    return await _decide(once, item_id, body, "approve")


@router.operation(
    "POST /{item_id}/reject",
    "Reject what waits",
    "InboxDecision",
    409,
    body=("InboxDecisionDocument", {"reason": "the page is empty"}),
)
async def reject_item(item_id: str, once: Once, body: OptionalDocument) -> Response:
    """Fails the attempt of a run, leaves a job paused, or dismisses a suggestion; not of incidents.

    Requires one of the roles `deciders` of the item. 409: another person has decided, or it changed since.
    """
    return await _decide(once, item_id, body, "reject")


async def _decide(
    once: OnceRequest, item_id: str, body: Mapping[str, object], action: InboxAction
) -> Response:
    refuse_unknown(body, ("reason", "version"), "field")
    reason, version = body.get("reason"), body.get("version")
    if reason is not None and not isinstance(reason, str):
        raise InvalidArgument("reason: write a text")
    if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
        raise InvalidArgument("version: write the whole number that the item has")
    decide = partial(
        once.services.admin.inbox.decide, *once.caller, item_id, action, reason=reason, version=version
    )
    return await once.respond(decide, lambda done: JsonResponse(INBOX_DECISIONS.to_json(done)))
