"""Channels: names and kinds, recent deliveries, and a test message."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from wakeful.dashboard.context import PageDep, page_router

router = page_router()

#: The states of deliveries in the order of the columns.
STATES: Final = ("delivered", "pending", "failed", "unknown", "suppressed")


@router.get("/channels")
async def channels(page: PageDep) -> Response:
    """List channels with their recent deliveries."""
    found = await page.services.channels.list(page.principal, page.workspace)
    return page.render(
        "channels.html",
        title="Channels",
        active="channels",
        channels=found,
        deliveries=await page.services.channels.deliveries(page.principal, page.workspace),
        installed=page.services.channels.installed,
        states=STATES,
    )
