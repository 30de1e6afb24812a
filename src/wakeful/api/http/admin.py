"""Keys, quotas, audit, workflows, status, workers, channels, settings and cost over HTTP."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final, cast

from fastapi import Header, Path, Query
from starlette.responses import Response

from wakeful.api.http.dependencies import (
    Document,
    OptionalDocument,
    ServiceDocument,
    WorkspaceDep,
)
from wakeful.api.http.etags import matches
from wakeful.api.http.idempotency import Once
from wakeful.api.http.operations import ApiRouter
from wakeful.api.http.paging import Cursor, Limit, OfAgent, page, read_cursor, read_last, write_cursor
from wakeful.api.http.problems import Stale
from wakeful.api.http.responses import JsonResponse, location_of, no_content
from wakeful.errors import InvalidArgument
from wakeful.model.admin import AuditVerification
from wakeful.model.codec import to_json
from wakeful.service.admin.cost import LISTED, MAX_DAYS
from wakeful.service.auth.keys import KeyRow
from wakeful.service.report_serializers import (
    CHANNEL_TESTS,
    CHANNELS,
    DELIVERIES,
    PEOPLE,
    PROCESSES,
    SETTINGS,
    serialize_cost,
    serialize_week,
)
from wakeful.service.serializers import AUDIT, KEYS, QUOTAS, SUBSCRIPTIONS, WORKFLOWS
from wakeful.values.json_value import whole_number

router = ApiRouter()
operations_router = ApiRouter("operations")
cost_router = ApiRouter("cost")

Version = Annotated[int, Path(ge=0, le=2**31 - 1, description="A whole number.")]
#: The latest instant that both databases can compare.
_LATEST_MS: Final = 253_000_000_000_000
IfLimitMatches = Annotated[
    str | None,
    Header(
        alias="if-match",
        description='Only if the limit that is set is still this, in quotes: `"50"`, or `"none"`.',
    ),
]
Hours = Annotated[int, Query(ge=1, le=720, description="The number of hours up to now.")]

From = Annotated[
    str | None,
    Query(alias="from", description=f"The first day (UTC), such as 2027-03-01; at most {MAX_DAYS} days."),
]
To = Annotated[str | None, Query(description="The last day (UTC); today by default.")]


# --- keys ------------------------------------------------------------------------------------------


@router.operation("GET /keys", "List keys", "Keys", tag="keys")
async def list_keys(about: WorkspaceDep) -> Response:
    """The text of a key is not stored and not returned."""
    found = await about.services.auth.keys.list(*about.caller)
    rights = await about.services.rights.load(*about.caller)
    return JsonResponse({"keys": [KEYS.to_json(row, may=rights.key(row)) for row in found]})


@router.operation(
    "POST /keys",
    "Create a key",
    {201: "NewKey"},
    409,
    body=("KeyDocument", {"name": "ci", "role": "member", "expiresAt": "2030-01-01T00:00:00Z"}),
    headers=("Location",),
    tag="keys",
)
async def create_key(once: Once, document: ServiceDocument) -> Response:
    """The `key` is returned only once."""

    def response(created: tuple[KeyRow, str]) -> Response:
        row, key = created
        headers = {"Location": location_of(once.workspace, "keys", row.id), "Cache-Control": "no-store"}
        return JsonResponse({**KEYS.to_json(row), "key": key}, 201, headers)

    create = partial(once.services.auth.keys.create, *once.caller, document)
    return await once.respond_keyed(create, response)


@router.operation("DELETE /keys/{key_id}", "Revoke a key", {204: None}, tag="keys")
async def revoke_key(key_id: str, about: WorkspaceDep) -> Response:
    """Takes effect on this replica at once, on others within a second."""
    await about.services.auth.keys.revoke(*about.caller, key_id)
    return no_content()


# --- subscriptions ---------------------------------------------------------------------------------


@router.operation("GET /subscriptions", "List subscriptions to MCP events", "Subscriptions", tag="operations")
async def list_subscriptions(
    about: WorkspaceDep, agent: OfAgent = None, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """Newest first, also those that have ended. An admin sees all, other keys see their own."""
    scope = ["subscriptions", about.workspace, about.principal.actor, agent]
    after = cast("tuple[int, str]", tuple(read_cursor(cursor, scope, int, str))) if cursor else None
    found = await about.services.agents.subscriptions.list(
        *about.caller, agent=agent, after=after, limit=limit + 1
    )
    shown, following = page(found, limit, scope, lambda row: (row.created_ms, row.id))
    return JsonResponse({"subscriptions": [SUBSCRIPTIONS.to_json(row) for row in shown], "cursor": following})


@router.operation(
    "DELETE /subscriptions/{subscription_id}",
    "End a subscription to MCP events",
    {204: None},
    409,
    tag="operations",
)
async def end_subscription(subscription_id: str, about: WorkspaceDep) -> Response:
    """Cancels its waiting deliveries. An admin may end any, other keys their own. 409: it has ended."""
    await about.services.agents.subscriptions.end(*about.caller, subscription_id)
    return no_content()


# --- people ----------------------------------------------------------------------------------------


@router.operation("GET /people", "List people", "People", tag="keys")
async def list_people(about: WorkspaceDep) -> Response:
    """Those who have signed in at the issuer and may use the workspace, the last signed in first."""
    found = await about.services.auth.people.list(*about.caller)
    return JsonResponse({"people": [PEOPLE.to_json(row) for row in found]})


@router.operation("DELETE /people/{person_id}", "Remove a person", {204: None}, tag="keys")
async def remove_person(person_id: str, about: WorkspaceDep) -> Response:
    """Ends the sessions of the person, and revokes the keys that the person created. History keeps the name.

    It takes a key for all workspaces. The issuer decides who can sign in again.
    """
    await about.services.auth.people.remove(*about.caller, person_id)
    return no_content()


# --- quotas ----------------------------------------------------------------------------------------


@router.operation("GET /quotas", "List limits", "Quotas", tag="quotas")
async def list_quotas(about: WorkspaceDep) -> Response:
    """The limits and the usage of the workspace (`agent` null) and its agents."""
    return JsonResponse(
        {"quotas": [QUOTAS.to_json(row) for row in await about.services.admin.quotas.list(*about.caller)]}
    )


@router.operation(
    "PUT /quotas",
    "Set a limit",
    "Quotas",
    body=("QuotaDocument", {"agent": "writer", "bucket": "scheduler.liveJobs", "limit": 50}),
    tag="quotas",
)
async def set_quota(about: WorkspaceDep, document: Document, if_match: IfLimitMatches = None) -> Response:
    """For one agent, or for the whole workspace without `agent`; null restores the installation's default."""
    agent, bucket, limit = document.get("agent"), document.get("bucket"), document.get("limit")
    if agent is not None and not isinstance(agent, str):
        raise InvalidArgument("agent: write the name of an agent, or null for the whole workspace")
    if not isinstance(bucket, str):
        raise InvalidArgument("bucket: write the name of a bucket, such as 'scheduler.liveJobs'")
    number = whole_number(limit)
    if "limit" not in document or (number is None and limit is not None):
        raise InvalidArgument("limit: write a whole number, or null for none")

    def check(now: int | None) -> None:
        if if_match is not None and not matches(if_match, "none" if now is None else now):
            raise Stale(f"the limit is {'not set' if now is None else now} now; read it again")

    await about.services.admin.quotas.set(*about.caller, agent, bucket, number, check)
    return await list_quotas(about)


