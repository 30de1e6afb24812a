"""Tables and pages of fields, in one style."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

STATES: Final = {
    "pending": "cyan",
    "running": "blue",
    "retrying": "yellow",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "magenta",
    "skipped": "yellow",
    "missed": "yellow",
}


#: All that moves a cursor or changes a colour: control characters, but the tab and the newline.
_COMMANDS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

Cell = str | Text


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, elastic: str = "") -> Table:
    """A table without lines: a header, and what is below it.

    Where there is no room, the `elastic` column is cut (without one, the last), and the others stay whole.
    """
    made = Table(box=None, padding=(0, 2, 0, 0), header_style="bold dim", pad_edge=False)
    rows = list(rows)
    gives = columns.index(elastic) if elastic else len(columns) - 1
    for index, column in enumerate(columns):
        widest = max((len(row[index]) for row in rows), default=0)
        least = None if index == gives else max(widest, len(column))
        # Only a column that may wrap gives way; its cells, which may not, are then cut.
        made.add_column(column, no_wrap=index != gives, min_width=least)
    for row in rows:
        cells = [harmless(cell) for cell in row]
        cells[gives] = cells[gives].copy()
        cells[gives].no_wrap, cells[gives].overflow = True, "ellipsis"
        made.add_row(*cells)
    return made


def page(fields: Mapping[str, str | Text | None]) -> Table:
    """One thing, a field a line; what there is nothing to say of is left out."""
    made = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in fields.items():
        if value is not None and str(value):
            made.add_row(name, harmless(value))
    return made


def harmless(cell: Cell) -> Text:
    """What somebody else wrote, as it is: no markup is read in it, and nothing in it commands the terminal.

    >>> harmless("[red]\x1b[2J").plain
    '[red]\\\\x1b[2J'
    """
    text = Text(cell) if isinstance(cell, str) else cell
    if _COMMANDS.search(text.plain):
        return Text(_COMMANDS.sub(lambda found: f"\\x{ord(found[0]):02x}", text.plain), text.style)
    return text


def state(word: str) -> Text:
    """The state of a run, in its colour."""
    return Text(word, STATES.get(word, ""))


def compact(value: object) -> str:
    """A value as one line of JSON; text as it is."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def first_line(text: str | None, longest: int = 72) -> str:
    """The beginning of a text.

    >>> first_line("no answer\\nTraceback …"), first_line("a" * 100, 5)
    ('no answer', 'aaaa…')
    """
    line = next(iter((text or "").strip().splitlines()), "")
    return line if len(line) <= longest else line[: longest - 1] + "…"
