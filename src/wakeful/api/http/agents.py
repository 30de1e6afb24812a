"""Agents over HTTP, the messages to them, and their sessions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated

from fastapi import Header, Query
from starlette.responses import Response

from wakeful.api.http.dependencies import (
    CurrentPrincipal,
    ServiceDocument,
    ServicesDep,
    WorkspaceDep,
    WorkspaceRequest,
)
from wakeful.api.http.etags import etag, matches
from wakeful.api.http.idempotency import Once
from wakeful.api.http.operations import WORKSPACE, ApiRouter
from wakeful.api.http.paging import MAX_PAGE, Cursor, Limit, page, read_last
from wakeful.api.http.problems import Malformed, Stale
from wakeful.api.http.responses import (
    JsonResponse,
    list_response,
    location_of,
    no_content,
)
from wakeful.errors import NotFound
from wakeful.model.codec import JsonObject
from wakeful.service.agents.agents import StaleAgent, StaleWorkspace, stale_agent, stale_workspace
from wakeful.service.auth.access import visible_agent
from wakeful.service.serializers import (
    HISTORY,
    RECEIPTS,
    SESSIONS,
    serialize_agent,
    serialize_saved_agent,
    serialize_workspace,
)
from wakeful.values.json_value import Json

router = ApiRouter(prefix="/api/workspaces")
messages_router = ApiRouter("sessions", prefix=f"{WORKSPACE}/agents/{{agent}}")
sessions_router = ApiRouter("sessions", prefix=f"{WORKSPACE}/agents/{{agent}}/sessions")

IfWorkspaceMatches = Annotated[
    str | None,
    Header(
        alias="if-match",
        description="Only if the workspace has not changed since this ETag; `*`: only if it exists.",
    ),
]
CreateWorkspaceOnly = Annotated[
    str | None,
    Header(alias="if-none-match", description="`*`: only create; refuse to change an existing workspace."),
]
IfAgentMatches = Annotated[
    str | None,
    Header(alias="if-match", description='Only if the agent is still at this version, its ETag: `"3"`.'),
]
CreateAgentOnly = Annotated[
    str | None,
    Header(alias="if-none-match", description="`*`: only create; refuse to change an existing agent."),
]


@router.operation("GET", "List workspaces", "Workspaces", tag="workspaces")
async def list_workspaces(
    services: ServicesDep,
    principal: CurrentPrincipal,
    prefix: Annotated[
        str | None, Query(max_length=64, description="Only names that begin like this.")
    ] = None,
    limit: Annotated[int | None, Query(ge=1, le=MAX_PAGE, description="At most so many.")] = None,
) -> Response:
    """The workspaces that the key may see, by name."""
    if prefix is None and limit is None:
        rows = await services.agents.workspaces.list(principal)
    else:
        rows = await services.agents.workspaces.search(principal, prefix or "", limit or MAX_PAGE)
    return JsonResponse({"workspaces": [serialize_workspace(principal.at(row.name), row) for row in rows]})


@router.operation("GET /{workspace}", "Read a workspace", "Workspace", headers=("ETag",), tag="workspaces")
async def get_workspace(about: WorkspaceDep) -> Response:
    """A workspace with its usage of today; for a key of the role agent, with that of its agent."""
    row = await about.services.agents.workspaces.get(*about.caller)
    spent = await about.services.admin.budgets.spent(
        about.workspace, visible_agent(about.principal, None) or ""
    )
    content = {**serialize_workspace(about.principal, row), "spent": spent}
    return JsonResponse(content, headers={"ETag": etag(row.updated_ms)})


@router.operation(
    "PUT /{workspace}",
    "Create or change a workspace",
    {200: "Workspace", 201: "Workspace"},
    body=("WorkspaceDocument", {"tz": "Europe/Berlin", "description": "ACME"}),
    headers=("Location", "ETag"),
    tag="workspaces",
)
async def put_workspace(
    about: WorkspaceDep,
    document: ServiceDocument,
    if_match: IfWorkspaceMatches = None,
    if_none_match: CreateWorkspaceOnly = None,
) -> Response:
    """Requires a key for all workspaces, such as the first key of the installation."""
    version = await _expected_workspace(about, if_match, if_none_match)
    try:
        row, created = await about.services.agents.workspaces.put(*about.caller, document, version)
    except StaleWorkspace as error:
        raise Stale(error.message) from error
    content: JsonObject = {
        **serialize_workspace(about.principal, row),
        "spent": await about.services.admin.budgets.spent(about.workspace),
    }
    return _put(content, created, location_of(about.workspace), {"ETag": etag(row.updated_ms)})


@router.operation("GET /{workspace}/agents", "List agents", "Agents", tag="agents")
async def list_agents(about: WorkspaceDep) -> Response:
    """The agents of a workspace, by name; a key of the role agent sees only its own."""
    rows = await about.services.agents.list(*about.caller)
    rights = await about.services.rights.load(*about.caller, (row.name for row in rows))
    return await list_response({"agents": (serialize_agent(about.principal, row, rights) for row in rows)})


@router.operation(
    "GET /{workspace}/agents/{agent}", "Read an agent", "Agent", headers=("ETag",), tag="agents"
)
async def get_agent(agent: str, about: WorkspaceDep) -> Response:
    """An agent with its usage of today."""
    row = await about.services.agents.get(*about.caller, agent)
    rights = await about.services.rights.load(*about.caller, (agent,))
    content = {
        **serialize_agent(about.principal, row, rights),
        "spent": await about.services.admin.budgets.spent(about.workspace, agent),
    }
    return JsonResponse(content, headers={"ETag": etag(row.version)})


@router.operation(
    "PUT /{workspace}/agents/{agent}",
    "Create or change an agent",
    {200: "SavedAgent", 201: "SavedAgent"},
    409,
    body=("AgentDocument", {"target": {"kind": "pull"}, "tz": "Europe/Berlin", "description": "writes"}),
    headers=("Location", "ETag"),
    tag="agents",
)
async def put_agent(
    agent: str,
    about: WorkspaceDep,
    document: ServiceDocument,
    if_match: IfAgentMatches = None,
    if_none_match: CreateAgentOnly = None,
) -> Response:
    """Create the agent or change it to match the document; a missing field gets its default.

    An agent with a new webhook gets a `secret`, which is returned only once. `If-Match` guards against
    changes since the agent was read, and `If-None-Match: *` only creates.
    """
    version = await _expected(about, agent, if_match, if_none_match)
    try:
        saved = await about.services.agents.put(*about.caller, agent, document, version=version)
    except StaleAgent as error:
        raise Stale(error.message) from error
    content = {
        **serialize_saved_agent(about.principal, saved),
        "spent": await about.services.admin.budgets.spent(about.workspace, agent),
    }
    headers = {"ETag": etag(saved.row.version)}
    return _put(content, saved.created, location_of(about.workspace, "agents", agent), headers)


@router.operation(
    "PATCH /{workspace}/agents/{agent}",
    "Change fields of an agent",
    "SavedAgent",
    409,
    body=("AgentPatch", {"active": False, "description": "on leave"}),
    headers=("ETag",),
    tag="agents",
)
async def update_agent(
    agent: str, about: WorkspaceDep, patch: ServiceDocument, if_match: IfAgentMatches = None
) -> Response:
    """Change the fields that are given and no others; null resets a field to its default."""
    version = await _expected(about, agent, if_match, None)
    try:
        saved = await about.services.agents.update(*about.caller, agent, patch, version=version)
    except StaleAgent as error:
        raise Stale(error.message) from error
    content = {
        **serialize_saved_agent(about.principal, saved),
        "spent": await about.services.admin.budgets.spent(about.workspace, agent),
    }
    return JsonResponse(content, headers={"ETag": etag(saved.row.version)})


@router.operation(
    "POST /{workspace}/agents/{agent}/rotate-secret",
    "Give an agent a new webhook secret",
    "SavedAgent",
    409,
    tag="agents",
)
async def rotate_agent_secret(agent: str, once: Once) -> Response:
    """It signs the webhooks that jobs inherit, for a day beside the old one. It is returned only once."""
    spent = await once.services.admin.budgets.spent(once.workspace, agent)
    return await once.respond_keyed(
        partial(once.services.agents.rotate_secret, *once.caller, agent),
        lambda saved: JsonResponse({**serialize_saved_agent(once.principal, saved), "spent": spent}),
    )


@router.operation("DELETE /{workspace}/agents/{agent}", "Delete an agent", {204: None}, 409, tag="agents")
async def delete_agent(agent: str, about: WorkspaceDep) -> Response:
    """Only an agent without jobs can be deleted; its runs stay readable."""
    await about.services.agents.delete(*about.caller, agent)
    return no_content()


def _only_create(if_none_match: str) -> int:
    """Return the version of what does not exist."""
    if if_none_match.strip() != "*":
        raise Malformed("If-None-Match: write '*' to create only")
    return 0


async def _expected_workspace(
    about: WorkspaceRequest, if_match: str | None, if_none_match: str | None
) -> int | None:
    """Return the version that the workspace must still have: None is any, 0 none."""
    if if_none_match is not None:
        return _only_create(if_none_match)
    if if_match is None:
        return None
    try:
        row = await about.services.agents.workspaces.get(*about.caller)
    except NotFound as error:
        raise Stale(error.message) from error
    if not matches(if_match, row.updated_ms):
        raise Stale(stale_workspace(about.workspace, row).message)
    return None if if_match.strip() == "*" else row.updated_ms


async def _expected(
    about: WorkspaceRequest, agent: str, if_match: str | None, if_none_match: str | None
) -> int | None:
    """Return the version that the agent must still have: None is any, 0 none."""
    if if_none_match is not None:
        return _only_create(if_none_match)
    if if_match is None:
        return None
    try:
        row = await about.services.agents.get(*about.caller, agent)
    except NotFound as error:
        raise Stale(error.message) from error
    if not matches(if_match, row.version):
        raise Stale(stale_agent(agent, row.version).message)
    return None if if_match.strip() == "*" else row.version


def _put(
    content: JsonObject, created: bool, location: str, headers: Mapping[str, str] | None = None
) -> Response:
    own = dict(headers or {})
    return (
        JsonResponse(content, 201, {**own, "Location": location})
        if created
        else JsonResponse(content, headers=own)
    )


@messages_router.operation(
    "POST /messages",
    "Send a message to an agent",
    {202: "Receipt"},
    409,
    body=("Message", {"message": "what failed last night?", "session": "telegram:123456789"}),
)
async def send_message(agent: str, once: Once, document: ServiceDocument) -> Response:
    """A message waits in a session until it becomes part of a turn, which is a run of the agent.

    `/stop` stops the oldest running turn, `/stopall` all turns and drops waiting messages. Both act at once.
    `channel` and `to` say where the message comes from: jobs that are made in the conversation deliver there.
    """
    send = partial(once.services.agents.messages.send, *once.caller, agent, document)
    return await once.respond_keyed(send, lambda receipt: JsonResponse(RECEIPTS.to_json(receipt), 202))


@sessions_router.operation("GET", "List the sessions of an agent", "Sessions")
async def list_sessions(
    agent: str, about: WorkspaceDep, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """The sessions by name, with their waiting messages and running turns."""
    scope = ["sessions", about.workspace, agent]
    after = read_last(cursor, scope, str)
    found = await about.services.agents.sessions.list(*about.caller, agent, after, limit + 1)
    sessions, following = page(found, limit, scope, lambda session: [session.name])
    return JsonResponse(
        {"sessions": [SESSIONS.to_json(session) for session in sessions], "cursor": following}
    )


@sessions_router.operation("GET /{session}", "Read a session", "SessionWithHistory")
async def get_session(
    agent: str, session: str, about: WorkspaceDep, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """A session with its history: what was said and answered, newest first."""
    scope = ["history", about.workspace, agent, session]
    before = read_last(cursor, scope, int)
    found = await about.services.agents.sessions.get(*about.caller, agent, session, before, limit + 1)
    entries, following = page(found.entries, limit, scope, lambda entry: [entry.sequence])
    history: list[Json] = [HISTORY.to_json(entry) for entry in entries]
    return JsonResponse({**SESSIONS.to_json(found.view), "history": history, "cursor": following})


@sessions_router.operation("DELETE /{session}", "Delete a session", {204: None})
async def delete_session(agent: str, session: str, about: WorkspaceDep) -> Response:
    """Delete a session with its history. Its turns stop, and its waiting messages are dropped.

    The runs of its turns stay, with their payload and output, as long as other runs do.
    """
    await about.services.agents.sessions.delete(*about.caller, agent, session)
    return no_content()
