"""Print the size and the structure of the source: what a reader has to open.

    python -m benchmarks.structure

A tick is traced from its plan to its stored outcome, and the creation of a job over HTTP from the request to
the response, with a function as the target, on SQLite. A file counts if a function of it is called in that
time, also by the loops of the engine that only look for work.
"""

from __future__ import annotations

import ast
import asyncio
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Final

import aiohttp
import uvicorn

from wakeful import Wakeful
from wakeful.server.http_app import create_app
from wakeful.service.auth.access import LOCAL

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "src" / "wakeful"
#: Files with fewer lines are small.
SMALL: Final = 50


def main() -> None:
    files = {path: path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    lines = {path: text.count("\n") for path, text in files.items()}
    others = [path for path in SOURCE.rglob("*") if path.suffix in (".sql", ".html", ".js", ".css")]
    trees = {path: ast.parse(text) for path, text in files.items()}
    small = [path for path, count in lines.items() if count < SMALL]
    classes = Counter(
        node.name
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    print(f"Python files             {len(files)}")
    print(f"  under {SMALL} lines         {len(small)}, {_count_packages(small)} of them __init__.py")
    print(f"  in the root            {sum(path.parent == SOURCE for path in files)}")
    print(f"lines of Python          {sum(lines.values())}")
    print(f"  of headers             {sum(map(count_header_lines, trees.values()))}")
    print(f"lines of SQL and pages   {sum(path.read_text().count(chr(10)) for path in others)}")
    print(f"classes of one name      {sorted(name for name, count in classes.items() if count > 1)}")
    tick, creation = asyncio.run(trace())
    print(f"files of one tick        {len(tick)}")
    print(f"files of a job created   {len(creation)}")
    for title, entered in (("tick", tick), ("creation", creation)):
        print(f"\n{title}:", *sorted(entered), sep="\n  ")


def _count_packages(paths: list[Path]) -> int:
    return sum(path.name == "__init__.py" for path in paths)


def count_header_lines(tree: ast.Module) -> int:
    """Return the lines of the docstring and the imports of a module."""
    headers = (
        node
        for number, node in enumerate(tree.body)
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    )
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in headers)


async def trace() -> tuple[set[str], set[str]]:
    """Return the files that one tick and the creation of one job over HTTP enter."""
    done = asyncio.Event()
    entered = Entered()
    with tempfile.TemporaryDirectory() as folder:
        app = Wakeful(f"sqlite:///{folder}/wakeful.db")

        @app.function("note")
        async def note() -> None:
            done.set()

        target = {"kind": "function", "name": "note"}
        async with app:
            _, token = await app.services.auth.keys.create(
                LOCAL, "default", {"name": "trace", "role": "admin"}
            )
            server = uvicorn.Server(uvicorn.Config(create_app(app.services), port=0, log_level="error"))
            serving = asyncio.create_task(server.serve())
            while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            where = f"http://127.0.0.1:{port}/api/workspaces/default/agents/default/jobs"
            async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:
                for name in ("first", "second"):  # the first one also loads and remembers
                    creation = entered.start()
                    body = {"name": name, "schedule": "@yearly", "target": target}
                    async with session.post(where, json=body) as response:
                        response.raise_for_status()
            await app.jobs.create("third", schedule="in 1s", target=target)
            tick = entered.start()
            async with asyncio.timeout(10):
                await done.wait()
            await asyncio.sleep(0.5)  # until its outcome is stored
            entered.stop()
            server.should_exit = True
            await serving
    return tick, creation


class Entered:
    """The source files whose functions are called, in this thread and those that start later."""

    def __init__(self) -> None:
        self._files: set[str] | None = None
        threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)

    def start(self) -> set[str]:
        """Return the set that grows from now on."""
        self._files = set()
        return self._files

    def stop(self) -> None:
        """Trace no longer."""
        self._files = None
        threading.setprofile(None)
        sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, argument: object) -> None:
        if self._files is not None and event == "call":
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(SOURCE):
                self._files.add(str(path.relative_to(SOURCE)))


if __name__ == "__main__":
    main()
