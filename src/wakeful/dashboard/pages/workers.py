"""Workers and executors."""

from __future__ import annotations

from starlette.responses import Response

from wakeful.dashboard.context import PageDep, page_router

router = page_router()


@router.get("/workers")
async def workers(page: PageDep) -> Response:
    """List the processes that take runs, and the executors that hold runs."""
    found = await page.services.workers.list(page.principal, page.workspace)
    return page.render(
        "workers.html",
        title="Workers",
        active="workers",
        workers=found.workers,
        executors=found.executors,
        all_workspaces=page.may("operate"),
    )
