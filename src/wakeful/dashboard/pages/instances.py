"""An instance of an agent class."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from wakeful.dashboard.context import PageDep, page_router

router = page_router()

_MAILBOX: Final = 50
_RUNS: Final = 20


@router.get("/agents/{agent}/instances")
async def instances(page: PageDep, agent: str) -> Response:
    """List the instances of an agent."""
    after = page.query.get("cursor")
    status = page.query.get("status")
    found = await page.services.instances.list(
        page.principal,
        page.workspace,
        agent,
        status=status,
        after=(agent, after) if after else None,
        limit=_MAILBOX + 1,
    )
    shown = found[:_MAILBOX]
    return page.render(
        "instances.html",
        title=f"Instances of {agent}",
        active="agents",
        agent=agent,
        chosen=status or "",
        instances=shown,
        cursor=shown[-1].row.name if len(found) > _MAILBOX else None,
    )


@router.get("/agents/{agent}/instances/{instance}")
async def instance(page: PageDep, agent: str, instance: str) -> Response:
    """Show one instance."""
    services, principal, workspace = page.services, page.principal, page.workspace
    found = await services.instances.get(principal, workspace, agent, instance)
    details = services.instances.for_page(found)
    return page.render(
        "instance.html",
        title=f"{agent}/{instance}",
        active="agents",
        agent=agent,
        details=details,
        row=details.view.row,
        mailbox=await services.instances.mailbox(principal, workspace, agent, instance, _MAILBOX),
        runs=await services.runs.list(principal, workspace, agent, instance=instance, limit=_RUNS),
    )
