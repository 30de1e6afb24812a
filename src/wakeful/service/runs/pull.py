"""Runs for external executors: claim, heartbeat and release; `RunService` completes them.

Each claimed run has its own lease. Run and attempt are the fence: a heartbeat renews only the leases of the
attempts that it names. The name of an executor is a label.

A claim has an id, which its runs keep. What a claim took and nobody gets (it was cancelled, it failed, its
executor disconnected, its response was lost) is returned by this id, and the attempts do not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.errors import FailedPrecondition, InvalidArgument
from wakeful.logs import get_logger
from wakeful.model.codec import JsonObject
from wakeful.service.auth.access import Principal, visible_agent
from wakeful.service.auth.accounts import Accounts
from wakeful.service.runs.claim_hub import ClaimHub
from wakeful.service.runs.claims import Claims
from wakeful.service.runs.completions import ATTEMPT_MISSING
from wakeful.service.runs.executors import Executors
from wakeful.service.runs.heartbeats import MAX_HEARTBEATS, Heartbeats, Renewed, not_claimed
from wakeful.service.runs.runs import RunService
from wakeful.service.runs.telemetry import RunTelemetry
from wakeful.store.changelog import CLAIM_OVER, PULL_RUNS, RUNS, claim_topic
from wakeful.store.claim_requests import ClaimedRun, ClaimRequest, ClaimScope
from wakeful.store.port import Store
from wakeful.store.rows import VERIFYING, Renewal, RunView
from wakeful.values.ids import new_id
from wakeful.values.stored_text import is_storable

#: Limits of one claim.
MAX_CLAIM: Final = 100
MAX_WAIT_MS: Final = 60_000
#: Claims that wait at least this long do not all end at the same time.
_LONG_WAIT_MS: Final = 10_000
#: The most characters of what a run waits for.
MAX_WAITING: Final = 1_000
#: Seconds after which a claim that waits for nothing ends, although other runs may pass their prechecks.
_CHECKS_S: Final = 20.0
#: Seconds between two tries to return the runs of a claim, and until their leases have ended by themselves.
_RETURN_EVERY_S: Final = 1.0
_RETURN_FOR_S: Final = 30.0
#: Seconds in which a claim whose statement failed may still be committed.
_IN_DOUBT_S: Final = 5.0
#: Seconds for which a process knows that a claim is over: longer than one waits.
_OVER_S: Final = 2 * MAX_WAIT_MS / 1000

log = get_logger("wakeful.service")


class HeartbeatResult(NamedTuple):
    """The ids of the runs of a heartbeat, by the state of their leases."""

    renewed: list[str]
    #: no longer claimed in that attempt, or timed out: the executor must stop working on them
    lost: list[str]


class ReleaseResult(NamedTuple):
    """The ids of the runs of a release: those that others can claim now, and those that were not held."""

    released: list[str]
    lost: list[str]


class PullService:
    """Lets executors claim runs and renew their leases."""

    def __init__(
        self,
        store: Store,
        accounts: Accounts,
        runs: RunService,
        executors: Executors,
        launchers: LauncherRegistry,
        telemetry: RunTelemetry,
    ) -> None:
        self._store = store
        self._accounts = accounts
        self._runs = runs
        self._executors = executors
        self._heartbeats = Heartbeats(store)
        self.claims = Claims(store, launchers, telemetry)
        self._hub = ClaimHub(store)
        self._stopping = asyncio.Event()
        #: the claims that are over, by their topics, oldest first, with the time until which this matters
        self._over: dict[str, float] = {}
        self._returning: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()
        store.listen(self._on_notification)

    def _on_notification(self, topic: str) -> None:
        if topic.startswith(CLAIM_OVER):
            now = asyncio.get_running_loop().time()
            while self._over and next(iter(self._over.values())) <= now:
                del self._over[next(iter(self._over))]
            self._over.pop(topic, None)
            self._over[topic] = now + _OVER_S
            self._hub.end(topic)
        elif topic in (PULL_RUNS, RUNS):
            self._hub.notify()

    def shut_down(self) -> None:
        """Return from all waiting claims without runs: the process stops."""
        self._stopping.set()
        self._stopping = asyncio.Event()
        self._hub.end()

    async def close(self) -> None:
        """Return the runs of claims that nobody waits for. The store is closed after it."""
        self._closing.set()
        await self._hub.close()
        if self._returning:
            await asyncio.wait(self._returning, timeout=_IN_DOUBT_S)
        self._closing = asyncio.Event()  # the scheduler may start again

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
        claim_id: str | None = None,
    ) -> list[JsonObject]:
        """Claim up to `limit` due runs for this executor; with `wait_ms`, wait until there is one.

        Returns the JSON of each run with the `target` of its job, its whole `payload`, its `timeoutMs`
        and the W3C `traceparent` of its attempt. `claim_id` is a name for `release`, not used before. A claim
        that is cancelled or fails gives its runs back.
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
        if claim_id is not None:
            _check_claim_id(claim_id)
        claim_id = claim_id or new_id(self._store.clock.now_ms())
        topic = claim_topic(workspace, worker, claim_id)
        request = ClaimRequest(ClaimScope.of(workspace, agents, lanes), worker, limit, claim_id)
        loop = asyncio.get_running_loop()
        until = loop.time() + spread_wait_s(wait_ms)
        checks_until = max(until, loop.time() + _CHECKS_S)
        stopping = self._stopping
        while topic not in self._over:
            self._executors.record_request(workspace, agents, lanes)
            waiter = self._hub.join(request, topic, until)
            try:
                # Not cancelled: the transaction may be committed, and then its runs are known here.
                taken = await asyncio.shield(waiter.result)
                await self._accounts.names.load(each.view.triggered_by for each in taken)
                runs = await self.claims.prepare(workspace, worker, taken) if taken else []
            except BaseException:
                self._hub.leave(waiter)
                self.abandon(workspace, worker, claim_id, waiter.result)
                raise
            if runs and topic in self._over:  # it was released before its runs were claimed
                self.abandon(workspace, worker, claim_id)
                return []
            if runs or not taken or stopping.is_set() or loop.time() >= checks_until:
                return runs
            # None of them has anything to do: go on to others.
        return []

    def abandon(
        self,
        workspace: str,
        worker: str,
        claim_id: str,
        claiming: asyncio.Future[list[ClaimedRun]] | None = None,
    ) -> None:
        """Return what a claim took, in the background: nobody gets it. `claiming` may still be under way."""
        task = asyncio.create_task(
            self._return(workspace, worker, claim_id, claiming), name="wakeful-return-claim"
        )
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    async def _return(
        self,
        workspace: str,
        worker: str,
        claim_id: str,
        claiming: asyncio.Future[list[ClaimedRun]] | None,
    ) -> None:
        in_doubt = False
        if claiming is not None:
            await asyncio.wait({claiming})
            in_doubt = claiming.cancelled() or claiming.exception() is not None
            if not in_doubt and not claiming.result():
                return
        until = asyncio.get_running_loop().time() + _RETURN_FOR_S
        for tried in itertools.count(1):
            try:
                now_ms = self._store.clock.now_ms()
                released = await self._store.release_claims(now_ms, workspace, worker, (), claim_id)
            except Exception as error:
                log.warning("claim.unreturned", worker=worker, tried=tried, error=str(error))
                if self._closing.is_set() or asyncio.get_running_loop().time() > until:
                    return  # their leases end
                await self._pause(_RETURN_EVERY_S)
                continue
            if released:
                log.info("claim.returned", run_ids=released, worker=worker)
            if not in_doubt or released or self._closing.is_set():
                return
            in_doubt = False  # the database may commit it after its connection was lost
            await self._pause(_IN_DOUBT_S)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    async def release(
        self,
        principal: Principal,
        workspace: str,
        worker: str,
        runs: Sequence[tuple[str, int]] = (),
        claim_id: str | None = None,
    ) -> ReleaseResult:
        """Return runs that an executor has claimed and does not execute, each named by its id and attempt.

        With `claim_id` also whatever that claim gave it, or still gives: its response may be lost. Others can
        claim the runs at once, and the attempts do not count. Runs that the executor does not hold in that
        attempt, or that the caller may not see, are reported as lost and not changed.
        """
        await self._accounts.authorize(principal, "work", workspace)
        check_executor_name(worker)
        if claim_id is not None:
            _check_claim_id(claim_id)
        _check_held(runs)
        released = await self._store.release_claims(
            self._store.clock.now_ms(), workspace, worker, runs, claim_id, visible_agent(principal, None)
        )
        returned = set(released)
        return ReleaseResult(released, [run_id for run_id, _ in runs if run_id not in returned])

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
            raise not_claimed(run)
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
        raise not_claimed(run)

    async def heartbeats(
        self,
        principal: Principal,
        workspace: str,
        held: Sequence[tuple[str, int]],
        worker: str | None = None,
        waiting: Mapping[str, str] | None = None,
    ) -> HeartbeatResult:
        """Renew the leases of many claimed runs, each named by its id and attempt.

        `waiting` says, by id, what the work of runs waits for. Their timeouts count from the end of the wait.
        Runs that the caller may not see are reported as lost.
        """
        _check_held(held)
        _check_waiting(waiting or {})
        ids = [run_id for run_id, _ in held]
        kept = (await self._renew(principal, workspace, held, worker, waiting)).kept
        return HeartbeatResult(
            [each for each in ids if each in kept], [each for each in ids if each not in kept]
        )

    async def _renew(
        self,
        principal: Principal,
        workspace: str,
        held: Sequence[tuple[str, int]],
        worker: str | None,
        waiting: Mapping[str, str] | None = None,
    ) -> Renewed:
        """Renew the leases of these runs, and fail the attempts that timed out."""
        await self._accounts.authorize(principal, "work", workspace)
        if worker is not None:
            check_executor_name(worker)
        own, notes = visible_agent(principal, None), waiting or {}
        renewals = [Renewal(run_id, attempt, own, worker, notes.get(run_id)) for run_id, attempt in held]
        return await self._heartbeats.renew(workspace, renewals)


