"""A replica with a short lease that plans seconds ahead: `python -m tests.support.suspended_replica …`.

It writes a line into the journal for each run that it starts, and one for each precheck. A test suspends it
with SIGSTOP while it holds runs that have not started.
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
from wakeful.run.planning import Limits

LEASE_MS = 1_500


def build(url: str, journal: Path, *, lead_ms: int = 50) -> Wakeful:
    config = EngineConfig(tick_ms=100, heartbeat_ms=200, lease_ms=LEASE_MS, limits=Limits(lead_ms=lead_ms))
    app = Wakeful(url, config=config, grace=0.2)

    def write(what: str, run: Launch) -> None:
        with journal.open("a") as file:
            file.write(f"{what} {os.getpid()} {run.job}\n")

    @app.function()
    async def note(run: Launch) -> None:
        write("start", run)

    @app.function()
    async def check(run: Launch) -> bool:
        write("check", run)
        gate = journal.with_suffix(f".{os.getpid()}")
        while not gate.exists():
            await asyncio.sleep(0.01)
        return True

    return app


@contextmanager
def replica(url: str, journal: Path, lead_ms: int) -> Iterator[subprocess.Popen[bytes]]:
    """Start the replica; kill it at the end."""
    command = [sys.executable, "-m", "tests.support.suspended_replica", url, str(journal), str(lead_ms)]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    asyncio.run(build(sys.argv[1], Path(sys.argv[2]), lead_ms=int(sys.argv[3])).serve_forever())
