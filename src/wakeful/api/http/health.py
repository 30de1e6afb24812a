"""Liveness and readiness probes, without authentication."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

from fastapi import APIRouter, Request
from starlette.responses import Response

from wakeful.api.http.responses import JsonResponse, responses
from wakeful.errors import Unavailable

#: Returns why the process is not ready, or None.
Ready = Callable[[], Awaitable[str | None]]

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Liveness", responses=responses({200: "Health"}, always=False))
async def get_health() -> Response:
    """Responds while the process is alive."""
    return JsonResponse({"status": "ok"})


@router.get("/readyz", summary="Readiness", responses=responses({200: "Health"}, 503, always=False))
async def get_readiness(request: Request) -> Response:
    """Ready if the database responds and every loop of the engine runs."""
    reason = await cast(Ready, request.app.state.ready)()
    if reason is not None:
        raise Unavailable(reason)
    return JsonResponse({"status": "ready"})
