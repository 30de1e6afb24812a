"""Record the notifications of a store."""

from __future__ import annotations

import asyncio

#: Seconds to wait for a notification; long enough for a busy machine.
PATIENCE = 120.0


class NotificationRecorder:
    """Record the notified topics, and let a test wait for them."""

    def __init__(self) -> None:
        self.topics: list[str] = []
        self._told = asyncio.Event()

    def __call__(self, topic: str) -> None:
        self.topics.append(topic)
        self._told.set()

    async def next_event(self, *topics: str) -> set[str]:
        """Wait until all these topics were notified; return and clear the recorded ones."""
        async with asyncio.timeout(PATIENCE):
            while not set(topics) <= set(self.topics):
                self._told.clear()
                await self._told.wait()
        received = set(self.topics)
        self.topics.clear()
        return received
