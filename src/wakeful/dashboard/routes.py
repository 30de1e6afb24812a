"""The routes of the dashboard: the pages, the static files, and `/`."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from wakeful.api.http.dependencies import current_principal
from wakeful.api.http.root_path import href
from wakeful.dashboard import pages
from wakeful.dashboard.context import PageDep, PageRoute, page_router
from wakeful.dashboard.render import router as static_files
from wakeful.errors import NotFound

router = APIRouter(include_in_schema=False, route_class=PageRoute)

#: The cookie with the workspace that was shown last.
WORKSPACE: Final = "wakeful_workspace"


@router.get("/")
async def start(request: Request) -> Response:
    """Go to the home page of the caller's workspace."""
    principal = await current_principal(request)
    last = request.cookies.get(WORKSPACE, "")
    own = last if last in principal.workspaces else principal.workspace
    workspace = own or (last if last.isascii() and last.replace("-", "").isalnum() else "default")
    return RedirectResponse(href(f"/workspaces/{workspace}/"), 303)


_unknown = page_router()


@_unknown.get("")
async def without_slash(page: PageDep) -> Response:
    """Go to the home page, whose address ends with a slash."""
    return RedirectResponse(page.url(), 303)


@_unknown.get("/{rest:path}")
async def refuse_unknown_page(page: PageDep, rest: str) -> Response:
    """Return the page for an address without a page."""
    raise NotFound("there is no page at this address")


def routers() -> list[APIRouter]:
    """Return all routers of the dashboard: every module of `wakeful.dashboard.pages` has one."""
    names = sorted(module.name for module in iter_modules(pages.__path__))
    found = [import_module(f"{pages.__name__}.{name}").router for name in names]
    return [router, static_files, *found, _unknown]
