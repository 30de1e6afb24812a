"""A session of an agent as a chat: its history, what is being answered, and what failed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from starlette.responses import Response

from wakeful.agents.sessions import parse_queue
from wakeful.dashboard.context import PageDep, page_router
from wakeful.document.agents import session_name
from wakeful.errors import NotFound
from wakeful.run.conversations import JOB_SESSION
from wakeful.service.agents.sessions import Conversation, HistoryRow, read_history_cursor
from wakeful.service.runs.run_details import RunView

router = page_router()

_PAGE: Final = 50
Role = Literal["user", "assistant", "note"]


@router.get("/agents/{agent}/sessions/{session:path}")
async def session(page: PageDep, agent: str, session: str) -> Response:
    """Show a conversation. One that does not exist yet begins with its first message."""
    services, principal, workspace = page.services, page.principal, page.workspace
    before = read_history_cursor(page.query.get("cursor"))
    found: Conversation | None = None
    try:
        found = await services.agents.sessions.conversation(
            principal, workspace, agent, session, before, _PAGE + 1
        )
    except NotFound:
        session_name(session)  # a valid name is a new conversation
    row = await services.agents.get(principal, workspace, agent)
    entries = found.entries[:_PAGE] if found else []
    turns = found.turns if found else []
    queue = parse_queue(row.queue)
    return page.render(
        "session.html",
        title=session,
        active="agents",
        agent=agent,
        session=session,
        is_new=found is None,
        view=found.view if found else None,
        bubbles=bubbles(entries, turns, first_page=before is None),
        waiting=found.waiting if found and before is None else [],
        is_busy=any(turn.state in ("pending", "running", "retrying") for turn in turns),
        older=entries[-1].sequence if found and len(found.entries) > _PAGE else None,
        is_first_page=before is None,
        queue=queue,
        takes_messages=not session.startswith(JOB_SESSION),
        is_active=row.active,
    )


@dataclass(frozen=True, slots=True)
class Bubble:
    """What one side said, or a note about a turn."""

    key: str
    role: Role
    text: str
    at_ms: int
    run_id: str
    job: str | None = None
    #: of a note: the state of the turn
    state: str | None = None


def bubbles(entries: Sequence[HistoryRow], turns: Sequence[RunView], *, first_page: bool) -> list[Bubble]:
    """Return what is shown, oldest first. Open turns are on the first page, with the newest entries."""
    shown = [
        Bubble(
            f"{entry.run_id}-{entry.role}-{number}",
            "user" if entry.role == "user" else "assistant",
            entry.content,
            entry.at_ms,
            entry.run_id,
            entry.job_name,
        )
        for number, entry in enumerate(reversed(entries))
    ]
    if not first_page:
        return shown
    for turn in turns:
        shown += _turn_bubbles(turn)
    return sorted(shown, key=lambda bubble: bubble.at_ms)


def message_text(payload: str | None) -> str:
    """Return the message of a turn.

    >>> (
    ...     message_text('{"session":"main","message":"hello","messages":["1"]}'),
    ...     message_text(None),
    ...     message_text("[]"),
    ... )
    ('hello', '', '')
    """
    try:
        value = json.loads(payload) if payload else None
    except ValueError:
        return ""
    if isinstance(value, dict) and isinstance(value.get("data"), dict) and "message" not in value:
        value = value["data"]
    return str(value.get("message", "")) if isinstance(value, dict) else ""


def _turn_bubbles(turn: RunView) -> list[Bubble]:
    end_ms = turn.finished_ms if turn.finished_ms is not None else turn.created_ms
    return [
        Bubble(f"{turn.id}-user", "user", message_text(turn.payload), turn.created_ms, turn.id),
        Bubble(
            f"{turn.id}-note", "note", _note(turn), max(end_ms, turn.created_ms), turn.id, None, turn.state
        ),
    ]


def _note(turn: RunView) -> str:
    if turn.state == "failed":
        return turn.error or "The turn failed."
    if turn.state == "cancelled":
        return f"Stopped ({turn.reason})." if turn.reason not in (None, "stopped") else "Stopped."
    if turn.state == "retrying":
        return f"Tried without success, and is tried again: {turn.error or 'no error was reported'}"
    if turn.state == "running":
        return "Answering…"
    return "Waits to be started…"
