"""Ears for what a store announces."""

from __future__ import annotations

import asyncio

#: Seconds. It takes a moment; on a machine that is busy with other things, a longer one.
PATIENCE = 120.0


class NotificationRecorder:
    """Remembers every topic that it is told, and lets a test wait for one."""

    def __init__(self) -> None:
        self.topics: list[str] = []
        self._told = asyncio.Event()

    def __call__(self, topic: str) -> None:
        self.topics.append(topic)
        self._told.set()

    async def hear(self, *topics: str) -> set[str]:
        """Wait until all of these have been told; returns all that has been, and forgets it."""
        async with asyncio.timeout(PATIENCE):
            while not set(topics) <= set(self.topics):
                self._told.clear()
                await self._told.wait()
        heard = set(self.topics)
        self.topics.clear()
        return heard
