"""What others wrote is shown as they wrote it, and does nothing to the terminal."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console, RenderableType

from wakeful.cli.commands.serving import database
from wakeful.cli.show.preview import preview
from wakeful.cli.show.tables import first_line, page, table
from wakeful.settings import Settings


def shown(what: RenderableType, width: int = 200) -> str:
    screen = StringIO()
    Console(file=screen, width=width, color_system=None).print(what)
    return screen.getvalue()


def test_what_looks_like_markup_is_shown():
    assert "[urgent] [/red] do it" in shown(table(["A"], [["[urgent] [/red] do it"]]))
    assert "[bold]x" in shown(page({"message": "[bold]x"}))


def test_what_would_command_the_terminal_is_made_visible():
    assert "\x1b" not in shown(table(["A"], [["\x1b[2Jgone\x9b1m"]]))
    assert r"\x1b[2Jgone\x9b1m" in shown(table(["A"], [["\x1b[2Jgone\x9b1m"]]))


def test_only_one_column_is_cut_where_there_is_no_room():
    lines = shown(
        table(["ID", "WHY", "STATE"], [["0123456789", "w" * 50, "failed"]], elastic="WHY"), width=30
    ).splitlines()

    assert "0123456789" in lines[1]
    assert "…" in lines[1]
    assert lines[1].rstrip().endswith("failed")


def test_what_there_is_nothing_to_say_of_is_left_out():
    assert "empty" not in shown(page({"empty": None, "blank": "", "full": "x"}))
    assert "blank" not in shown(page({"empty": None, "blank": "", "full": "x"}))


def test_a_text_is_told_by_its_first_line():
    assert first_line("  one\ntwo") == "one"
    assert first_line(None) == ""


def test_the_clocks_of_both_zones_are_looked_at():
    # 2027-03-14 and 2027-03-28: New York changes first, then Berlin.
    noons = [1_804_935_600_000 + day * 86_400_000 for day in range(0, 28, 9)]

    lines = [str(line) for line in preview("At noon", noons, "Europe/Berlin", "America/New_York", noons[0])]

    changes = [line for line in lines if line.startswith("--")]
    assert changes == [
        "-- clocks go forward 1 h in America/New_York --",
        "-- clocks go forward 1 h in Europe/Berlin --",
    ]


def test_a_schedule_that_is_over_says_so():
    assert [str(line) for line in preview("Once", [], "UTC", "UTC", 0)][1] == "never within 100 years"


@pytest.mark.parametrize(
    ("db", "told"),
    [
        ("sqlite:///wakeful.db", "sqlite:///wakeful.db"),
        ("postgresql://me:secret@db.example/wakeful", "postgresql://me@db.example/wakeful"),
        ("postgresql://me:se@cret@db.example/wakeful", "postgresql://me@db.example/wakeful"),
        ("postgresql:///wakeful", "postgresql:///wakeful"),
    ],
)
def test_a_password_is_never_shown(db: str, told: str):
    assert database(Settings(db=db), None) == told
