"""Sessions of an agent over HTTP: list, read with the history, delete."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from wakeful.api.http.dependencies import SECURED, CurrentPrincipal, ServicesDep
from wakeful.api.http.paging import Cursor, Limit, page, read_cursor
from wakeful.api.http.responses import JsonResponse, no_content, responses
from wakeful.service.serializers import serialize_history_entry, serialize_session
from wakeful.values.json_value import Json

router = APIRouter(
    prefix="/api/workspaces/{workspace}/agents/{agent}/sessions", tags=["sessions"], dependencies=SECURED
)


@router.get("", summary="List the sessions of an agent", responses=responses({200: "Sessions"}))
async def list_sessions(
    workspace: str,
    agent: str,
    services: ServicesDep,
    principal: CurrentPrincipal,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """The sessions by name, with their waiting messages and running turns."""
    scope = ["sessions", workspace, agent]
    after = str(read_cursor(cursor, scope, str)[0]) if cursor is not None else None
    found = await services.sessions.list(principal, workspace, agent, after, limit + 1)
    sessions, following = page(found, limit, scope, lambda session: [session.name])
    return JsonResponse(
        {"sessions": [serialize_session(session) for session in sessions], "cursor": following}
    )


@router.get("/{session}", summary="Read a session", responses=responses({200: "SessionWithHistory"}))
async def get_session(
    workspace: str,
    agent: str,
    session: str,
    services: ServicesDep,
    principal: CurrentPrincipal,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """A session with its history: what was said and answered, newest first."""
    scope = ["history", workspace, agent, session]
    before = int(read_cursor(cursor, scope, int)[0]) if cursor is not None else None
    found = await services.sessions.get(principal, workspace, agent, session, before, limit + 1)
    entries, following = page(found.entries, limit, scope, lambda entry: [entry.sequence])
    history: list[Json] = [serialize_history_entry(entry) for entry in entries]
    return JsonResponse({**serialize_session(found.view), "history": history, "cursor": following})


@router.delete("/{session}", summary="Delete a session", status_code=204, responses=responses({204: None}))
async def delete_session(
    workspace: str, agent: str, session: str, services: ServicesDep, principal: CurrentPrincipal
) -> Response:
    """Delete a session with its history. Its turns stop, and its waiting messages are dropped.

    The runs of its turns stay, with their payload and output, as long as other runs do.
    """
    await services.sessions.delete(principal, workspace, agent, session)
    return no_content()
