"""The routes of the dashboard: the pages, the static files, and `/`."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from wakeful.api.http.dependencies import current_principal
from wakeful.dashboard import assets
from wakeful.dashboard.context import PageRoute

router = APIRouter(include_in_schema=False, route_class=PageRoute)

#: The modules of `wakeful.dashboard.pages`. A path with a parameter comes after the fixed paths beside it.
PAGES: Final = ("home",)
#: The cookie with the workspace that was shown last.
WORKSPACE: Final = "wakeful_workspace"


@router.get("/")
async def start(request: Request) -> Response:
    """Go to the home page of the caller's workspace."""
    principal = await current_principal(request)
    last = request.cookies.get(WORKSPACE, "")
    workspace = principal.workspace or (
        last if last.isascii() and last.replace("-", "").isalnum() else "default"
    )
    return RedirectResponse(f"/workspaces/{workspace}/", 303)


def routers() -> list[APIRouter]:
    """Return all routers of the dashboard."""
    pages = [import_module(f"wakeful.dashboard.pages.{name}").router for name in PAGES]
    return [router, assets.router, *pages]
