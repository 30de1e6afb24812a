"""The audit log, with filters and a verification of its hash chain."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from starlette.responses import Response

from wakeful.dashboard.context import PageDep, page_router
from wakeful.errors import InvalidArgument
from wakeful.store.audit import AuditPage

router = page_router()

_SHOWN: Final = 50
_FILTERS: Final = ("actor", "action", "subject", "since", "until")
#: Kinds of actions, for the list of the filter.
_KINDS: Final = (
    "job", "run", "agent", "key", "session", "instance", "suggestion", "incident", "dead-letter",
    "workspace", "quota", "workflow", "channel",
)  # fmt: skip


@router.get("/audit")
async def audit(page: PageDep) -> Response:
    """List entries, newest first."""
    error: str | None = None
    newest = await page.services.audit.newest(page.principal, page.workspace)
    found = AuditPage([], None)
    try:
        found = await page.services.audit.search(
            page.principal,
            page.workspace,
            actor=page.query.get("actor"),
            action=page.query.get("action"),
            subject=page.query.get("subject"),
            since_ms=_instant("since", page.query.get("since")),
            until_ms=_instant("until", page.query.get("until")),
            before=_before(page.query.get("cursor")),
            limit=_SHOWN,
        )
    except InvalidArgument as failed:
        error = failed.message
    return page.render(
        "audit.html",
        title="Audit",
        active="audit",
        error=error,
        entries=found.rows,
        cursor=found.before,
        newest=newest,
        filtered=any(name in page.query for name in _FILTERS),
        kinds=_KINDS,
    )


def _instant(name: str, text: str | None) -> int | None:
    """Return the instant of a control for date and time, in UTC.

    >>> _instant("since", "1970-01-01T00:01"), _instant("since", None)
    (60000, None)
    """
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
        ms = round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise InvalidArgument(f"{name}: '{text[:64]}' is not a time; write 2027-03-01T09:00") from None
    return max(0, ms)


def _before(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not re.fullmatch(r"[0-9]{1,10}", cursor) or int(cursor) >= 2**31:
        raise InvalidArgument("cursor: it is not a cursor of this list; open the page from the menu")
    return int(cursor)
