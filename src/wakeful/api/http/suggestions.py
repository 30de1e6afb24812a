"""Suggestions over HTTP: list, read, apply, dismiss, roll back."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

from fastapi import Query
from starlette.responses import Response

from wakeful.api.http.dependencies import WorkspaceDep
from wakeful.api.http.idempotency import Once
from wakeful.api.http.operations import WORKSPACE, ApiRouter
from wakeful.api.http.paging import Cursor, Limit, OfAgent, OfJob, page, read_last, split_words
from wakeful.api.http.responses import JsonResponse
from wakeful.evolution.suggestion import SUGGESTION_STATUSES
from wakeful.service.serializers import SUGGESTIONS
from wakeful.values.json_value import Json

router: Final = ApiRouter("suggestions", prefix=f"{WORKSPACE}/suggestions")

Statuses = Annotated[
    str | None,
    Query(description=f"Only with these statuses, with commas: some of {', '.join(SUGGESTION_STATUSES)}."),
]


@router.operation("GET", "List suggestions", "Suggestions")
async def list_suggestions(
    about: WorkspaceDep,
    status: Statuses = None,
    agent: OfAgent = None,
    job: OfJob = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Better settings for jobs, of agents with `evolution: suggest`. Newest first."""
    statuses = split_words(status)
    scope = ["suggestions", about.workspace, about.principal.agent, agent, job, sorted(statuses)]
    before = read_last(cursor or None, scope, str)
    found = await about.services.admin.suggestions.list(
        *about.caller, agent=agent, job=job, statuses=statuses, before=before, limit=limit + 1
    )
    shown, following = page(found, limit, scope, lambda each: [each.id])
    rights = await about.services.rights.load(*about.caller)
    suggestions: list[Json] = [SUGGESTIONS.to_json(each, may=rights.suggestion(each)) for each in shown]
    return JsonResponse({"suggestions": suggestions, "cursor": following})


@router.operation("GET /{suggestion_id}", "Get a suggestion", "Suggestion")
async def get_suggestion(suggestion_id: str, about: WorkspaceDep) -> Response:
    """A suggestion stays readable after its job was deleted."""
    found = await about.services.admin.suggestions.get(*about.caller, suggestion_id)
    rights = await about.services.rights.load(*about.caller)
    return JsonResponse(SUGGESTIONS.to_json(found, may=rights.suggestion(found)))


@router.operation("POST /{suggestion_id}/apply", "Apply a suggestion", "Suggestion", 409)
async def apply_suggestion(suggestion_id: str, once: Once) -> Response:
    """Changes the job, unless it was changed since the analysis. Requires the role admin."""
    apply = partial(once.services.admin.suggestions.apply, *once.caller, suggestion_id)
    return await once.respond(apply, lambda found: JsonResponse(SUGGESTIONS.to_json(found)))


@router.operation("POST /{suggestion_id}/dismiss", "Dismiss a suggestion", "Suggestion", 409)
async def dismiss_suggestion(suggestion_id: str, once: Once) -> Response:
    """It returns only if its figure gets much worse, or its job is changed. Requires the role admin."""
    dismiss = partial(once.services.admin.suggestions.dismiss, *once.caller, suggestion_id)
    return await once.respond(dismiss, lambda found: JsonResponse(SUGGESTIONS.to_json(found)))


@router.operation("POST /{suggestion_id}/rollback", "Roll back an applied suggestion", "Suggestion", 409)
async def roll_back_suggestion(suggestion_id: str, once: Once) -> Response:
    """Gives the job its earlier settings, unless it was changed since. Requires the role admin."""
    rollback = partial(once.services.admin.suggestions.rollback, *once.caller, suggestion_id)
    return await once.respond(rollback, lambda found: JsonResponse(SUGGESTIONS.to_json(found)))
