"""Tables and pages in one style, with untrusted text escaped."""

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


#: Control characters except tab and newline: a terminal would execute them.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

Cell = str | Text


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, elastic: str = "") -> Table:
    """Return a table without borders.

    If there is no room, only the `elastic` column is cut (the last, if none is named).
    """
    result = Table(box=None, padding=(0, 2, 0, 0), header_style="bold dim", pad_edge=False)
    rows = list(rows)
    cut = columns.index(elastic) if elastic else len(columns) - 1
    for index, column in enumerate(columns):
        widest = max((len(row[index]) for row in rows), default=0)
        min_width = None if index == cut else max(widest, len(column))
        # Rich shrinks only columns that may wrap; their cells may not, so they are cut instead.
        result.add_column(column, no_wrap=index != cut, min_width=min_width)
    for row in rows:
        cells = [escaped(cell) for cell in row]
        cells[cut] = cells[cut].copy()
        cells[cut].no_wrap, cells[cut].overflow = True, "ellipsis"
        result.add_row(*cells)
    return result


def page(fields: Mapping[str, str | Text | None]) -> Table:
    """Return a page with a line per field; empty fields are omitted."""
    result = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
    result.add_column(style="dim", no_wrap=True)
    result.add_column(overflow="fold")
    for name, value in fields.items():
        if value is not None and str(value):
            result.add_row(name, escaped(value))
    return result


def escaped(cell: Cell) -> Text:
    """Return untrusted text with control characters escaped, and without interpreting markup.

    >>> escaped("[red]\x1b[2J").plain
    '[red]\\\\x1b[2J'
    """
    text = Text(cell) if isinstance(cell, str) else cell
    if _CONTROL.search(text.plain):
        return Text(_CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text.plain), text.style)
    return text


def state(word: str) -> Text:
    """Return a run state in its colour."""
    return Text(word, STATES.get(word, ""))


def compact(value: object) -> str:
    """Return a value as one line of JSON; a string unchanged."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def first_line(text: str | None, longest: int = 72) -> str:
    """Return the first line of a text, cut to `longest` characters.

    >>> first_line("no answer\\nTraceback …"), first_line("a" * 100, 5)
    ('no answer', 'aaaa…')
    """
    line = next(iter((text or "").strip().splitlines()), "")
    return line if len(line) <= longest else line[: longest - 1] + "…"
