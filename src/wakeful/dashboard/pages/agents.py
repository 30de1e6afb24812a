"""Agents: the list, one agent, its forms and instances; a session of an agent as a chat."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from starlette.responses import Response

from wakeful.agents.sessions import parse_queue
from wakeful.api.http.paths import INSTANCE
from wakeful.dashboard.context import PageDep, PageRequest, page_router
from wakeful.dashboard.markdown import prepare_markdown
from wakeful.document.agents import session_name
from wakeful.errors import NotFound
from wakeful.job.target_kinds import find_kind
from wakeful.run.conversations import JOB_SESSION
from wakeful.service.agents.agents import FIELDS
from wakeful.service.agents.overviews import COUNTED, COUNTED_IN_LIST, AgentSummary, remaining
from wakeful.service.agents.sessions import Conversation, HistoryRow, read_history_cursor
from wakeful.service.auth.access import permit
from wakeful.service.runs.run_details import RunView
from wakeful.service.serializers import serialize_agent

router = page_router()

_PAGE: Final = 50
_RUNS: Final = 15
_INSTANCES: Final = 20
#: With more sessions, they are listed by name.
_SESSIONS: Final = 200
#: Fields with a control of their own in the form; the others are JSON.
_CONTROLS: Final = (
    "target", "tz", "channel", "to", "description", "active", "approval", "evolution", "heartbeat", "budget",
)  # fmt: skip
_MAILBOX: Final = 50
_INSTANCE_RUNS: Final = 20
Role = Literal["user", "assistant", "note"]


def _agent_values(page: PageRequest, summary: AgentSummary) -> dict[str, Any]:
    """Return what templates show of an agent."""
    document = serialize_agent(page.principal, summary.row)
    beat = document["heartbeat"] if isinstance(document["heartbeat"], dict) else None
    kind = find_kind(document["target"] if isinstance(document["target"], dict) else None)
    return {
        **document,
        "is_signed": kind is not None and kind.is_signed,
        "overview": summary.overview,
        "beat": beat,
        "beat_job": summary.heartbeat,
        "last_beat": summary.last_beat,
        "budgets": remaining(summary.row.budget, summary.spent),
    }


@router.get("/agents")
async def agents(page: PageDep) -> Response:
    """List the agents."""
    search = page.query.get("q", "")
    found = await page.services.agents.overviews.list(
        page.principal, page.workspace, search=search, after=page.query.get("cursor"), limit=_PAGE + 1
    )
    shown = [_agent_values(page, summary) for summary in found[:_PAGE]]
    return page.render(
        "agents.html",
        title="Agents",
        active="agents",
        agents=shown,
        search=search,
        most=COUNTED_IN_LIST,
        cursor=shown[-1]["name"] if len(found) > _PAGE else None,
    )


@router.get("/new-agent")
async def new_agent(page: PageDep) -> Response:
    """Show the form of a new agent."""
    permit(page.principal, "agent.write", page.workspace)
    return _form(page, None, {**dict.fromkeys(FIELDS), "active": True}, None)


@router.get("/agents/{agent}")
async def agent(page: PageDep, agent: str) -> Response:
    """Show one agent."""
    services, principal, workspace = page.services, page.principal, page.workspace
    summary = await services.agents.overviews.get(principal, workspace, agent)
    after = page.query.get("sessions")
    sessions = await services.agents.sessions.list(principal, workspace, agent, after, _SESSIONS + 1)
    more_sessions = sessions[_SESSIONS - 1].name if len(sessions) > _SESSIONS else None
    shown = sessions[:_SESSIONS]
    if after is None and more_sessions is None:
        shown = sorted(shown, key=lambda session: session.updated_ms, reverse=True)
    return page.render(
        "agent.html",
        title=agent,
        active="agents",
        agent=_agent_values(page, summary),
        most=COUNTED,
        agent_class=await services.agents.overviews.agent_class(principal, workspace, agent),
        instances=await services.agents.instances.list(principal, workspace, agent, limit=_INSTANCES + 1),
        shown_instances=_INSTANCES,
        sessions=shown,
        more_sessions=more_sessions,
        runs=await services.runs.list(principal, workspace, agent, limit=_RUNS),
    )


@router.get("/agents/{agent}/edit")
async def edit_agent(page: PageDep, agent: str) -> Response:
    """Show the form of an agent."""
    permit(page.principal, "agent.write", page.workspace, agent)
    row = await page.services.agents.get(page.principal, page.workspace, agent)
    return _form(page, agent, serialize_agent(page.principal, row), row.version)


def _form(page: PageRequest, name: str | None, document: dict[str, Any], version: int | None) -> Response:
    rest = {
        key: document[key] for key in FIELDS if key not in _CONTROLS and document.get(key) not in (None, [])
    }
    return page.render(
        "agent_form.html",
        title="New agent" if name is None else f"Edit {name}",
        active="agents",
        name=name,
        document=document,
        version=version,
        rest=rest,
    )


@router.get("/agents/{agent}/instances")
async def instances(page: PageDep, agent: str) -> Response:
    """List the instances of an agent."""
    after = page.query.get("cursor")
    status = page.query.get("status")
    found = await page.services.agents.instances.list(
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


@router.get(f"/agents/{{agent}}/instances/{INSTANCE}")
async def instance(page: PageDep, agent: str, instance: str) -> Response:
    """Show one instance."""
    services, principal, workspace = page.services, page.principal, page.workspace
    found = await services.agents.instances.get(principal, workspace, agent, instance)
    details = services.agents.instances.for_page(found)
    return page.render(
        "instance.html",
        title=f"{agent}/{instance}",
        active="agents",
        agent=agent,
        details=details,
        row=details.view.row,
        mailbox=await services.agents.instances.mailbox(principal, workspace, agent, instance, _MAILBOX),
        runs=await services.runs.list(principal, workspace, agent, instance=instance, limit=_INSTANCE_RUNS),
    )


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
    said = bubbles(entries, turns, found.said if found else {}, first_page=before is None)
    waiting = found.waiting if found and before is None else []
    await prepare_markdown(each.text for each in said if each.role != "note")
    await prepare_markdown(each.body for each in waiting)
    return page.render(
        "session.html",
        title=session,
        active="agents",
        agent=agent,
        session=session,
        is_new=found is None,
        view=found.view if found else None,
        bubbles=said,
        waiting=waiting,
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


def bubbles(
    entries: Sequence[HistoryRow],
    turns: Sequence[RunView],
    said: Mapping[str, Sequence[str]],
    *,
    first_page: bool,
) -> list[Bubble]:
    """Return what is shown, oldest first. Open turns are on the first page, with the newest entries.

    `said` has the messages of turns by run: each is a bubble.
    """
    shown: list[Bubble] = []
    for number, entry in enumerate(reversed(entries)):
        role: Role = "user" if entry.role == "user" else "assistant"
        texts = _one_by_one(entry.content, said.get(entry.run_id, ())) if role == "user" else [entry.content]
        shown += [
            Bubble(
                f"{entry.run_id}-{entry.role}-{number}-{part}", role, text, entry.at_ms, entry.run_id,
                entry.job_name,
            )
            for part, text in enumerate(texts)
        ]  # fmt: skip
    if not first_page:
        return shown
    for turn in turns:
        shown += _turn_bubbles(turn, said.get(turn.id, ()))
    return sorted(shown, key=lambda bubble: bubble.at_ms)


def _one_by_one(text: str, messages: Sequence[str]) -> Sequence[str]:
    """Return these messages if they are the text; else the text, as of a run that has been pruned."""
    return messages if "\n".join(messages) == text and messages else [text]


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


def _turn_bubbles(turn: RunView, messages: Sequence[str]) -> list[Bubble]:
    end_ms = turn.finished_ms if turn.finished_ms is not None else turn.created_ms
    texts = _one_by_one(message_text(turn.payload), messages)
    return [
        *(
            Bubble(f"{turn.id}-user-{part}", "user", text, turn.created_ms, turn.id)
            for part, text in enumerate(texts)
        ),
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
