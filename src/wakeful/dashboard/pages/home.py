"""The home page of a workspace."""

from __future__ import annotations

from starlette.responses import Response

from wakeful.dashboard.context import PageDep, page_router

router = page_router()


@router.get("/")
async def home(page: PageDep) -> Response:
    """Show what needs attention, what runs next, and what ran today."""
    status = await page.services.status.status(page.principal, page.workspace)
    return page.render("home.html", title="Home", active="home", status_document=status)
