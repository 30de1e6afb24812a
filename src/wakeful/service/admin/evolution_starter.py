"""The loop that lets all agents with evolution be analyzed a minute after the process starts.

Before, it repairs the internal jobs that earlier versions left without their agents' documents.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from wakeful.duration import MINUTE
from wakeful.engine.loop import Loop
from wakeful.errors import Unavailable
from wakeful.logs import get_logger
from wakeful.service.admin.evolution_jobs import FIRST_AFTER_MS, EvolutionJobs
from wakeful.store.port import Store

#: The analyses of many agents do not begin at one instant: each waits this much longer, at most a minute.
_SPACING_MS: Final = 250
_SPREAD_MS: Final = MINUTE

#: Writes the internal jobs of an agent (workspace, name) by its document.
Repair = Callable[[str, str], Awaitable[None]]

log = get_logger("wakeful.evolution")


class EvolutionStarter(Loop):
    """Starts the analyses once. Afterwards its steps do nothing."""

    name = "evolution"

    def __init__(self, store: Store, jobs: EvolutionJobs, repair: Repair | None = None) -> None:
        super().__init__(store.clock, MINUTE)
        self._repair = repair
        self._store = store
        self._jobs = jobs
        self._due_ms: int | None = None
        self._is_done = False

    async def step(self) -> int | None:
        """Start the analyses when they are due."""
        now_ms = self.clock.now_ms()
        if self._due_ms is None:
            self._due_ms = now_ms + FIRST_AFTER_MS
        if self._is_done or now_ms < self._due_ms:
            return None if self._is_done else self._due_ms
        if self._repair is not None:
            await self._repair_all(self._repair)
        agents = await self._store.evolving_agents()
        spacing_ms = min(_SPACING_MS, _SPREAD_MS // max(len(agents), 1))
        started = 0
        for number, (workspace, agent, _) in enumerate(agents):
            self.progressed()
            try:
                await self._jobs.sync(workspace, agent)
                started += await self._jobs.start(workspace, agent, now_ms + number * spacing_ms)
            except Unavailable:
                raise
            except Exception:
                log.exception("evolution.not_started", workspace=workspace, agent=agent)
        self._is_done = True
        if agents:
            log.info("evolution.started", agents=len(agents), started=started)
        return None

    async def _repair_all(self, repair: Repair) -> None:
        for workspace, agent in await self._store.agents_with_internal_jobs():
            self.progressed()
            try:
                await repair(workspace, agent)
            except Unavailable:
                raise
            except Exception:
                log.exception("agent.not_repaired", workspace=workspace, agent=agent)
