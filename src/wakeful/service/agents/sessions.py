"""Sessions of an agent: list them, read one with its history, delete one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from wakeful.agents.sessions import delete, split_messages
from wakeful.document import payload_from_text
from wakeful.document.agents import is_session_name
from wakeful.errors import InvalidArgument, NotFound
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import Accounts
from wakeful.store.port import Store
from wakeful.store.rows import RunView
from wakeful.store.sessions import HistoryRow as HistoryRow
from wakeful.store.sessions import SessionKey, SessionMessage, SessionView
from wakeful.values.json_value import compact

#: How many turns and waiting messages of a conversation are read.
_TURNS: Final = 50
_WAITING: Final = 100


@dataclass(frozen=True, slots=True)
class SessionDetails:
    """A session, with a part of its history, newest first."""

    view: SessionView
    entries: list[HistoryRow]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A session as it is shown: its history, and what has no answer in it."""

    view: SessionView
    #: newest first
    entries: list[HistoryRow]
    #: turns that run, wait for a retry, or ended without an answer, newest first
    turns: list[RunView]
    #: messages that wait for a turn, oldest first
    waiting: list[SessionMessage]
    #: by run: what was said in its turn, as far as the run exists, message by message
    said: Mapping[str, list[str]]


class SessionService:
    """Reads and deletes sessions. Messages are sent by `MessageService`."""

    def __init__(self, store: Store, accounts: Accounts) -> None:
        self._store = store
        self._accounts = accounts

    async def list(
        self, principal: Principal, workspace: str, agent: str, after: str | None = None, limit: int = 50
    ) -> list[SessionView]:
        """List the sessions of the agent, by name."""
        await self._accounts.authorize(principal, "read", workspace, agent)
        await self._accounts.agent(workspace, agent)
        return await self._store.sessions(workspace, agent, after, limit)

    async def get(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        name: str,
        before: int | None = None,
        limit: int = 50,
    ) -> SessionDetails:
        """Return a session with the entries of its history before that number, newest first."""
        await self._accounts.authorize(principal, "read", workspace, agent)
        await self._accounts.agent(workspace, agent)
        key = SessionKey(workspace, agent, name)
        view = await self._store.session(key) if is_session_name(name) else None
        if view is None:
            raise _no_session(agent, name)
        return SessionDetails(view, await self._store.history(key, before, limit))

    async def conversation(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        name: str,
        before: int | None = None,
        limit: int = 50,
    ) -> Conversation:
        """Return a session with its history before that number, its open turns and its waiting messages.

        A history has only what succeeded. So the newest turns without success are returned too.
        """
        found = await self.get(principal, workspace, agent, name, before, limit)
        key = SessionKey(workspace, agent, name)
        runs = await self._store.recent_turns(key, _TURNS)
        turns = [run for run in runs if run.state != "succeeded" and run.created_ms >= found.view.created_ms]
        older = {entry.run_id for entry in found.entries if entry.role == "user"} - {run.id for run in runs}
        runs += await self._store.existing_runs(sorted(older)) if older else []
        said = {run.id: split_messages(payload_from_text(run.payload)) for run in runs}
        waiting = await self._store.waiting_messages(key, _WAITING)
        return Conversation(found.view, found.entries, turns, waiting, said)

    async def delete(self, principal: Principal, workspace: str, agent: str, name: str) -> None:
        """Delete a session with its history. Its turns stop, and its waiting messages are dropped."""
        await self._accounts.authorize(principal, "session.delete", workspace, agent)
        await self._accounts.agent(workspace, agent)
        entry = principal.entry(workspace, "session.delete", agent, compact({"session": name}))
        key, now_ms = SessionKey(workspace, agent, name), self._store.clock.now_ms()
        known = is_session_name(name)
        if not known or await self._store.delete_session(key, now_ms, delete, [entry]) is None:
            raise _no_session(agent, name)


def read_history_cursor(cursor: str | None) -> int | None:
    """Return the number of the entry where the previous page of a history ended."""
    if cursor is None:
        return None
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise InvalidArgument(
            "cursor: it is not a cursor of this history; use that of the previous page, or leave it out"
        )
    return int(cursor)


def _no_session(agent: str, name: str) -> NotFound:
    return NotFound(f"agent '{agent}' has no session '{name[:128]}'; list its sessions to see their names")
