"""A process with an agent class whose handlers kill it.

`python -m tests.support.agent_replica URL OFFSET_MS`
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from signal import SIGKILL
from typing import Any, ClassVar

from tests.support.movable_clock import MovableClock, store_with
from tests.support.paths import ROOT
from wakeful import SELF, Agent, Delay, Emit, EngineConfig, SetCron, SetState, Wakeful, on


class Mortal(Agent):
    """Handles signals; with `die`, it kills its process before the outcome is written."""

    name = "mortal"
    state: ClassVar[Any] = {"count": 0}
    max_attempts = 2
    backoff: ClassVar[Any] = {"base": "1ms", "max": "1ms"}

    @on("setup")
    async def setup(self, signal: Any, ctx: Any) -> list[Any]:
        """Change everything that a handler can change."""
        return [
            SetState(count=ctx.state["count"] + 1),
            SetCron("0 6 * * *", "count", "mine"),
            Delay("1h", "count"),
            Emit("count", to=SELF),
        ]

    @on("count")
    async def count(self, signal: Any, ctx: Any) -> SetState:
        """Count a signal."""
        return SetState(count=ctx.state["count"] + 1)

    @on("die")
    async def die(self, signal: Any, ctx: Any) -> list[Any]:
        """Kill the process in the middle of the handler."""
        os.kill(os.getpid(), SIGKILL)
        return await self.setup(signal, ctx)


@contextmanager
def agent_process(url: str, offset_ms: int) -> Iterator[subprocess.Popen[bytes]]:
    """Start the process, with its clock so far ahead; kill it at the end."""
    command = [sys.executable, "-m", "tests.support.agent_replica", url, str(offset_ms)]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def main(url: str, offset_ms: int) -> None:
    """Handle signals until the process is killed."""
    clock = MovableClock()
    clock.offset_ms = offset_ms
    config = EngineConfig(tick_ms=50, heartbeat_ms=200)
    app = Wakeful(store=store_with(url, clock), config=config, secret_key="k" * 32)
    app.agent(Mortal)
    asyncio.run(app.serve_forever())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
