"""A conversation as bubbles: its history, what is being answered, and what failed. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Role = Literal["user", "assistant", "note"]


class Entry(Protocol):
    """An entry of a history."""

    @property
    def role(self) -> str:
        """`user` or `assistant`."""
        ...

    @property
    def content(self) -> str:
        """What was said."""
        ...

    @property
    def run_id(self) -> str:
        """The run that added it."""
        ...

    @property
    def job_name(self) -> str | None:
        """The job, if a job added an answer to the conversation."""
        ...

    @property
    def at_ms(self) -> int:
        """When it was said."""
        ...


class Turn(Protocol):
    """A run of a turn that is not in the history."""

    @property
    def id(self) -> str:
        """The run's id."""
        ...

    @property
    def state(self) -> str:
        """The run's state."""
        ...

    @property
    def payload(self) -> str | None:
        """The stored text of what was sent."""
        ...

    @property
    def error(self) -> str | None:
        """Why it failed."""
        ...

    @property
    def reason(self) -> str | None:
        """Why it was cancelled."""
        ...

    @property
    def created_ms(self) -> int:
        """When the turn began."""
        ...

    @property
    def finished_ms(self) -> int | None:
        """When it ended."""
        ...


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


def bubbles(entries: Sequence[Entry], turns: Sequence[Turn], *, first_page: bool) -> list[Bubble]:
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
        shown += _of_turn(turn)
    return sorted(shown, key=lambda bubble: bubble.at_ms)


def said(payload: str | None) -> str:
    """Return the message of a turn.

    >>> said('{"session":"main","message":"hello","messages":["1"]}'), said(None), said("[]")
    ('hello', '', '')
    """
    try:
        value = json.loads(payload) if payload else None
    except ValueError:
        return ""
    if isinstance(value, dict) and isinstance(value.get("data"), dict) and "message" not in value:
        value = value["data"]
    return str(value.get("message", "")) if isinstance(value, dict) else ""


def _of_turn(turn: Turn) -> list[Bubble]:
    end_ms = turn.finished_ms if turn.finished_ms is not None else turn.created_ms
    return [
        Bubble(f"{turn.id}-user", "user", said(turn.payload), turn.created_ms, turn.id),
        Bubble(
            f"{turn.id}-note", "note", _note(turn), max(end_ms, turn.created_ms), turn.id, None, turn.state
        ),
    ]


def _note(turn: Turn) -> str:
    if turn.state == "failed":
        return turn.error or "The turn failed."
    if turn.state == "cancelled":
        return f"Stopped ({turn.reason})." if turn.reason not in (None, "stopped") else "Stopped."
    if turn.state == "retrying":
        return f"Tried without success, and is tried again: {turn.error or 'no error was reported'}"
    if turn.state == "running":
        return "Answering…"
    return "Waits to be started…"
