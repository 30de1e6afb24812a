"""The inbox: what waits for a person, with the decision one click away."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from starlette.responses import Response

from wakeful.dashboard.context import PageDep, PageRequest, page_router
from wakeful.run.inbox import INBOX_KINDS, InboxAction, InboxKind, InboxRow, parse_position, write_position
from wakeful.service.admin.inbox import allowed_actions, deciders, describe_item

router = page_router()

_SHOWN: Final = 50
_EMPTY_LINES: Final = re.compile(r"\n\s*\n")
KINDS: Final[dict[str, str]] = {
    "verification": "Runs to confirm",
    "approval": "Jobs to approve",
    "suggestion": "Suggestions",
    "incident": "Incidents",
}
#: The words on the buttons of each kind.
_APPROVE: Final[dict[InboxKind, str]] = {
    "verification": "Confirm",
    "approval": "Approve",
    "suggestion": "Apply",
    "incident": "Acknowledge",
}
_REJECT: Final[dict[InboxKind, str]] = {
    "verification": "Reject",
    "approval": "Keep paused",
    "suggestion": "Dismiss",
}


class ShownItem(NamedTuple):
    """An item of the inbox as pages show it."""

    row: InboxRow
    kind: str
    detail: str
    #: the page of what it is about
    href: str
    #: what the viewer may do, and the word for it
    actions: Sequence[tuple[InboxAction, str]]
    #: who may decide, if the viewer may not
    deciders: str


@router.get("/inbox")
async def inbox(page: PageDep) -> Response:
    """List what waits, newest first."""
    kind = page.query.get("kind")
    services, principal, workspace = page.services, page.principal, page.workspace
    found = await services.admin.inbox.list(
        principal,
        workspace,
        kinds=() if kind is None else (kind,),
        after=parse_position(page.query.get("cursor")),
        limit=_SHOWN + 1,
    )
    shown = found[:_SHOWN]
    counts = await services.admin.inbox.counts(principal, workspace)
    return page.render(
        "inbox.html",
        title="Inbox",
        active="inbox",
        items=inbox_items(page, shown),
        chosen=kind or "",
        kinds=[
            ("", "All", sum(counts.values())),
            *((each, KINDS[each], counts[each]) for each in INBOX_KINDS),
        ],
        cursor=write_position(shown[-1]) if len(found) > _SHOWN else None,
    )


def inbox_items(page: PageRequest, rows: Sequence[InboxRow]) -> list[ShownItem]:
    """Return items of the inbox as pages show them."""
    return [_item(page, row) for row in rows]


def _item(page: PageRequest, row: InboxRow) -> ShownItem:
    words = {"approve": _APPROVE, "reject": _REJECT}
    actions = [(each, words[each][row.kind]) for each in allowed_actions(page.principal, row.kind)]
    who = "" if actions else " or ".join(deciders(row.kind))
    detail = _EMPTY_LINES.sub("\n", describe_item(row) or "")
    return ShownItem(row, KINDS[row.kind], detail, _href(page, row), actions, who)


def _href(page: PageRequest, row: InboxRow) -> str:
    if row.kind == "verification":
        return page.url("runs", row.subject_id)
    if row.kind == "approval":
        return page.url("agents", row.agent, "jobs", str(row.job_name))
    return page.url("suggestions") if row.kind == "suggestion" else page.url("incidents", row.subject_id)
