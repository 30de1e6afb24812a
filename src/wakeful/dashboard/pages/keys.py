"""API keys: list, create, revoke; and their sign-in sessions."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from wakeful.dashboard.context import PageDep, page_router
from wakeful.errors import InvalidArgument, NotFound
from wakeful.service.auth.keys import KeyRow

router = page_router()

_SHOWN: Final = 200


@router.get("/keys")
async def keys(page: PageDep) -> Response:
    """List keys: valid ones first."""
    show = page.query.get("show", "valid")
    if show not in ("valid", "all"):
        raise InvalidArgument("show: choose valid or all")
    found = await page.services.keys.list(page.principal, page.workspace)
    rows = sorted(found, key=lambda row: -row.created_ms)
    valid = [row for row in rows if state_of(row, page.now_ms) == "valid"]
    shown = valid if show == "valid" else rows
    return page.render(
        "keys.html",
        title="Keys",
        active="keys",
        rows=[(row, state_of(row, page.now_ms)) for row in shown[:_SHOWN]],
        more=max(0, len(shown) - _SHOWN),
        hidden=len(rows) - len(valid),
        show=show,
        own=page.principal.actor.removeprefix("key:"),
    )


@router.get("/keys/{key_id}")
async def key(page: PageDep, key_id: str) -> Response:
    """Show a key with its sign-in sessions."""
    found = await page.services.keys.list(page.principal, page.workspace)
    row = next((row for row in found if row.id == key_id), None)
    if row is None:
        raise NotFound("no such key; open the list of keys")
    return page.render(
        "key.html",
        title=row.name,
        active="keys",
        key=row,
        state=state_of(row, page.now_ms),
        sessions=await page.services.web_sessions.list(page.principal, page.workspace, key_id),
        own=page.principal.actor.removeprefix("key:"),
    )


def state_of(row: KeyRow, now_ms: int) -> str:
    """Return whether a key is `valid`, `expired` or `revoked`."""
    if row.revoked_ms is not None:
        return "revoked"
    return "expired" if row.expires_ms is not None and row.expires_ms <= now_ms else "valid"
