"""Keys, quotas, the audit, workflows and how things stand, over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from wakeful.api.http.dependencies import SECURED, CurrentPrincipal, Document, ServiceDocument, ServicesDep
from wakeful.api.http.paging import Cursor, Limit, page, read_cursor
from wakeful.api.http.responses import BODY, JsonAnswer, nothing, place, takes, told
from wakeful.document.values import whole_number
from wakeful.errors import InvalidArgument
from wakeful.service.serializers import audit_shape, key_shape, quota_shape, workflow_shape

router = APIRouter(prefix="/api/workspaces/{workspace}", dependencies=SECURED)

Version = Annotated[int, Path(ge=0, le=2**31 - 1, description="A whole number.")]
Hours = Annotated[int, Query(ge=1, le=720, description="Of so many hours up to now.")]


# --- keys ------------------------------------------------------------------------------------------


@router.get("/keys", tags=["keys"], summary="List keys", responses=told({200: "Keys"}))
async def list_keys(workspace: str, here: ServicesDep, who: CurrentPrincipal) -> Response:
    """Without what they open."""
    return JsonAnswer({"keys": [key_shape(row) for row in await here.keys.list(who, workspace)]})


@router.post(
    "/keys",
    tags=["keys"],
    summary="Create a key",
    status_code=201,
    responses=told({201: "NewKey"}, *BODY, headers=("Location",)),
    openapi_extra=takes("KeyDocument", {"name": "ci", "role": "member", "expiresAt": "2030-01-01T00:00:00Z"}),
)
async def create_key(
    workspace: str, here: ServicesDep, who: CurrentPrincipal, document: ServiceDocument
) -> Response:
    """The `key` is shown here and never again."""
    row, key = await here.keys.create(who, workspace, document)
    headers = {"Location": place(workspace, "keys", row.id), "Cache-Control": "no-store"}
    return JsonAnswer({**key_shape(row), "key": key}, 201, headers)


@router.delete(
    "/keys/{key_id}",
    tags=["keys"],
    summary="Revoke a key",
    status_code=204,
    responses=told({204: None}),
)
async def revoke_key(workspace: str, key_id: str, here: ServicesDep, who: CurrentPrincipal) -> Response:
    """It opens nothing any more: here at once, on other replicas within a second."""
    await here.keys.revoke(who, workspace, key_id)
    return nothing()


# --- quotas ----------------------------------------------------------------------------------------


@router.get("/quotas", tags=["quotas"], summary="List limits", responses=told({200: "Quotas"}))
async def list_quotas(workspace: str, here: ServicesDep, who: CurrentPrincipal) -> Response:
    """What is allowed and what is used, for the workspace (`agent` null) and its agents."""
    return JsonAnswer({"quotas": [quota_shape(row) for row in await here.quotas.list(who, workspace)]})


@router.put(
    "/quotas",
    tags=["quotas"],
    summary="Set a limit",
    responses=told({200: "Quotas"}, *BODY),
    openapi_extra=takes("QuotaDocument", {"agent": "writer", "bucket": "scheduler.liveJobs", "limit": 50}),
)
async def set_quota(workspace: str, here: ServicesDep, who: CurrentPrincipal, document: Document) -> Response:
    """For one agent, or without one for the whole workspace; null lets the installation's own hold again."""
    agent, bucket, limit = document.get("agent"), document.get("bucket"), document.get("limit")
    if agent is not None and not isinstance(agent, str):
        raise InvalidArgument("agent: write the name of an agent, or null for the whole workspace")
    if not isinstance(bucket, str):
        raise InvalidArgument("bucket: write the name of one, such as 'scheduler.liveJobs'")
    number = whole_number(limit)
    if "limit" not in document or (number is None and limit is not None):
        raise InvalidArgument("limit: write a whole number, or null for none")
    await here.quotas.set(who, workspace, agent, bucket, number)
    return await list_quotas(workspace, here, who)


# --- audit -----------------------------------------------------------------------------------------


@router.get("/audit", tags=["audit"], summary="Read the audit", responses=told({200: "Audit"}))
async def list_audit(
    workspace: str, here: ServicesDep, who: CurrentPrincipal, limit: Limit = 100, cursor: Cursor = None
) -> Response:
    """Who did what to what, when and from where; newest first."""
    scope, before = ("audit", workspace), None
    if cursor is not None:
        before = int(read_cursor(cursor, scope, int)[0])
    rows = await here.audit.list(who, workspace, before=before, limit=limit + 1)
    shown, next_cursor = page(rows, limit, scope, lambda row: (row.seq,))
    return JsonAnswer({"entries": [audit_shape(row) for row in shown], "cursor": next_cursor})


@router.get("/audit/verify", tags=["audit"], summary="Verify the audit", responses=told({200: "Verified"}))
async def verify_audit(workspace: str, here: ServicesDep, who: CurrentPrincipal) -> Response:
    """Follow the chain from its beginning: a changed, removed or reordered entry breaks it."""
    count, flaw = await here.audit.verify(who, workspace)
    return JsonAnswer({"ok": flaw is None, "count": count, "flaw": flaw})


# --- workflows -------------------------------------------------------------------------------------


@router.get(
    "/workflows/{workflow_id}/{version}",
    tags=["workflows"],
    summary="Read a version of a workflow",
    responses=told({200: "Workflow"}),
)
async def get_workflow(
    workspace: str, workflow_id: str, version: Version, here: ServicesDep, who: CurrentPrincipal
) -> Response:
    """The DAG as it was kept."""
    return JsonAnswer(workflow_shape(await here.workflows.get(who, workspace, workflow_id, version)))


@router.put(
    "/workflows/{workflow_id}/{version}",
    tags=["workflows"],
    summary="Keep a version of a workflow",
    responses=told({200: "Workflow", 201: "Workflow"}, *BODY, 409, headers=("Location",)),
    openapi_extra=takes("Dag", {"nodes": [{"id": "fetch"}, {"id": "send"}], "edges": [["fetch", "send"]]}),
)
async def put_workflow(
    workspace: str,
    workflow_id: str,
    version: Version,
    here: ServicesDep,
    who: CurrentPrincipal,
    dag: Document,
) -> Response:
    """The body is the DAG. A version never changes: the same again is no error, another is one."""
    created = await here.workflows.put(who, workspace, workflow_id, version, dag)
    shape = workflow_shape(await here.workflows.get(who, workspace, workflow_id, version))
    headers = {"Location": place(workspace, "workflows", workflow_id, str(version))} if created else None
    return JsonAnswer(shape, 201 if created else 200, headers)


# --- how things stand ------------------------------------------------------------------------------


@router.get("/status", tags=["status"], summary="How things stand", responses=told({200: "Status"}))
async def get_status(workspace: str, here: ServicesDep, who: CurrentPrincipal) -> Response:
    """How many jobs and runs there are, and what comes next."""
    return JsonAnswer(await here.status.status(who, workspace))


@router.get("/slo", tags=["status"], summary="How well it goes", responses=told({200: "Slo"}))
async def get_slo(workspace: str, here: ServicesDep, who: CurrentPrincipal, hours: Hours = 24) -> Response:
    """The ratio of dead letters, and the median time from due to started."""
    return JsonAnswer(await here.status.slo(who, workspace, hours))
