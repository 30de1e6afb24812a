"""Workers, channels and settings over HTTP."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from wakeful.api.http.dependencies import SECURED, CurrentPrincipal, OptionalDocument, ServicesDep
from wakeful.api.http.responses import BODY, JsonResponse, request_body, responses
from wakeful.errors import InvalidArgument
from wakeful.service.operation_serializers import (
    serialize_channel,
    serialize_delivery,
    serialize_executor,
    serialize_setting,
    serialize_test,
    serialize_worker,
)

router: Final = APIRouter(prefix="/api/workspaces/{workspace}", tags=["operations"], dependencies=SECURED)


@router.get("/workers", summary="List workers and executors", responses=responses({200: "Workers"}))
async def list_workers(workspace: str, services: ServicesDep, principal: CurrentPrincipal) -> Response:
    """The processes that take runs, with their last heartbeat, and the executors that hold claimed runs.

    A key for all workspaces sees all runs and functions, the admin of a workspace those of the workspace.
    """
    found = await services.workers.list(principal, workspace)
    return JsonResponse(
        {
            "workers": [serialize_worker(each) for each in found.workers],
            "executors": [serialize_executor(each) for each in found.executors],
        }
    )


@router.get("/channels", summary="List channels", responses=responses({200: "Channels"}))
async def list_channels(workspace: str, services: ServicesDep, principal: CurrentPrincipal) -> Response:
    """Names and kinds of the channels, and the recent deliveries of the workspace; never their URLs."""
    channels = await services.channels.list(principal, workspace)
    deliveries = await services.channels.deliveries(principal, workspace)
    return JsonResponse(
        {
            "channels": [serialize_channel(each) for each in channels],
            "deliveries": [serialize_delivery(each) for each in deliveries],
        }
    )


@router.post(
    "/channels/{channel}/test",
    summary="Send a test message",
    responses=responses({200: "ChannelTest"}, *BODY, 429),
    openapi_extra=request_body("ChannelTestDocument", {"to": "@ada"}, required=False),
)
async def test_channel(
    workspace: str,
    channel: str,
    services: ServicesDep,
    principal: CurrentPrincipal,
    document: OptionalDocument,
) -> Response:
    """Wait for the response of the service. At most 6 a minute for each channel. Requires the role admin."""
    to = document.get("to")
    if to is not None and not isinstance(to, str):
        raise InvalidArgument("to: write the recipient as text, or leave it out")
    return JsonResponse(serialize_test(await services.channels.test(principal, workspace, channel, to)))


@router.get("/settings", summary="List settings", responses=responses({200: "Settings"}))
async def list_settings(workspace: str, services: ServicesDep, principal: CurrentPrincipal) -> Response:
    """The settings of this process with their source. Of a secret, only whether it is set."""
    found = await services.settings.list(principal, workspace)
    return JsonResponse({"settings": [serialize_setting(each) for each in found]})