def _check_held(held: Sequence[tuple[str, int]]) -> None:
    if len(held) > MAX_HEARTBEATS:
        raise InvalidArgument(f"runs: at most {MAX_HEARTBEATS} at once, not {len(held)}")
    if len({run_id for run_id, _ in held}) < len(held):
        raise InvalidArgument("runs: name each run once, with the attempt that you hold")


def spread_wait_s(wait_ms: int) -> float:
    """Return how many seconds a claim waits: a long one up to a fifth less than it may.

    Workers that begin to wait together, after a restart of the server, then do not ask again together.
    """
    shorter = random.random() / 5 if wait_ms >= _LONG_WAIT_MS else 0
    return wait_ms / 1000 * (1 - shorter)


def _check_waiting(waiting: Mapping[str, str]) -> None:
    if any(not 0 < len(text) <= MAX_WAITING or not is_storable(text) for text in waiting.values()):
        raise InvalidArgument(f"waitingFor: write 1 to {MAX_WAITING} characters for each run")


def _check_claim_id(claim_id: str) -> None:
    if not 0 < len(claim_id) <= 200 or not claim_id.isprintable() or not is_storable(claim_id):
        raise InvalidArgument("claimId: write 1 to 200 printable characters, such as a new UUID")


def check_executor_name(worker: str) -> None:
    """Raise InvalidArgument for an invalid name of an executor."""
    if not 0 < len(worker) <= 200 or not worker.isprintable():
        raise InvalidArgument("worker: write a name of 1 to 200 printable characters")
    if worker == VERIFYING:
        raise InvalidArgument(f"worker: '{VERIFYING}' is reserved; choose another name")
