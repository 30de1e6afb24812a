"""The output of a command: results on stdout, the rest on stderr, colours only on a terminal.

Tables and pages have one style, and untrusted text in them is escaped.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING, Final, TypeVar

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from wakeful.cli.help import write_out
from wakeful.values.json_value import Json

if TYPE_CHECKING:
    from wakeful.model import Page

T = TypeVar("T")

#: The width where stdout is no terminal: nothing is cut.
_PIPE_WIDTH: Final = 10_000
#: The least width, in columns, that fits whole tables.
_WIDE: Final = 120
#: Seconds before a spinner appears.
_SPINNER_AFTER_S: Final = 0.7


#: With a JSON log, what would be printed on stderr is logged: functions for errors and for warnings.
_log: tuple[Callable[[str], None], Callable[[str], None]] | None = None
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


def log_instead(error: Callable[[str], None], warning: Callable[[str], None]) -> None:
    """Log errors and warnings instead of printing them on stderr."""
    global _log
    _log = error, warning


class Output:
    """The two streams of a command."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self.console = _console(stderr=False)
        self.stderr = _console(stderr=True)
        #: whether the reader of stdout has closed it
        self.unread = False

    @property
    def wide(self) -> bool:
        """Whether the terminal has room for all columns."""
        return self.console.width >= _WIDE

    def show(self, value: object, *renderables: RenderableType) -> None:
        """Print the result: `value` as JSON with --json, else the renderables."""
        if self.as_json:
            self._write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
            return
        self._print(renderables)

    def show_line(self, value: object, line: RenderableType) -> None:
        """Print one of many results: `value` as one line of JSON with --json, else the line."""
        if self.as_json:
            self._write(json.dumps(value, ensure_ascii=False) + "\n")
            return
        self._print([line])

    def show_page(
        self, key: str, found: Page[T], table: RenderableType, *, what: str = "", none: Text | None = None
    ) -> None:
        """Print a page of a list: the table, or that there are none.

        `key` is the name of the list in JSON, `what` its name in sentences.
        """
        what = what or key
        self.show({key: found, "cursor": found.cursor}, table if found else none or Text(f"no {what}", "dim"))
        if found.cursor:
            self.say(Text(f"more {what} exist; raise --limit to show them", "dim"))

    def say(self, *renderables: RenderableType) -> None:
        """Print something besides the result; nothing with --json."""
        if not self.as_json:
            self._print(renderables)

    def _print(self, renderables: Sequence[RenderableType]) -> None:
        if self.console.is_terminal:
            self._print_all(renderables)
            return
        self.console.file = captured = StringIO()
        try:
            self._print_all(renderables)
        finally:
            self.console.file = sys.stdout
        # Rich pads the last column of a table with blanks.
        lines = [line.rstrip() for line in captured.getvalue().split("\n")]
        self._write("\n".join(lines))

    def _write(self, text: str) -> None:
        # If the reader of a pipe has enough, the exit code is that of the command.
        if not write_out(text):
            self.unread = True

    def _print_all(self, renderables: Sequence[RenderableType]) -> None:
        for renderable in renderables:
            # The terminal wraps long lines. A line break in a command would prevent copying it.
            self.console.print(renderable, soft_wrap=isinstance(renderable, str | Text))

    def note(self, sentence: str) -> None:
        """Print a note on stderr, also with --json."""
        self.stderr.print(Text(sentence, "dim"))

    def warn(self, sentence: str) -> None:
        """Print a warning on stderr."""
        if _log is not None:
            _log[1](sentence)
            return
        self.stderr.print(Text(sentence, "yellow"), soft_wrap=True)

    def print_warnings(self, warnings: Iterable[str]) -> None:
        """Print the warnings of the server about something that was saved; JSON contains them already."""
        if not self.as_json:
            for warning in warnings:
                self.warn(f"warning: {escape(str(warning)).plain}")

    async def wait_for(self, result: Awaitable[T], what: str = "waiting for the server") -> T:
        """Await a result; on a terminal, show a spinner if it takes long."""
        if not self.stderr.is_terminal:
            return await result
        status = self.stderr.status(Text(what, "dim"))
        later = asyncio.get_running_loop().call_later(_SPINNER_AFTER_S, status.start)
        try:
            return await result
        finally:
            later.cancel()
            status.stop()

    @contextmanager
    def show_progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a progress bar on stderr for many items; yields the function that advances it."""
        if not self.stderr.is_terminal or total < 20:
            yield lambda done: None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=self.stderr, transient=True) as progress:
            task = progress.add_task(what, total=total)
            yield lambda done: progress.advance(task, done)


def print_error(sentence: str) -> None:
    """Print an error on stderr, in red."""
    if _log is not None:
        _log[0](sentence)
        return
    text = Text("wakeful: ", "bold red").append(escape(sentence).plain, "red")
    _console(stderr=True).print(text, soft_wrap=True)


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    return Console(
        stderr=stderr, highlight=False, emoji=False, width=None if stream.isatty() else _PIPE_WIDTH
    )


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    elastic: str = "",
    hidden: Collection[str] = (),
) -> Table:
    """Return a table without borders, and without the `hidden` columns.

    If there is no room, only the `elastic` column is cut (the last, if none is named).
    """
    result = Table(box=None, padding=(0, 2, 0, 0), header_style="bold dim", pad_edge=False)
    shown = [index for index, column in enumerate(columns) if column not in hidden]
    columns = [columns[index] for index in shown]
    rows = [[row[index] for index in shown] for row in rows]
    cut = columns.index(elastic) if elastic else len(columns) - 1
    for index, column in enumerate(columns):
        widest = max((len(row[index]) for row in rows), default=0)
        min_width = None if index == cut else max(widest, len(column))
        # Rich shrinks only columns that may wrap; their cells may not, so they are cut instead.
        result.add_column(column, no_wrap=index != cut, min_width=min_width)
    for row in rows:
        cells = [escape(cell) for cell in row]
        cells[cut] = cells[cut].copy()
        cells[cut].no_wrap, cells[cut].overflow = True, "ellipsis"
        result.add_row(*cells)
    return result


def page(fields: Mapping[str, object]) -> Table:
    """Return a page with a line per field, JSON as text; empty fields are omitted."""
    result = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
    result.add_column(style="dim", no_wrap=True)
    result.add_column(overflow="fold")
    for name, value in fields.items():
        if value is not None and str(value):
            result.add_row(name, escape(value if isinstance(value, Text) else compact(value)))
    return result


def escape(cell: Cell) -> Text:
    """Return untrusted text with control characters escaped, and without interpreting markup.

    >>> escape("[red]\x1b[2J").plain
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
    """Return the first line of a text, cut to `longest` characters; whole where stdout is no terminal.

    >>> first_line("no answer\\nTraceback …")
    'no answer'
    """
    line = next(iter((text or "").strip().splitlines()), "")
    cut = len(line) > longest and sys.stdout.isatty()
    return line[: longest - 1] + "…" if cut else line


def field_lines(fields: Mapping[str, tuple[Json, Json]]) -> Iterator[RenderableType]:
    """Yield a line for each changed field, with its old and new value."""
    for name, (old, new) in fields.items():
        line = Text(f"    {name}: ").append(_short_text(old), "red").append(" → ")
        yield line.append(_short_text(new), "green")


def _short_text(value: Json) -> str:
    return first_line(escape(compact(value)).plain, 120)


def full_name(agent: str, name: str) -> str:
    """Return a job as the command line shows and accepts it.

    >>> full_name("default", "digest"), full_name("ops", "digest")
    ('digest', 'ops/digest')
    """
    return name if agent == "default" else f"{agent}/{name}"