# --- audit -----------------------------------------------------------------------------------------


@router.operation("GET /audit", "Read the audit log", "Audit", tag="audit")
async def list_audit(
    about: WorkspaceDep,
    actor: Annotated[str | None, Query(max_length=300, description="Only of this actor.")] = None,
    action: Annotated[
        str | None, Query(max_length=64, description="Only this action, or this kind, such as `job`.")
    ] = None,
    subject: Annotated[str | None, Query(max_length=300, description="Only about this subject.")] = None,
    since: Annotated[int | None, Query(ge=0, le=_LATEST_MS, description="Since this instant, in ms.")] = None,
    until: Annotated[int | None, Query(ge=0, le=_LATEST_MS, description="Before this one, in ms.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Actor, action, subject, time and address of each change, newest first.

    With filters, a page reads at most 20,000 entries: it may have less than `limit`, or none, and a `cursor`.
    """
    scope = ("audit", about.workspace, actor, action, subject, since, until)
    before = read_last(cursor, scope, int)
    found = await about.services.admin.audit.search(
        *about.caller,
        actor=actor,
        action=action,
        subject=subject,
        since_ms=since,
        until_ms=until,
        before=before,
        limit=limit,
    )
    next_cursor = None if found.before is None else write_cursor((found.before,), scope)
    return JsonResponse({"entries": [AUDIT.to_json(row) for row in found.rows], "cursor": next_cursor})


@router.operation("GET /audit/verify", "Verify the audit log", "Verified", tag="audit")
async def verify_audit(
    about: WorkspaceDep,
    after: Annotated[int, Query(ge=0, le=2**31 - 1, description="Continue after this entry.")] = 0,
    hash: Annotated[str, Query(max_length=64, description="The hash of that entry.")] = "",
    limit: Annotated[int | None, Query(ge=1, le=100_000, description="Check at most so many.")] = None,
) -> Response:
    """Check the hash chain from the start: a changed, removed or reordered entry breaks it.

    With `limit`, only a part is checked, unless `complete` is true: continue with `count` as `after` and
    with `hash`.
    """
    if limit is None and not after:
        count, flaw = await about.services.admin.audit.verify(*about.caller)
        found = AuditVerification(ok=flaw is None, count=count, flaw=flaw, complete=True)
        return JsonResponse(to_json(found))
    part = await about.services.admin.audit.verify_part(*about.caller, after, hash, limit or 100_000)
    found = AuditVerification(
        ok=part.flaw is None, count=part.entries, flaw=part.flaw, complete=part.complete, hash=part.hash
    )
    return JsonResponse(to_json(found))


# --- workflows -------------------------------------------------------------------------------------


@router.operation(
    "GET /workflows/{workflow_id}/{version}", "Read a version of a workflow", "Workflow", tag="workflows"
)
async def get_workflow(workflow_id: str, version: Version, about: WorkspaceDep) -> Response:
    """The DAG as it was stored."""
    return JsonResponse(
        WORKFLOWS.to_json(await about.services.admin.workflows.get(*about.caller, workflow_id, version))
    )


@router.operation(
    "PUT /workflows/{workflow_id}/{version}",
    "Store a version of a workflow",
    {200: "Workflow", 201: "Workflow"},
    409,
    body=("Dag", {"nodes": [{"id": "fetch"}, {"id": "send"}], "edges": [["fetch", "send"]]}),
    headers=("Location",),
    tag="workflows",
)
async def put_workflow(workflow_id: str, version: Version, about: WorkspaceDep, dag: Document) -> Response:
    """The body is the DAG. A version never changes: the same DAG again is accepted, another is refused."""
    created = await about.services.admin.workflows.put(*about.caller, workflow_id, version, dag)
    content = WORKFLOWS.to_json(await about.services.admin.workflows.get(*about.caller, workflow_id, version))
    if not created:
        return JsonResponse(content)
    location = location_of(about.workspace, "workflows", workflow_id, str(version))
    return JsonResponse(content, 201, {"Location": location})


# --- status ----------------------------------------------------------------------------------------


@router.operation("GET /status", "Status of the workspace", "Status", tag="status")
async def get_status(about: WorkspaceDep) -> Response:
    """The numbers of jobs and runs, and the next tick."""
    return JsonResponse(await about.services.admin.status.status(*about.caller))


@router.operation("GET /doctor", "Checks of the installation", "Doctor", tag="status")
async def get_doctor(about: WorkspaceDep) -> Response:
    """The checks of `wakeful doctor`: each with its state, a message, and what to do.

    A key for all workspaces sees the checks of the installation, the admin of a workspace those of the
    workspace.
    """
    return JsonResponse(await about.services.admin.doctor.examine(*about.caller))


@router.operation("GET /slo", "Service level objectives", "Slo", tag="status")
async def get_slo(about: WorkspaceDep, hours: Hours = 24) -> Response:
    """The ratio of dead letters, and the median and 95th percentile of the start delay."""
    return JsonResponse(await about.services.admin.status.slo(*about.caller, hours))


@router.operation("GET /peaks", "Load of the coming week", "Peaks", tag="status")
async def get_peaks(
    about: WorkspaceDep, agent: Annotated[str | None, Query(description="Only jobs of this agent.")] = None
) -> Response:
    """How many runs the schedules start: the busiest minutes, and every hour. At most a minute old: `ageMs`.

    A key of the role `agent` sees its own agent.
    """
    computed = await about.services.admin.peaks.get(*about.caller, agent)
    shown = agent if about.principal.agent is None else about.principal.agent
    return JsonResponse(serialize_week(computed, about.workspace, shown, about.services.now_ms()))


# --- workers, channels, settings -------------------------------------------------------------------


@operations_router.operation("GET /workers", "List workers and executors", "Workers")
async def list_workers(about: WorkspaceDep) -> Response:
    """The processes that take runs, with their last heartbeat, and the executors that hold claimed runs.

    A key for all workspaces sees all runs and functions, the admin of a workspace those of the workspace.
    """
    found = await about.services.admin.workers.list(*about.caller)
    return JsonResponse(PROCESSES.to_json(found))


@operations_router.operation("GET /channels", "List channels", "Channels")
async def list_channels(about: WorkspaceDep) -> Response:
    """Names and kinds of the channels, and the recent deliveries of the workspace; never their URLs."""
    channels = await about.services.admin.channels.list(*about.caller)
    deliveries = await about.services.admin.channels.deliveries(*about.caller)
    return JsonResponse(
        {
            "channels": [CHANNELS.to_json(each) for each in channels],
            "deliveries": [DELIVERIES.to_json(each) for each in deliveries],
        }
    )


@operations_router.operation(
    "POST /channels/{channel}/test",
    "Send a test message",
    "ChannelTest",
    body=("ChannelTestDocument", {"to": "@ada"}),
)
async def test_channel(channel: str, about: WorkspaceDep, document: OptionalDocument) -> Response:
    """Wait for the response of the service. At most 6 a minute for each channel. Requires the role admin."""
    to = document.get("to")
    if to is not None and not isinstance(to, str):
        raise InvalidArgument("to: write the recipient as text, or leave it out")
    return JsonResponse(
        CHANNEL_TESTS.to_json(await about.services.admin.channels.test(*about.caller, channel, to))
    )


@operations_router.operation("GET /settings", "List settings", "Settings")
async def list_settings(about: WorkspaceDep) -> Response:
    """The settings of this process with their source. Of a secret, only whether it is set."""
    found = await about.services.admin.settings.list(*about.caller)
    return JsonResponse({"settings": [SETTINGS.to_json(each) for each in found]})


# --- cost ------------------------------------------------------------------------------------------


@cost_router.operation("GET /cost", "Tokens and cost", "Cost")
async def get_cost(
    about: WorkspaceDep,
    from_: From = None,
    to: To = None,
    agent: Annotated[str | None, Query(description="Only this agent.")] = None,
    limit: Annotated[int, Query(ge=1, le=LISTED, description="How many agents and jobs.")] = 20,
) -> Response:
    """What runs used by day, agent and job, and the budgets with what is left of them today.

    The last 30 days by default. Agents and jobs are found among the 100 most expensive of each day. A key of
    the role `agent` sees its own agent.
    """
    report = await about.services.admin.cost.report(
        *about.caller, first=from_, last=to, agent=agent, limit=limit
    )
    return JsonResponse(serialize_cost(report))
