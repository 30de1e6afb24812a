"""A replica in a separate process, for tests that kill it: `python -m tests.support.replica URL FILE`.

Both of its functions write a line into the file; `note` returns then, `work` never does.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.paths import ROOT
from wakeful import EngineConfig, Launch, Wakeful


def build(url: str, journal: Path) -> Wakeful:
    app = Wakeful(url, config=EngineConfig(tick_ms=100, heartbeat_ms=200), grace=0.2)

    @app.function()
    async def note(run: Launch) -> None:
        with journal.open("a") as file:
            file.write(f"{os.getpid()} {run.idempotency_key} {run.attempt}\n")

    @app.function()
    async def work(run: Launch) -> None:
        await note(run)
        await asyncio.Event().wait()

    return app


@contextmanager
def another_process(url: str, journal: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start the replica; kill it at the end."""
    process = subprocess.Popen([sys.executable, "-m", "tests.support.replica", url, str(journal)], cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def entries(journal: Path) -> list[list[str]]:
    """Return the entries of the journal: process, key and attempt."""
    return [line.split() for line in journal.read_text().splitlines()] if journal.exists() else []


if __name__ == "__main__":
    asyncio.run(build(sys.argv[1], Path(sys.argv[2])).serve_forever())
