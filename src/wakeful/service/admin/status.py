"""The installation: status, service level objectives, readiness, processes, and the schema of the database.

Processes are workers with their heartbeats, and executors that hold runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple

from wakeful.engine.engine import Engine
from wakeful.engine.metrics import Metrics
from wakeful.engine.rescuer import LEASE_MS
from wakeful.errors import InvalidArgument, WakefulError
from wakeful.job.policy import DAY_MS
from wakeful.job.start_rules import capabilities_from_text
from wakeful.model.codec import JsonObject
from wakeful.service.auth.access import Principal, may_operate, visible_agent
from wakeful.service.auth.accounts import Accounts
from wakeful.service.row_codec import instant
from wakeful.store.connect import open_within, store_at
from wakeful.store.port import Store
from wakeful.store.rows import VERIFYING
from wakeful.store.stats import RecentRun
from wakeful.values.package import VERSION

#: The highest ratio of dead letters to finished runs.
DEAD_LETTER_TARGET: Final = 0.01
#: The highest median and 95th percentile of the start delay.
LATENCY_TARGET_MS: Final = 1_000
LATENCY_P95_TARGET_MS: Final = 5_000
#: The number of newest runs that are measured.
MEASURED: Final = 10_000
#: The longest response time of a database that is ready.
READY_TIMEOUT_S: Final = 2.0
_HOURS: Final = 24

_MOST: Final = 500


class Status:
    """Reads the state of a workspace and of this process."""

    def __init__(self, store: Store, accounts: Accounts) -> None:
        self._store = store
        self._accounts = accounts
        self.version = VERSION
        #: the engine of this process, while it runs
        self.engine: Engine | None = None

    async def status(self, principal: Principal, workspace: str) -> JsonObject:
        """Return the numbers of jobs, runs, incidents and workers, the next tick, and the role of the caller.

        A key of the role `agent` gets the numbers of its own agent.
        `tz` is the zone of schedules that name none, for the agent of the key (`agentId`) or `default`.
        """
        await self._accounts.authorize(principal, "read", workspace)
        now_ms = self._store.clock.now_ms()
        stats = await self._store.workspace_stats(workspace, visible_agent(principal, None))
        workers = await self._store.workers(now_ms - LEASE_MS)
        return {
            "workspace": workspace,
            "now": instant(now_ms),
            "nowMs": now_ms,
            "tz": await self.zone(principal, workspace, principal.agent or "default"),
            "role": principal.role,
            "agentId": principal.agent,
            "version": self.version,
            "database": self._store.kind,
            "engine": self.engine is not None and self.engine.alive,
            "replicas": len(workers),
            "executors": stats.executors,
            "jobs": {"active": stats.active_jobs, "paused": stats.paused_jobs},
            "runs": {state: stats.live.get(state, 0) for state in ("running", "pending", "retrying")},
            "incidents": {"open": stats.open_incidents, "acknowledged": stats.acknowledged_incidents},
            "nextAt": instant(stats.next_ms),
            "nextAtMs": stats.next_ms,
        }

    async def zone(self, principal: Principal, workspace: str, agent: str) -> str:
        """Return the zone of schedules that name none: of the agent, the workspace or the settings."""
        await self._accounts.authorize(principal, "read", workspace, agent)
        return (await self._accounts.context(workspace, agent)).defaults.tz

    async def slo(self, principal: Principal, workspace: str, hours: int = _HOURS) -> JsonObject:
        """Return the objectives over the runs of the last hours, at most the newest `MEASURED`.

        Each objective has a target, a value, and `ok`; without runs the value is None and `ok` is true.
        Latency is the time between the planned and the actual start. A key of the role `agent` gets the runs
        of its own agent.
        """
        await self._accounts.authorize(principal, "read", workspace)
        if not 1 <= hours <= 24 * 30:
            raise InvalidArgument("hours: give a whole number from 1 to 720")
        since_ms = self._store.clock.now_ms() - hours * DAY_MS // 24
        runs = await self._store.recent_runs(workspace, since_ms, MEASURED, visible_agent(principal, None))
        over = [run.state for run in runs if run.state in ("succeeded", "failed")]
        late = latencies(runs)
        ratio = over.count("failed") / len(over) if over else None
        half, most = (median(late), _p95(late)) if late else (None, None)
        return {
            "workspace": workspace,
            "hours": hours,
            "since": instant(since_ms),
            "runs": len(runs),
            "deadLetterRatio": {
                "target": DEAD_LETTER_TARGET,
                "value": ratio,
                "ok": ratio is None or ratio < DEAD_LETTER_TARGET,
            },
            "dispatchLatencyMs": {
                "target": LATENCY_TARGET_MS,
                "value": half,
                "ok": half is None or half < LATENCY_TARGET_MS,
            },
            "dispatchLatencyP95Ms": {
                "target": LATENCY_P95_TARGET_MS,
                "value": most,
                "ok": most is None or most < LATENCY_P95_TARGET_MS,
            },
        }

    def hanging(self) -> list[str]:
        """Return the loops of the engine that hang."""
        return [] if self.engine is None else self.engine.hanging()

    async def ready(self) -> str | None:
        """Return why this process is not ready, or None."""
        if self.engine is not None and self.engine.incompatible is not None:
            return self.engine.incompatible.message
        if self.engine is None or not self.engine.alive:
            return "the engine is not running"
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await self._store.ping()
        except TimeoutError:
            return "the database does not respond in time"
        except WakefulError as error:
            return f"the database is not usable: {error.message}"
        except Exception as error:  # such as a table that is gone
            return f"the database reports an error: {str(error) or type(error).__name__}"
        stalled = self.engine.stalled()
        return f"the engine's {', '.join(stalled)} loop is stalled" if stalled else None


def latencies(runs: Sequence[RecentRun]) -> list[int]:
    """Return the start delay of each first attempt, in ms. Retries start late on purpose."""
    return [
        max(0, run.started_ms - run.fire_ms)
        for run in runs
        if run.started_ms is not None and run.attempt == 1
    ]


def _p95(values: Sequence[int]) -> int:
    return sorted(values)[min(len(values) - 1, len(values) * 95 // 100)]


class WorkerState(NamedTuple):
    """A process that takes runs."""

    name: str
    started_ms: int
    beat_ms: int
    #: whether its last heartbeat is recent
    alive: bool
    #: the running runs that it holds, of the workspace or, for operators, of all
    runs: int
    #: the functions and agent classes that it can launch, as far as the caller may see them
    capabilities: Mapping[str, int]
    #: whether it is the process that answers
    is_this: bool
    #: of this process: its version, and by lane the used slots and all slots
    version: str | None
    lanes: Mapping[str, tuple[int, int]]


class ExecutorState(NamedTuple):
    """A program outside that holds claimed runs."""

    name: str
    runs: int
    beat_ms: int | None


class Processes(NamedTuple):
    """The processes of an installation."""

    workers: list[WorkerState]
    executors: list[ExecutorState]


class WorkerService:
    """Lists processes."""

    def __init__(self, store: Store, accounts: Accounts, metrics: Metrics, status: Status) -> None:
        self._store = store
        self._accounts = accounts
        self._metrics = metrics
        self._status = status

    async def list(self, principal: Principal, workspace: str) -> Processes:
        """List workers and executors.

        The admin of one workspace sees the runs and agent classes of that workspace only.
        """
        await self._accounts.authorize(principal, "diagnose", workspace)
        operator = may_operate(principal)
        holders = await self._store.holders(None if operator else workspace, _MOST)
        held = {holder.name: holder.runs for holder in holders if not holder.is_executor}
        since_ms = self._store.clock.now_ms() - LEASE_MS
        engine = self._status.engine
        this = engine.worker_name if engine is not None else None
        workers = [
            WorkerState(
                row.name,
                row.started_ms,
                row.beat_ms,
                row.beat_ms >= since_ms,
                held.get(row.name, 0),
                _visible(capabilities_from_text(row.capabilities), None if operator else workspace),
                row.name == this,
                self._status.version if row.name == this else None,
                self._metrics.lanes() if row.name == this else {},
            )
            for row in await self._store.worker_rows(_MOST)
        ]
        executors = [
            ExecutorState(holder.name, holder.runs, holder.beat_ms)
            for holder in holders
            if holder.is_executor and holder.name != VERIFYING  # no executor has it any more
        ]
        return Processes(workers, executors)


def _visible(capabilities: Mapping[str, int], workspace: str | None) -> dict[str, int]:
    """Return the capabilities that the admin of a workspace may see; None: all.

    >>> _visible({"": 0, "agent:acme/writer": 2, "agent:other/x": 1}, "acme")
    {'agent:acme/writer': 2}
    """
    return {
        name: version
        for name, version in sorted(capabilities.items())
        if name and (workspace is None or name.startswith(f"agent:{workspace}/"))
    }


async def migrate_database(url: str, wait_s: float = 0) -> int:
    """Create or upgrade the tables of a database. Returns its schema, the number of the newest migration.

    While the database is unavailable, retry for `wait_s` seconds.
    """
    store = store_at(url)
    try:
        await open_within(store, wait_s)
        await store.build_indexes()
        return await store.schema()
    finally:
        await store.close()
