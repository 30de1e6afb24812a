"""A replica whose check waits until a file exists: `python -m tests.support.verifying_replica URL JOURNAL`.

It writes a line into the journal for each launch and each check. A test kills it during a check.
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
    """Return an app with a target function and a check. The leases are short."""
    config = EngineConfig(tick_ms=100, heartbeat_ms=200, lease_ms=1_500)
    app = Wakeful(url, config=config, grace=0.2)

    def write(what: str) -> None:
        with journal.open("a") as file:
            file.write(f"{what} {os.getpid()}\n")

    @app.function()
    async def work(run: Launch) -> str:
        write("launch")
        return "done"

    @app.function()
    async def check(run: Launch) -> bool:
        write("check")
        while not journal.with_suffix(f".{os.getpid()}").exists():
            await asyncio.sleep(0.01)
        return True

    return app


@contextmanager
def replica(url: str, journal: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start the replica; kill it at the end."""
    command = [sys.executable, "-m", "tests.support.verifying_replica", url, str(journal)]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    asyncio.run(build(sys.argv[1], Path(sys.argv[2])).serve_forever())
