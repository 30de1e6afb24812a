"""The audit log, with filters and a verification of its hash chain."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any, Final

from starlette.responses import Response

from wakeful.dashboard.context import PageDep, PageRequest, page_router
from wakeful.errors import InvalidArgument
from wakeful.service.admin.audit import AuditPage

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
    newest = await page.services.admin.audit.newest(page.principal, page.workspace)
    found = AuditPage([], None)
    try:
        found = await page.services.admin.audit.search(
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
        names=await _key_names(page) if found.rows else {},
        in_words=in_words,
    )


async def _key_names(page: PageRequest) -> dict[str, str]:
    """Return the names of keys by actor."""
    if not page.may("key"):
        return {}
    keys = await page.services.auth.keys.list(page.principal, page.workspace)
    return {f"key:{key.id}": key.name for key in keys}


def in_words(details: str) -> str:
    """Return the details of an entry in one line.

    >>> in_words('{"role":"admin","agent":null,"fields":["tz","target"]}')
    'role admin, fields tz target'
    """
    try:
        read: Any = json.loads(details)
    except ValueError:
        return details
    if not isinstance(read, dict):
        return details
    return ", ".join(f"{name} {_word(value)}" for name, value in read.items() if value is not None)


def _word(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


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
