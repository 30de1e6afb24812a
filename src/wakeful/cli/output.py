"""Where a command speaks: what was asked for on stdout, all else on stderr; colours only on a terminal."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from wakeful.cli.show.tables import harmless

T = TypeVar("T")

#: In a pipe nothing is cut: whoever reads it is no screen.
_WIDE: Final = 10_000
#: Columns of a screen that has room for whole tables.
_ROOM: Final = 120
#: Seconds after which whoever waits is told so.
_SOON: Final = 0.7


class Output:
    """The two streams of a command."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self.console = _console(stderr=False)
        self.aside = _console(stderr=True)

    @property
    def wide(self) -> bool:
        """Whether there is room for everything."""
        return self.console.width >= _ROOM

    def show(self, value: object, *renderables: RenderableType) -> None:
        """The answer: as JSON if that was asked for, else as people read it."""
        if self.as_json:
            sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
            sys.stdout.flush()
            return
        self._print(renderables)

    def say(self, *renderables: RenderableType) -> None:
        """Something beside the answer, for people; nothing where JSON was asked for."""
        if not self.as_json:
            self._print(renderables)

    def _print(self, renderables: Sequence[RenderableType]) -> None:
        if self.console.is_terminal:
            for renderable in renderables:
                self.console.print(renderable)
            return
        with self.console.capture() as captured:
            for renderable in renderables:
                self.console.print(renderable)
        # A table fills its last column with blanks, which nobody wants in a file.
        lines = [line.rstrip() for line in captured.get().split("\n")]
        sys.stdout.write("\n".join(lines))
        sys.stdout.flush()

    def warn(self, sentence: str) -> None:
        """Something that people should know of, on stderr."""
        self.aside.print(Text(sentence, "yellow"))

    async def ask(self, answer: Awaitable[T], what: str = "waiting for the server") -> T:
        """What comes of waiting; on a terminal, whoever waits for long sees that something happens."""
        if not self.aside.is_terminal:
            return await answer
        status = self.aside.status(Text(what, "dim"))
        later = asyncio.get_running_loop().call_later(_SOON, status.start)
        try:
            return await answer
        finally:
            later.cancel()
            status.stop()

    @contextmanager
    def counting(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """A bar on stderr, for many things on a terminal; yields what moves it on."""
        if not self.aside.is_terminal or total < 20:
            yield lambda done: None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=self.aside, transient=True) as progress:
            task = progress.add_task(what, total=total)
            yield lambda done: progress.advance(task, done)


def complain(sentence: str) -> None:
    """What went wrong, in red, on stderr."""
    text = Text("wakeful: ", "bold red").append(harmless(sentence).plain, "red")
    _console(stderr=True).print(text, soft_wrap=True)


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, emoji=False, width=None if stream.isatty() else _WIDE)
