"""Settings of the process that answers, and the checks of the installation."""

from __future__ import annotations

from typing import Any, cast

from starlette.responses import Response

from wakeful.dashboard.context import PageDep, page_router

router = page_router()


@router.get("/settings")
async def settings(page: PageDep) -> Response:
    """Show the settings with their source, and the checks of `wakeful doctor`."""
    found = await page.services.settings.list(page.principal, page.workspace)
    doctor = await page.services.doctor.examine(page.principal, page.workspace)
    return page.render(
        "settings.html",
        title="Settings",
        active="settings",
        changed=[each for each in found if each.source != "default"],
        defaults=[each for each in found if each.source == "default"],
        state=doctor["state"],
        checks=cast(list[dict[str, Any]], doctor["checks"]),
    )
