"""The pages of administration: workspace, keys, quotas, channels, workers, settings, and the audit log."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, cast

from starlette.responses import Response

from wakeful.dashboard.context import PageDep, page_router
from wakeful.dashboard.formats import isolate, pretty
from wakeful.errors import InvalidArgument, NotFound
from wakeful.service.admin.audit import AuditPage
from wakeful.service.admin.limits import BUCKETS, CREATE_JOB, INSTANCES, LIVE_JOBS
from wakeful.service.auth.keys import KeyRow
from wakeful.service.serializers import masked_url, serialize_workspace

router = page_router()

#: How many workspaces, keys and quotas a page shows.
_WORKSPACES: Final = 50
_KEYS: Final = 200
_QUOTAS: Final = 500
_SUBSCRIPTIONS: Final = 100
#: The words for the buckets.
_BUCKET_WORDS: Final = {
    CREATE_JOB: "Jobs created today",
    LIVE_JOBS: "Jobs that exist",
    INSTANCES: "Instances that exist",
}
#: The states of deliveries in the order of the columns.
_DELIVERY_STATES: Final = ("delivered", "pending", "failed", "unknown", "suppressed")
_SHOWN: Final = 50
_FILTERS: Final = ("actor", "action", "subject", "since", "until")
#: Kinds of actions, for the list of the filter.
_KINDS: Final = (
    "job", "run", "agent", "key", "person", "subscription", "session", "instance", "suggestion", "incident",
    "dead-letter", "workspace", "quota", "workflow", "channel",
)  # fmt: skip


@router.get("/workspace")
async def workspace(page: PageDep) -> Response:
    """Show the workspace, and let operators edit it."""
    row = await page.services.agents.workspaces.get(page.principal, page.workspace)
    shown = serialize_workspace(page.principal, row)
    search = page.query.get("search", "")
    names: list[str] = []
    if page.may("operate"):
        found = await page.services.agents.workspaces.search(page.principal, search, _WORKSPACES + 1)
        names = [each.name for each in found]
    return page.render(
        "workspace.html",
        title="Workspace",
        active="workspace",
        row=row,
        budget=json.loads(row.budget) if row.budget else None,
        alerts=shown["alerts"],
        alerts_text=pretty(shown["alerts"]) if shown["alerts"] else "",
        spent=await page.services.admin.budgets.spent(page.workspace, page.principal.agent or ""),
        names=names[:_WORKSPACES],
        more=len(names) > _WORKSPACES,
        search=search,
        may_edit=page.may("operate"),
    )


@router.get("/keys")
async def keys(page: PageDep) -> Response:
    """List keys: valid ones first. Who may not see them sees the assistants that he connected."""
    if not page.may("key") and page.principal.is_person:
        mine = await page.services.auth.keys.assistants(page.principal, page.workspace)
        shown = [(row, key_state(row, page.now_ms)) for row in sorted(mine, key=lambda row: -row.created_ms)]
        return page.render("assistants.html", title="Assistants", active="keys", rows=shown, own="")
    show = page.query.get("show", "valid")
    if show not in ("valid", "all"):
        raise InvalidArgument("show: choose valid or all")
    found = await page.services.auth.keys.list(page.principal, page.workspace)
    rows = sorted(found, key=lambda row: -row.created_ms)
    valid = [row for row in rows if key_state(row, page.now_ms) == "valid"]
    chosen = valid if show == "valid" else rows
    return page.render(
        "keys.html",
        title="Keys",
        people=await page.services.auth.people.list(page.principal, page.workspace),
        active="keys",
        rows=[(row, key_state(row, page.now_ms)) for row in chosen[:_KEYS]],
        more=max(0, len(chosen) - _KEYS),
        hidden=len(rows) - len(valid),
        show=show,
        own=page.principal.actor.removeprefix("key:"),
    )


@router.get("/keys/{key_id}")
async def key(page: PageDep, key_id: str) -> Response:
    """Show a key with its sign-in sessions."""
    found = await page.services.auth.keys.list(page.principal, page.workspace)
    row = next((row for row in found if row.id == key_id), None)
    if row is None:
        raise NotFound("no such key; open the list of keys")
    return page.render(
        "key.html",
        title=row.name,
        active="keys",
        key=row,
        state=key_state(row, page.now_ms),
        sessions=await page.services.auth.web_sessions.list(page.principal, page.workspace, key_id),
        own=page.principal.actor.removeprefix("key:"),
    )


def key_state(row: KeyRow, now_ms: int) -> str:
    """Return whether a key is `valid`, `expired` or `revoked`."""
    if row.revoked_ms is not None:
        return "revoked"
    return "expired" if row.expires_ms is not None and row.expires_ms <= now_ms else "valid"


class QuotaItem(NamedTuple):
    """A bucket as the page shows it."""

    agent: str | None
    bucket: str
    label: str
    used: int
    #: the limit that applies; None: no limit
    limit: int | None
    #: whether it is set for this owner, or the installation's default
    is_set: bool


@router.get("/quotas")
async def quotas(page: PageDep) -> Response:
    """List limits and use."""
    found = await page.services.admin.quotas.list(page.principal, page.workspace)
    defaults = page.services.admin.quotas.defaults
    items = [
        QuotaItem(
            row.agent or None,
            row.bucket,
            _BUCKET_WORDS[row.bucket],
            row.used,
            defaults.get((row.bucket, bool(row.agent))) if row.limit is None else row.limit,
            row.limit is not None,
        )
        for row in found
    ]
    items.sort(key=lambda each: (each.agent is not None, -_share(each), each.agent or "", each.bucket))
    return page.render(
        "quotas.html",
        title="Quotas",
        active="quotas",
        items=items[:_QUOTAS],
        more=max(0, len(items) - _QUOTAS),
        buckets=[[bucket, _BUCKET_WORDS[bucket]] for bucket in BUCKETS],
        may_set=page.may("operate"),
    )


def _share(item: QuotaItem) -> float:
    return item.used / item.limit if item.limit else 0.0


@router.get("/channels")
async def channels(page: PageDep) -> Response:
    """List channels with their recent deliveries."""
    found = await page.services.admin.channels.list(page.principal, page.workspace)
    return page.render(
        "channels.html",
        title="Channels",
        active="channels",
        channels=found,
        deliveries=await page.services.admin.channels.deliveries(page.principal, page.workspace),
        installed=page.services.admin.channels.installed,
        states=_DELIVERY_STATES,
    )


@router.get("/subscriptions")
async def subscriptions(page: PageDep) -> Response:
    """List subscriptions to MCP events, the newest first."""
    service = page.services.agents.subscriptions
    rows = await service.list(page.principal, page.workspace, limit=_SUBSCRIPTIONS + 1)
    return page.render(
        "subscriptions.html",
        title="Subscriptions",
        active="subscriptions",
        rows=[(row, masked_url(row)) for row in rows[:_SUBSCRIPTIONS]],
        more=len(rows) > _SUBSCRIPTIONS,
    )


@router.get("/workers")
async def workers(page: PageDep) -> Response:
    """List the processes that take runs, and the executors that hold runs."""
    found = await page.services.admin.workers.list(page.principal, page.workspace)
    return page.render(
        "workers.html",
        title="Workers",
        active="workers",
        workers=found.workers,
        executors=found.executors,
        all_workspaces=page.may("operate"),
    )


@router.get("/settings")
async def settings(page: PageDep) -> Response:
    """Show the settings with their source, and the checks of `wakeful doctor`."""
    found = await page.services.admin.settings.list(page.principal, page.workspace)
    doctor = await page.services.admin.doctor.examine(page.principal, page.workspace)
    return page.render(
        "settings.html",
        title="Settings",
        active="settings",
        changed=[each for each in found if each.source != "default"],
        defaults=[each for each in found if each.source == "default"],
        state=doctor["state"],
        checks=cast(list[dict[str, Any]], doctor["checks"]),
    )


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
        in_words=in_words,
    )


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
        return " ".join(map(_word, value))
    return isolate(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


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
