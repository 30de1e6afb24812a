"""Runs for external executors: claim and heartbeat; `RunService` completes them.

Each claimed run has its own lease. Run and attempt are the fence: a heartbeat renews only the leases of the
attempts that it names. The name of an executor is a label.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from wakeful.consequences import consequences
from wakeful.document import policy_from_text
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.errors import FailedPrecondition, InvalidArgument
from wakeful.outcome import Finished, conclude, timed_out
from wakeful.policy import DEFAULT_POLICY, Policy
from wakeful.service.admin.budgets import Budgets
from wakeful.service.auth.access import Principal, visible_agent
from wakeful.service.auth.accounts import Accounts
from wakeful.service.runs.claims import Claims
from wakeful.service.runs.completions import ATTEMPT_MISSING
from wakeful.service.runs.executors import Executors
from wakeful.service.runs.runs import RunService
from wakeful.service.serializers import JsonObject
from wakeful.store.port import Store
from wakeful.store.rows import VERIFYING, RunView

#: Limits of one claim.
MAX_CLAIM: Final = 100
MAX_WAIT_MS: Final = 60_000
#: The most runs of one heartbeat.
MAX_HEARTBEATS: Final = 1_000
#: Seconds between two polls of a waiting claim: other processes on an SQLite file send no notification.
_POLL_S: Final = 1.0
#: Seconds after which a claim that waits for nothing ends, although other runs may pass their prechecks.
_CHECKS_S: Final = 20.0


class HeartbeatResult(NamedTuple):
    """The ids of the runs of a heartbeat, by the state of their leases."""

    renewed: list[str]
    #: no longer claimed in that attempt, or timed out: the executor must stop working on them
    lost: list[str]


class _Renewed(NamedTuple):
    """The runs whose leases were renewed, and those that timed out, with their errors."""

    kept: set[str]
    timed_out: dict[str, str]


class PullService:
    """Lets executors claim runs and renew their leases."""

    def __init__(
        self,
        store: Store,
        accounts: Accounts,
        budgets: Budgets,
        runs: RunService,
        executors: Executors,
        launchers: LauncherRegistry,
    ) -> None:
        self._store = store
        self._accounts = accounts
        self._runs = runs
        self._executors = executors
        self.claims = Claims(store, budgets, launchers)
        self._runs_changed = asyncio.Event()
        self._stopping = asyncio.Event()
        store.listen(self._on_notification)

    def _on_notification(self, topic: str) -> None:
        if topic == "runs":
            self._runs_changed.set()
            self._runs_changed = asyncio.Event()

    def shut_down(self) -> None:
        """Return from all waiting claims without runs: the process stops."""
        self._stopping.set()
        self._stopping = asyncio.Event()
        self._on_notification("runs")

    async def claim(
        self,
        principal: Principal,
        workspace: str,
        worker: str,
        *,
        agents: Sequence[str] | None = None,
        lanes: Sequence[str] | None = None,
        limit: int = 1,
        wait_ms: int = 0,
    ) -> list[JsonObject]:
        """Claim up to `limit` due runs for this executor; with `wait_ms`, wait until there is one.

        Returns the JSON of each run with the `target` of its job, its whole `payload`, its `timeoutMs`
        and the W3C `traceparent` of its attempt.
        """
        await self._accounts.authorize(principal, "work", workspace)
        own = visible_agent(principal, None)
        if own is not None:
            for agent in agents or ():
                visible_agent(principal, agent)
            agents = [own]
        if not 1 <= limit <= MAX_CLAIM:
            raise InvalidArgument(f"limit: write a whole number from 1 to {MAX_CLAIM}")
        if not 0 <= wait_ms <= MAX_WAIT_MS:
            raise InvalidArgument(f"waitMs: write a whole number from 0 to {MAX_WAIT_MS}")
        check_executor_name(worker)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        checks_until = max(deadline, loop.time() + _CHECKS_S)
        stopping = self._stopping
        while True:
            runs_changed = self._runs_changed
            now_ms = self._store.clock.now_ms()
            self._executors.asked(workspace, agents, lanes)
            taken = await self._store.claim(now_ms, worker, workspace, agents, lanes, limit)
            runs = await self.claims.prepare(workspace, worker, taken) if taken else []
            remaining_s = deadline - loop.time()
            if taken and not runs and not stopping.is_set() and loop.time() < checks_until:
                continue  # none of them has anything to do: go on to others
            if runs or remaining_s <= 0:
                return runs
            due_ms = await self._store.next_claim_ms(now_ms, workspace, agents, lanes)
            if due_ms is not None:  # no notification is sent when a retry becomes due
                remaining_s = min(remaining_s, max(0.0, (due_ms - self._store.clock.now_ms()) / 1000))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(remaining_s, _POLL_S)):
                    await runs_changed.wait()
            if stopping.is_set():
                return []

    async def heartbeat(
        self,
        principal: Principal,
        workspace: str,
        run_id: str,
        attempt: int | None,
        worker: str | None = None,
    ) -> RunView:
        """Renew the lease of a claimed run.

        FailedPrecondition: the run is no longer claimed in this attempt, or has timed out.
        """
        run = await self._runs.get(principal, workspace, run_id)
        if run.state != "running" or not run.is_pull or run.verifying:
            raise _not_claimed(run)
        if attempt is None:
            raise InvalidArgument(ATTEMPT_MISSING)
        renewed = await self._renew(principal, workspace, [(run_id, attempt)], worker)
        if run_id in renewed.kept:
            return run
        if run_id in renewed.timed_out:
            error = renewed.timed_out[run_id]
            raise FailedPrecondition(f"run '{run_id}' has {error}; stop working on it")
        run = await self._runs.get(principal, workspace, run_id)
        if run.state == "running" and run.attempt != attempt:
            raise FailedPrecondition(
                f"run '{run_id}' is at attempt {run.attempt}, not {attempt}; stop working on it"
            )
        raise _not_claimed(run)

    async def heartbeats(
        self, principal: Principal, workspace: str, held: Sequence[tuple[str, int]], worker: str | None = None
    ) -> HeartbeatResult:
        """Renew the leases of many claimed runs, each named by its id and attempt.

        Runs that the caller may not see are reported as lost.
        """
        if len(held) > MAX_HEARTBEATS:
            raise InvalidArgument(f"runs: at most {MAX_HEARTBEATS} at once, not {len(held)}")
        ids = [run_id for run_id, _ in held]
        if len(set(ids)) < len(ids):
            raise InvalidArgument("runs: name each run once, with the attempt that you hold")
        kept = (await self._renew(principal, workspace, held, worker)).kept
        return HeartbeatResult(
            [each for each in ids if each in kept], [each for each in ids if each not in kept]
        )

    async def _renew(
        self, principal: Principal, workspace: str, held: Sequence[tuple[str, int]], worker: str | None
    ) -> _Renewed:
        """Renew the leases of these runs, and fail the attempts that timed out."""
        await self._accounts.authorize(principal, "work", workspace)
        if worker is not None:
            check_executor_name(worker)
        now_ms = self._store.clock.now_ms()
        renewed = await self._store.renew(now_ms, workspace, held, visible_agent(principal, None), worker)
        errors: dict[str, str] = {}
        ended: dict[str, list[Finished]] = {}
        for run in renewed:
            policy = _policy(run.policy)
            outcome = timed_out(run.started_ms, policy, now_ms)
            if outcome is not None:
                finished = conclude(
                    run.id, run.job_id, run.attempt, policy, outcome, run.started_ms or now_ms, now_ms,
                    failed_attempts=run.failed_attempts,
                )  # fmt: skip
                ended.setdefault(run.worker or "", []).append(finished)
                errors[run.id] = outcome.error
        for holder, outcomes in ended.items():
            await self._store.finish(holder, outcomes, consequences)
        return _Renewed({run.id for run in renewed} - errors.keys(), errors)


def _not_claimed(run: RunView) -> FailedPrecondition:
    if run.verifying:
        return FailedPrecondition(f"run '{run.id}' was reported as done and is being verified; stop")
    return FailedPrecondition(f"run '{run.id}' is {run.state} and not claimed by you; stop working on it")


def _policy(text: str) -> Policy:
    """Return the policy of a job, or the default if it cannot be read."""
    try:
        return policy_from_text(text)
    except InvalidArgument:
        return DEFAULT_POLICY


def check_executor_name(worker: str) -> None:
    """Raise InvalidArgument for an invalid name of an executor."""
    if not 0 < len(worker) <= 200 or not worker.isprintable():
        raise InvalidArgument("worker: write a name of 1 to 200 printable characters")
    if worker == VERIFYING:
        raise InvalidArgument(f"worker: '{VERIFYING}' is reserved; choose another name")
