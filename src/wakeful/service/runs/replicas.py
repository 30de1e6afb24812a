"""What the running replicas can launch: functions and agent classes, as their heartbeats published it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.rescuer import LEASE_MS
from wakeful.job.capabilities import Capabilities, Requirement, can_take
from wakeful.store.port import Store

#: How long the answer of the database is remembered while jobs are saved.
_REMEMBERED_MS: Final = 1_000


class Replicas:
    """Knows whether a running replica can launch a run."""

    def __init__(self, store: Store, launchers: LauncherRegistry) -> None:
        self._store = store
        self._launchers = launchers
        self._recorded: tuple[int, Sequence[Capabilities]] | None = None

    async def lack(self, requirement: Requirement) -> bool:
        """Return whether there are replicas, but none with this requirement."""
        if not requirement.name:
            return False
        running = await self._store.capabilities(self._store.clock.now_ms() - LEASE_MS)
        return bool(running) and not _met(requirement, running)

    async def lack_for_saving(self, requirement: Requirement) -> bool:
        """Return the same, at little cost, for a job that is saved: this process counts as a replica."""
        if self._launchers.can_launch(requirement):
            return False
        now_ms = self._store.clock.now_ms()
        if self._recorded is None or abs(now_ms - self._recorded[0]) >= _REMEMBERED_MS:
            self._recorded = now_ms, await self._store.capabilities(now_ms - LEASE_MS)
        running = self._recorded[1]
        return bool(running) and not _met(requirement, running)


def _met(requirement: Requirement, running: Sequence[Capabilities]) -> bool:
    return any(can_take(capabilities, requirement) for capabilities in running)
