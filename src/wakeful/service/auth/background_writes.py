"""Writes that a request does not wait for: when a key or session was last used."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class BackgroundWrites:
    """Runs writes as tasks. They are best effort: an error is ignored."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, write: Coroutine[Any, Any, None]) -> None:
        """Start a write."""
        task = asyncio.get_running_loop().create_task(write)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    async def close(self) -> None:
        """Wait for the writes in progress."""
        if self._tasks:
            await asyncio.wait(self._tasks)
