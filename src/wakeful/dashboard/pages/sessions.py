"""A session of an agent as a chat."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from wakeful.agents.sessions import queue_of
from wakeful.dashboard.context import PageDep, page_router
from wakeful.dashboard.conversation import bubbles
from wakeful.document.agents import session_name
from wakeful.errors import NotFound
from wakeful.run.conversations import JOB_SESSION
from wakeful.service.agents.sessions import Conversation, read_history_cursor

router = page_router()

_PAGE: Final = 50


@router.get("/agents/{agent}/sessions/{session:path}")
async def session(page: PageDep, agent: str, session: str) -> Response:
    """Show a conversation. One that does not exist yet begins with its first message."""
    services, principal, workspace = page.services, page.principal, page.workspace
    before = read_history_cursor(page.query.get("cursor"))
    found: Conversation | None = None
    try:
        found = await services.sessions.conversation(principal, workspace, agent, session, before, _PAGE + 1)
    except NotFound:
        session_name(session)  # a valid name is a new conversation
    row = await services.agents.get(principal, workspace, agent)
    entries = found.entries[:_PAGE] if found else []
    turns = found.turns if found else []
    queue = queue_of(row.queue)
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
