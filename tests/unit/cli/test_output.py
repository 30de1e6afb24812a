"""Formatting for the terminal: untrusted text is escaped, tables fit."""

from __future__ import annotations

from io import StringIO
from typing import cast

import pytest
from rich.console import Console, RenderableType

from wakeful.cli.commands.preview import preview_lines
from wakeful.cli.output import first_line, page, table
from wakeful.cli.pages import event_line
from wakeful.cli.serve_options import database_text
from wakeful.client.types import EventShape
from wakeful.settings import Settings


def shown(what: RenderableType, width: int = 200) -> str:
    screen = StringIO()
    Console(file=screen, width=width, color_system=None).print(what)
    return screen.getvalue()


def test_markup_in_text_is_not_interpreted():
    assert "[urgent] [/red] do it" in shown(table(["A"], [["[urgent] [/red] do it"]]))
    assert "[bold]x" in shown(page({"message": "[bold]x"}))


def test_control_characters_are_escaped():
    assert "\x1b" not in shown(table(["A"], [["\x1b[2Jgone\x9b1m"]]))
    assert r"\x1b[2Jgone\x9b1m" in shown(table(["A"], [["\x1b[2Jgone\x9b1m"]]))


def test_only_the_elastic_column_is_cut_on_a_narrow_terminal():
    lines = shown(
        table(["ID", "WHY", "STATE"], [["0123456789", "w" * 50, "failed"]], elastic="WHY"), width=30
    ).splitlines()

    assert "0123456789" in lines[1]
    assert "…" in lines[1]
    assert lines[1].rstrip().endswith("failed")


def test_empty_fields_are_omitted():
    assert "empty" not in shown(page({"empty": None, "blank": "", "full": "x"}))
    assert "blank" not in shown(page({"empty": None, "blank": "", "full": "x"}))


def test_only_the_first_line_of_a_text_is_shown():
    assert first_line("  one\ntwo") == "one"
    assert first_line(None) == ""


def test_clock_changes_of_both_zones_are_shown():
    # 2027-03-14 and 2027-03-28: New York changes first, then Berlin.
    noons = [1_804_935_600_000 + day * 86_400_000 for day in range(0, 28, 9)]

    lines = preview_lines("At noon", noons, "Europe/Berlin", "America/New_York", noons[0])

    changes = [str(line) for line in lines if str(line).startswith("--")]
    assert changes == [
        "-- clocks go forward 1 h in America/New_York --",
        "-- clocks go forward 1 h in Europe/Berlin --",
    ]


def test_a_schedule_without_ticks_says_so():
    assert [str(line) for line in preview_lines("Once", [], "UTC", "UTC", 0)][1] == "never within 100 years"


@pytest.mark.parametrize(
    ("db", "shown_as"),
    [
        ("sqlite:///wakeful.db", "sqlite:///wakeful.db"),
        ("postgresql://me:secret@db.example/wakeful", "postgresql://me@db.example/wakeful"),
        ("postgresql://me:se@cret@db.example/wakeful", "postgresql://me@db.example/wakeful"),
        ("postgresql:///wakeful", "postgresql:///wakeful"),
    ],
)
def test_a_database_password_is_never_shown(db: str, shown_as: str):
    assert database_text(Settings(db=db), None) == shown_as


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"state": "succeeded", "output": "good morning\nmore"}, "hello  succeeded in 5 ms: good morning"),
        ({"state": "succeeded", "output": None}, "hello  succeeded in 5 ms"),
        ({"state": "failed", "error": "HTTP 500", "output": "x"}, "hello  failed in 5 ms: HTTP 500"),
        (
            {"state": "skipped", "reason": "overlap"},
            "hello  skipped in 5 ms: another run was running (overlapPolicy skip)",
        ),
        ({"state": "retrying", "error": "HTTP 500"}, "hello  retrying after attempt 1: HTTP 500"),
    ],
)
def test_the_line_of_an_ended_run_says_its_output_or_error_once(fields: dict[str, object], line: str):
    run = {
        "id": "r1", "agentId": "default", "job": "hello", "attempt": 1, "covers": 1, "reason": None,
        "error": None, "output": None, "startedAt": "2027-01-01T09:00:00Z",
        "finishedAt": "2027-01-01T09:00:00.005Z", **fields,
    }  # fmt: skip
    event = {"type": "run.finished", "at": "2027-01-01T09:00:00Z", "run": run}
    assert event_line(cast(EventShape, event), "UTC").plain == f"09:00:00  {line}  r1"
