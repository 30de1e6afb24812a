"""Who can take a run, and what a run that is not over waits for.

Executors are programs outside that claim `pull` runs. They are not registered anywhere: this process
remembers the requests to claim runs that it received, also those that got none; the database shows the
runs that executors claimed from any process. Replicas publish with their heartbeats the functions and agent
classes that they can launch.

What a run waits for is found when one run is read, not for lists.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Final

from wakeful.document import policy_or_default
from wakeful.document.guards import MANUAL
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.metrics import Metrics
from wakeful.engine.rescuer import LEASE_MS
from wakeful.job.policy import DEFAULT_POLICY, Policy
from wakeful.job.start_rules import Capabilities, Requirement, can_take
from wakeful.run.verification import MAX_TRIES
from wakeful.service.recent_values import RecentValues
from wakeful.service.row_codec import instant
from wakeful.store.instances import InstanceView
from wakeful.store.port import Store
from wakeful.store.rows import RunFilter, RunView
from wakeful.store.sql.verifications import VerificationView
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

    def record_request(
        self, workspace: str, agents: Sequence[str] | None, lanes: Sequence[str] | None
    ) -> None:
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


# --- what a run waits for --------------------------------------------------------------------------

#: How many live runs of a job are read to find the one that a run waits for.
_LIVE: Final = 10
#: How much of the last error is repeated.
_EXCERPT: Final = 200


@dataclass(frozen=True, slots=True)
class WaitingFacts:
    """What the reason depends on besides the run itself."""

    now_ms: int
    policy: Policy = DEFAULT_POLICY
    #: the id of the run of the same job that must end before this one may start
    ahead: str | None = None
    #: used and total slots of the lane in this process; None: this process has no workers
    slots: tuple[int, int] | None = None
    #: whether any process that starts runs is alive
    workers: bool = True
    #: whether an executor asked for runs of the agent lately
    executor: bool = False
    #: whether there are replicas, but none that can launch the run
    unmet: bool = False
    #: the instance of a signal
    instance: InstanceView | None = None


class WaitingReasons:
    """Finds what runs wait for."""

    def __init__(self, store: Store, executors: Executors, replicas: Replicas, metrics: Metrics) -> None:
        self._store = store
        self._replicas = replicas
        self._executors = executors
        self._metrics = metrics

    async def of(self, run: RunView) -> str | None:
        """Return what the run waits for; None if it is over."""
        now_ms = self._store.clock.now_ms()
        if run.verifying:
            return _verifying(run, await self._store.verification(run.id))
        if run.state == "running":
            return waiting_for(run, WaitingFacts(now_ms))
        if run.state not in ("pending", "retrying"):
            return None
        return waiting_for(run, await self._facts(run, now_ms))

    async def _facts(self, run: RunView, now_ms: int) -> WaitingFacts:
        """Read what the reason depends on, in the order of `waiting_for`, until it is known."""
        if run.due_ms is not None and run.due_ms > now_ms:
            retrying = run.state == "retrying"
            return WaitingFacts(now_ms, await self._policy(run) if retrying else DEFAULT_POLICY)
        if run.due_ms is None and run.instance is not None:
            instance = await self._store.instance(run.workspace, run.agent, run.instance)
            if instance is not None:
                return WaitingFacts(now_ms, instance=instance)
        if run.serial and run.job_id is not None:
            live = RunFilter(
                run.workspace, run.agent, run.job_id, states=("running", "retrying"), limit=_LIVE
            )
            ahead = run_ahead(run, await self._store.runs(live))
            if ahead is not None:
                return WaitingFacts(now_ms, await self._policy(run), ahead)
        if run.is_pull:
            seen_ms = await self._executors.last_seen_ms(run.workspace, run.agent, run.lane)
            return WaitingFacts(now_ms, executor=seen_ms is not None)
        if await self._replicas.lack(Requirement(run.requires, run.requires_version)):
            return WaitingFacts(now_ms, unmet=True)
        slots, workers = self._metrics.lanes().get(run.lane), await self._store.workers(now_ms - LEASE_MS)
        return WaitingFacts(now_ms, slots=slots, workers=bool(workers))

    async def _policy(self, run: RunView) -> Policy:
        row = await self._store.job_by_id(run.job_id, deleted=True) if run.job_id else None
        text = None if row is None else row.policy
        if run.job_id is None and run.instance is not None:
            agent_class = await self._store.agent_class(run.workspace, run.agent)
            text = None if agent_class is None else agent_class.policy
        return policy_or_default(text)


def run_ahead(run: RunView, live: Iterable[RunView]) -> str | None:
    """Return the id of the run that a serial run waits for: the running one, else an older retrying one."""
    others = [other for other in live if other.id != run.id]
    for other in others:
        if other.state == "running":
            return other.id
    for other in others:
        older = (other.scheduled_ms, other.id) < (run.scheduled_ms, run.id)
        if other.state == "retrying" and (run.state == "pending" or older):
            return other.id
    return None


def waiting_for(run: RunView, facts: WaitingFacts) -> str | None:
    """Return what a run waits for; None if it is over. The text continues `STATE: `."""
    if run.state == "running":
        return _running(run)
    if run.state not in ("pending", "retrying"):
        return None
    if run.state == "retrying" and run.due_ms is not None and run.due_ms > facts.now_ms:
        return _next_attempt(run, facts.policy)
    if run.due_ms is not None and run.due_ms > facts.now_ms:
        return f"starts at {instant(run.due_ms)}"
    if run.due_ms is None and facts.instance is not None:
        return _mailbox(run, facts.instance, facts.now_ms)
    if facts.ahead is not None:
        overlap = facts.policy.overlap
        why = f" (overlapPolicy {overlap})" if overlap.startswith("queue") else ""
        return f"behind run {facts.ahead}{why}"
    if run.is_pull:
        return _executor(run, facts)
    if facts.unmet:
        return Requirement(run.requires, run.requires_version).advice
    if facts.slots is not None and facts.slots[0] >= facts.slots[1]:
        return f"lane {run.lane} is full ({facts.slots[0]} of {facts.slots[1]})"
    if not facts.workers:
        return "waits for a worker: no process that starts runs is alive; start wakeful serve or worker"
    return "waits for a worker"


def _mailbox(run: RunView, instance: InstanceView, now_ms: int) -> str:
    """Return why a signal is hidden in its mailbox."""
    row = instance.row
    if row.status != "active":
        note = f": {row.note}" if row.note else ""
        return f"instance {row.name} is {row.status}{note}"
    if run.fire_ms > now_ms:
        return f"starts at {instant(run.fire_ms)}"
    ahead = f"run {instance.active_run}" if instance.active_run else "another signal"
    return f"behind {ahead} of instance {row.name}"


def _executor(run: RunView, facts: WaitingFacts) -> str:
    expires = f"the run expires at {instant(run.claim_deadline_ms)}"
    seen = "one asked" if facts.executor else "none has asked"
    return f"waits for an executor ({seen} for runs of agent {run.agent} in the last {RECENTLY}; {expires})"


def _next_attempt(run: RunView, policy: Policy) -> str:
    number = f"attempt {run.failed_attempts + 1} of {policy.max_attempts} at {instant(run.due_ms)}"
    error = (run.error or "").strip().partition("\n")[0][:_EXCERPT]
    return f"{number}, last error: {error}" if error else number


def _verifying(run: RunView, verification: VerificationView | None) -> str:
    """Return what a run that was reported as done waits for."""
    if verification is None:  # it has just ended
        return "its verification"
    kind = json.loads(verification.verify).get("kind")
    reported = f"reported as done at {instant(verification.reported_ms)}"
    if kind == MANUAL:
        until = instant(verification.due_ms)
        command = f"wakeful verify {run.id} --attempt {run.attempt}"
        return f"a person confirms it with `{command}` until {until} ({reported})"
    tries = f", try {verification.tries} of {MAX_TRIES}" if verification.tries else ""
    return f"its verification by {kind}{tries} ({reported})"


def _running(run: RunView) -> str:
    if run.awaiting_callback:
        awaiting = f"awaiting callback since {instant(run.started_ms)}, until {instant(run.due_ms)}"
        return f"{run.error} ({awaiting})" if run.error else awaiting
    where = f"on {'executor' if run.is_pull else 'worker'} {run.worker}" if run.worker else "without a worker"
    if run.is_pull and run.waiting:
        return f"{where}: {run.waiting}"
    return f"{where} since {instant(run.started_ms)}"
