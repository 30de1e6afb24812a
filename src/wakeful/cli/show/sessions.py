"""Tables and pages of sessions, and the entries of their histories."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wakeful.cli.show.tables import Cell, escaped, page, table
from wakeful.cli.times import instant, relative
from wakeful.client.types import HistoryShape, SessionHistoryShape, SessionShape


def session_table(sessions: Sequence[SessionShape], now_ms: int) -> Table:
    """Return a table with a line per session."""
    rows: list[list[Cell]] = [
        [
            Text(session["name"], "bold"),
            str(session["messages"]),
            ", ".join(session["turns"]),
            _context(session),
            _channel(session),
            _relative(session["updatedAt"], now_ms),
        ]
        for session in sessions
    ]
    columns = ["SESSION", "QUEUED", "RUNNING", "CONTEXT", "CHANNEL", "LAST USED"]
    return table(columns, rows, elastic="RUNNING")


def session_page(session: SessionHistoryShape, now_ms: int) -> list[RenderableType]:
    """Return a page with the state of a session, and its history, oldest first."""
    fields = page(
        {
            "session": Text(session["name"], "bold"),
            "queued": f"{session['messages']} messages" if session["messages"] else None,
            "running": ", ".join(session["turns"]),
            "context": _context(session),
            "channel": _channel(session),
            "last used": _relative(session["updatedAt"], now_ms),
        }
    )
    if not session["history"]:
        return [fields, "", Text("no history", "dim")]
    history = [history_entry(entry, now_ms) for entry in reversed(session["history"])]
    return [fields, *(each for entry in history for each in ("", entry))]


def history_entry(entry: HistoryShape, now_ms: int) -> Text:
    """Return an entry of a history: a line that says who and when, and the text."""
    who = entry["role"] if entry["job"] is None else f"{entry['role']}, job {entry['job']}"
    colour = "cyan" if entry["role"] == "user" else "green"
    line = Text(who, f"bold {colour}").append(f"  {_relative(entry['at'], now_ms)}\n", "not bold dim")
    return line.append(escaped(entry["content"]).plain, "not bold default")


def _context(session: SessionShape) -> str:
    return "" if session["context"] is None else f"{session['context']:.0%}"


def _channel(session: SessionShape) -> str:
    return " ".join(filter(None, (session["channel"], session["to"])))


def _relative(text: str | None, now_ms: int) -> str:
    ms = instant(text)
    return "" if ms is None else relative(ms, now_ms)
