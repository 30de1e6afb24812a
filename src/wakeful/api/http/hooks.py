"""Requests of outside systems: trigger URLs of jobs, also how they are made, and events for jobs (`on`)."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from wakeful.api.http.dependencies import ServicesDep, WorkspaceDep
from wakeful.api.http.etags import JobRequestDep
from wakeful.api.http.idempotency import IdempotencyKey, Once, idempotency_key_of, respond_by_key
from wakeful.api.http.operations import WORKSPACE, ApiRouter
from wakeful.api.http.problems import Malformed
from wakeful.api.http.responses import REPLAYED, JsonResponse, no_content, responses
from wakeful.errors import NotFound
from wakeful.service.jobs.hooks import per_job
from wakeful.service.serializers import serialize_hook, serialize_hook_run
from wakeful.signal.requests import read_body
from wakeful.signal.signals import NotJson

router = ApiRouter("jobs", prefix=f"{WORKSPACE}/agents/{{agent}}/jobs/{{name}}/hook")
outside_router = APIRouter(tags=["hooks"])

#: A response to a secret URL is not cached, and a page does not pass the URL on.
_SECRET: Final = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}


def _any_body() -> dict[str, Any]:
    """Return the request body for the OpenAPI document."""
    content: dict[str, Any] = {
        "application/json": {"schema": {}, "example": {"ref": "main"}},
        "application/x-www-form-urlencoded": {"schema": {"type": "object"}, "example": {"text": "hi"}},
        "text/plain": {"schema": {"type": "string"}, "example": "build 17 is done"},
    }
    return {"requestBody": {"required": False, "content": content}}


@router.operation("GET", "Show the trigger URL of a job", "Hook")
async def get_hook(agent: str, name: str, about: WorkspaceDep) -> Response:
    """When it was created, without its token: that is returned only once. 404 if the job has none."""
    return JsonResponse(serialize_hook(await about.services.jobs.hooks.get(*about.caller, agent, name)))


@router.operation("POST", "Give a job a new trigger URL", {201: "NewHook"}, 409)
async def create_hook(about: JobRequestDep, once: Once) -> Response:
    """Creates the URL, or replaces it: then the one before it works for another day.

    The `url` is returned only once. Its address is `WAKEFUL_PUBLIC_URL`, else that of this request.
    """
    base_url = about.services.public_url or str(about.request.base_url).rstrip("/")
    return await once.respond_keyed(
        partial(about.perform, partial(about.services.jobs.hooks.create, *about.job)),
        lambda hook: JsonResponse(serialize_hook(hook, base_url), 201, {"Cache-Control": "no-store"}),
    )


@router.operation("DELETE", "Delete the trigger URL of a job", {204: None}, 409)
async def delete_hook(about: JobRequestDep) -> Response:
    """It stops working at once, and so does the one before it."""
    await about.perform(partial(about.services.jobs.hooks.delete, *about.job))
    return no_content()


@outside_router.post(
    "/hooks/{token}",
    status_code=202,
    summary="Run a job by its trigger URL",
    responses=responses(
        {202: "HookRun"},
        *(400, 404, 409, 413, 422, 429, 503),
        headers=(REPLAYED,),
        always=False,
    ),
    openapi_extra=_any_body(),
)
async def fire_hook(
    token: str, request: Request, services: ServicesDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """The body is the payload of the run: JSON, a form, or text; without one, the run has that of the job.

    The token is the only credential. The query is ignored. Without `Idempotency-Key`, the header `webhook-id`
    of Standard Webhooks has the same meaning; without both, every request starts a run.
    """
    hooks = services.jobs.hooks
    caller = await hooks.authenticate(token, request.client.host if request.client else None)
    request.state.actor = caller.principal.actor
    body = await request.body()
    try:
        payload = read_body(request.headers.get("content-type", ""), body)
    except NotJson as error:
        raise Malformed(error.message) from None
    key = idempotency_key_of(request)
    if key is None:
        key = request.headers.get("webhook-id")
    return await respond_by_key(
        request,
        per_job(caller),
        caller.job.workspace,
        key,
        ("hook", caller.job.id, body),
        partial(hooks.fire, caller, payload),
        lambda run: JsonResponse(serialize_hook_run(run), 202, _SECRET),
    )


@outside_router.post(
    "/hooks/events/{source}",
    status_code=204,
    summary="Receive an event for a job",
    responses=responses(
        {200: "EventChallenge", 204: None, 410: None}, *(401, 403, 409, 413, 422, 503), always=False
    ),
)
async def receive_event(source: str, request: Request, services: ServicesDep) -> Response:
    """A message of an MCP server to which a job has subscribed (`on`), signed as in Standard Webhooks.

    An event that was received is not received again. A verification is answered with its challenge. 410: the
    subscription has ended.
    """
    headers = {name.lower(): value for name, value in request.headers.items()}
    try:
        answer = await services.jobs.events.receive(source, headers, await request.body())
    except NotFound:
        return Response(status_code=410)
    return no_content() if answer is None else JsonResponse(answer)
