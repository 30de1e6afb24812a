"""The workspace: zone, budget and alerts; and for operators, the list of workspaces and a new one."""

from __future__ import annotations

import json
from typing import Final

from starlette.responses import Response

from wakeful.dashboard.context import PageDep, page_router
from wakeful.dashboard.formats import pretty
from wakeful.service.serializers import serialize_workspace

router = page_router()

_SHOWN: Final = 50


@router.get("/workspace")
async def workspace(page: PageDep) -> Response:
    """Show the workspace, and let operators edit it."""
    row = await page.services.workspaces.get(page.principal, page.workspace)
    shown = serialize_workspace(page.principal, row)
    search = page.query.get("search", "")
    names: list[str] = []
    if page.may("operate"):
        found = await page.services.workspaces.search(page.principal, search, _SHOWN + 1)
        names = [each.name for each in found]
    return page.render(
        "workspace.html",
        title="Workspace",
        active="workspace",
        row=row,
        budget=json.loads(row.budget) if row.budget else None,
        alerts=shown["alerts"],
        alerts_text=pretty(shown["alerts"]) if shown["alerts"] else "",
        spent=await page.services.budgets.spent(page.workspace, page.principal.agent or ""),
        names=names[:_SHOWN],
        more=len(names) > _SHOWN,
        search=search,
        may_edit=page.may("operate"),
    )
