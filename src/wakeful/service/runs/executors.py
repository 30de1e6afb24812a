"""Who can take a run: executors, which are programs outside that claim `pull` runs, and running replicas.

An executor is not registered anywhere. This process remembers the requests to claim runs that it received,
also those that got none; the database shows the runs that executors claimed from any process. Replicas
publish the functions and agent classes that they can launch with their heartbeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, product
from typing import Final

from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.rescuer import LEASE_MS
from wakeful.job.policy import DEFAULT_POLICY
from wakeful.job.start_rules import Capabilities, Requirement, can_take
from wakeful.service.recent_values import RecentValues
from wakeful.store.port import Store
from wakeful.store.rows import RunFilter
from wakeful.values.bounded_cache import MB, BoundedCache
from wakeful.values.duration import spell_duration

#: An agent whose executor asked for runs within this time has one: as long as a run waits for a claim.
RECENT_MS: Final = DEFAULT_POLICY.claim_timeout_ms
#: The same in words, as in "in the last hour".
RECENTLY: Final = spell_duration(RECENT_MS).removeprefix("1 ")
#: How long the answer of the database is remembered.
_REMEMBERED_MS: Final = 5_000
#: How many of the newest claimed runs of an agent are read.
_RUNS: Final = 20
#: How many agents and lanes of one request are remembered.
_MAX_NAMES: Final = 100
#: The states of runs that were claimed, or failed without a claim.
_CLAIMED: Final = ("running", "succeeded", "failed")

#: A workspace, an agent and a lane; None: all of them.
_Scope = tuple[str, str | None, str | None]


class Executors:
    """Knows when executors last asked for the runs of an agent."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asked: BoundedCache[_Scope, int] = BoundedCache(MB)
        self._recorded: RecentValues[_Scope, int | None] = RecentValues(
            store, MB, lambda _: 256, _REMEMBERED_MS
        )

    def asked(self, workspace: str, agents: Sequence[str] | None, lanes: Sequence[str] | None) -> None:
        """Remember that an executor asks for runs of these agents in these lanes; None: of all."""
        now_ms = self._store.clock.now_ms()
        for agent, lane in islice(product(agents or (None,), lanes or (None,)), _MAX_NAMES):
            self._asked.put((workspace, agent, lane), now_ms, 256)

    async def last_seen_ms(self, workspace: str, agent: str, lane: str) -> int | None:
        """Return when an executor last asked for runs of the agent, if that is less than an hour ago.

        It reads from the database at most once in some seconds for an agent, and only if this process has
        received no request of an executor.
        """
        since_ms = self._store.clock.now_ms() - RECENT_MS
        scopes = product((agent, None), (lane, None))
        asked = [self._asked.get((workspace, *scope)) for scope in scopes]
        last_ms = max((ms for ms in asked if ms is not None), default=None)
        if last_ms is None or last_ms < since_ms:
            last_ms = await self._last_recorded_ms(workspace, agent, lane)
        return None if last_ms is None or last_ms < since_ms else last_ms

    async def _last_recorded_ms(self, workspace: str, agent: str, lane: str) -> int | None:
        """Return when a run of the agent was last claimed, as the database says."""

        async def read() -> int | None:
            runs = await self._store.runs(RunFilter(workspace, agent, states=_CLAIMED, limit=_RUNS))
            claimed = [run.started_ms for run in runs if run.is_pull and run.lane == lane]
            return max((ms for ms in claimed if ms is not None), default=None)

        return await self._recorded.get((workspace, agent, lane), read)


class Replicas:
    """Knows whether a running replica can launch a run."""

    def __init__(self, store: Store, launchers: LauncherRegistry) -> None:
        self._store = store
        self._launchers = launchers
        #: of all replicas
        self._running: RecentValues[None, Sequence[Capabilities]] = RecentValues(store, MB)

    async def lack(self, requirement: Requirement) -> bool:
        """Return whether there are replicas, but none with this requirement."""
        if not requirement.name:
            return False
        running = await self._read_running()
        return bool(running) and not _met(requirement, running)

    async def lack_for_saving(self, requirement: Requirement) -> bool:
        """Return the same, at little cost, for a job that is saved: this process counts as a replica."""
        if self._launchers.can_launch(requirement):
            return False
        running = await self._running.get(None, self._read_running)
        return bool(running) and not _met(requirement, running)

    async def _read_running(self) -> Sequence[Capabilities]:
        return await self._store.capabilities(self._store.clock.now_ms() - LEASE_MS)


def _met(requirement: Requirement, running: Sequence[Capabilities]) -> bool:
    return any(can_take(capabilities, requirement) for capabilities in running)
