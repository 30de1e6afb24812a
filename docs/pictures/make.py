"""Draw demo.svg: the screen of `wakeful demo` after twenty seconds.

    python docs/pictures/make.py

It runs the command and draws its last screen, without the key.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Final
from unittest.mock import patch

from rich.console import Console, RenderableType
from rich.terminal_theme import MONOKAI

from wakeful.cli import output
from wakeful.cli.commands import demo
from wakeful.cli.main import main

WIDTH: Final = 124


def draw(path: Path, seconds: int = 20) -> None:
    """Run the demo and draw its last screen."""
    introduce, screen = demo._introduction, demo._screen
    url, last = "", None

    def introduced(at: str, key: str, link: str) -> list[RenderableType]:
        nonlocal url
        url = at
        return list(introduce(at, key, link))

    def shown(*given: object) -> RenderableType:
        nonlocal last
        last = screen(*given)  # type: ignore[arg-type]
        return last

    away = Console(width=WIDTH, force_terminal=True, file=io.StringIO())
    with (
        patch.object(output, "_console", lambda *, stderr: away),
        patch.object(demo, "_introduction", introduced),
        patch.object(demo, "_screen", shown),
        patch.object(demo, "wakeful_command", lambda: "wakeful"),
    ):
        assert main(["demo", "--seconds", str(seconds)]) == 0
        assert last is not None
        paper = Console(
            record=True, width=WIDTH, highlight=False, emoji=False, force_terminal=True, file=io.StringIO()
        )
        for line in introduce(url, "wk_…", f"{url}/sign-in#…"):
            paper.print(line)
        paper.print(last)
    path.write_text(paper.export_svg(title="wakeful demo", theme=MONOKAI), encoding="utf-8")


if __name__ == "__main__":
    draw(Path(__file__).with_name("demo.svg"))
