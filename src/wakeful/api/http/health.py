"""Whether the process lives, and whether it is ready: for whoever watches over it. Nobody needs a key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

from fastapi import APIRouter, Request
from starlette.responses import Response

from wakeful.api.http.responses import JsonResponse, responses
from wakeful.errors import Unavailable

#: Says what is not ready, or None.
Ready = Callable[[], Awaitable[str | None]]

router = APIRouter(tags=["health"])


@router.get(
    "/healthz", summary="Whether the process lives", responses=responses({200: "Health"}, always=False)
)
async def get_health() -> Response:
    """It answers: so it does."""
    return JsonResponse({"status": "ok"})


@router.get(
    "/readyz", summary="Whether it is ready for work", responses=responses({200: "Health"}, 503, always=False)
)
async def get_readiness(request: Request) -> Response:
    """The database answers, and every loop of the engine is alive."""
    flaw = await cast(Ready, request.app.state.ready)()
    if flaw is not None:
        raise Unavailable(flaw)
    return JsonResponse({"status": "ready"})
