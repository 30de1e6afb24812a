"""Runs for executors outside: they claim them, say that they are at it, and complete them (`RunService`).

An executor is a worker like any other: its heartbeat is the lease on all that it holds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

from wakeful.document import payload_from_text, policy_from_text, work_from_text
from wakeful.engine.births import of_chain
from wakeful.engine.opening import closed
from wakeful.engine.outcome import conclude, overrun
from wakeful.engine.targets import Targets
from wakeful.errors import FailedPrecondition, InvalidArgument, NotFound
from wakeful.job import Json
from wakeful.launch.port import Failed, Outcome
from wakeful.launch.workflow import dag_and_meta
from wakeful.logs import get_logger
from wakeful.service.access import Principal, narrowed
from wakeful.service.directory import Directory
from wakeful.service.runs import RunService
from wakeful.service.shapes import Shape, run_shape
from wakeful.store.port import PULL, Store, pull_lane
from wakeful.store.rows import RunView, TakenRun

#: The most that one claim gives, and the longest that it waits for something to give.
MOST: Final = 100
LONGEST_WAIT_MS: Final = 60_000
#: How often somebody who waits looks again: a replica on the same SQLite file is not heard.
_LOOK_S: Final = 1.0

log = get_logger("wakeful.service")


class PullService:
    """Gives runs to executors."""

    def __init__(self, store: Store, directory: Directory, runs: RunService, targets: Targets) -> None:
        self._store = store
        self._directory = directory
        self._runs = runs
        self._targets = targets
        self._news = asyncio.Event()
        self._stopping = asyncio.Event()
        store.listen(self._heard)

    def _heard(self, topic: str) -> None:
        if topic == "runs":
            self._news.set()
            self._news = asyncio.Event()

    def hang_up(self) -> None:
        """End the claims that wait, with nothing: the process stops."""
        self._stopping.set()
        self._stopping = asyncio.Event()
        self._heard("runs")

    async def claim(
        self,
        who: Principal,
        workspace: str,
        worker: str,
        *,
        agents: Sequence[str] | None = None,
        lanes: Sequence[str] | None = None,
        limit: int = 1,
        wait_ms: int = 0,
    ) -> list[Shape]:
        """Up to `limit` runs that wait to be executed, now this executor's; with `wait_ms`, wait for one.

        Each is shown as a run is, with its job's `target`, its whole `payload` and its `timeoutMs`.
        """
        await self._directory.enter(who, "work", workspace)
        own = narrowed(who, None)
        if own is not None:
            for agent in agents or ():
                narrowed(who, agent)
            agents = [own]
        if not 1 <= limit <= MOST:
            raise InvalidArgument(f"limit: write a whole number from 1 to {MOST}")
        if not 0 <= wait_ms <= LONGEST_WAIT_MS:
            raise InvalidArgument(f"waitMs: write a whole number from 0 to {LONGEST_WAIT_MS}")
        name = executor(worker)
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_ms / 1000
        where = None if lanes is None else [pull_lane(lane) for lane in lanes]
        stopping = self._stopping
        while True:
            news = self._news
            now_ms = self._store.clock.now_ms()
            taken = await self._store.claim(now_ms, name, workspace, agents, where, limit)
            shapes = [shape for run in taken if (shape := await self._shape(who, name, run)) is not None]
            left = until - loop.time()
            if shapes or left <= 0:
                return shapes
            due_ms = await self._store.next_claim_ms(now_ms, workspace, agents, where)
            if due_ms is not None:  # nobody says so when the time of a retry has come
                left = min(left, max(0.0, (due_ms - self._store.clock.now_ms()) / 1000))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, _LOOK_S)):
                    await news.wait()
            if stopping.is_set():
                return []

    async def heartbeat(self, who: Principal, workspace: str, run_id: str) -> RunView:
        """Say that the executor of this run is at it, and at all else that it holds.

        FailedPrecondition: it is not its run any more: it was stopped, completed or given to another.
        """
        await self._directory.enter(who, "work", workspace)
        run = await self._runs.get(who, workspace, run_id)
        if run.state != "running" or not (run.worker or "").startswith(PULL):
            raise FailedPrecondition(
                f"run '{run_id}' is {run.state} and nobody's to keep alive; stop working on it"
            )
        now_ms, worker = self._store.clock.now_ms(), run.worker or ""
        job = await self._store.job_by_id(run.job_id, deleted=True) if run.job_id else None
        over = overrun(run, policy_from_text(job.policy), now_ms) if job else None
        if over is not None:
            await self._store.finish(worker, [over], of_chain)
            raise FailedPrecondition(f"run '{run_id}' has {over.error}; stop working on it")
        await self._store.beat(worker, now_ms, [])
        return run

    async def _shape(self, who: Principal, worker: str, run: TakenRun) -> Shape | None:
        """A claimed run with all that it takes to execute it; None where that is not to be had."""
        view = await self._store.run(run.id)
        if view is None:
            return None
        held = self._targets.taken(run)
        shut = closed(held.work, run.trigger, run.attempt, self._store.clock.now_ms())
        if shut is not None:
            await self._end(worker, run, shut)
            return None
        payload: Json = payload_from_text(held.launch.payload_text)
        if held.launch.target.get("kind") == "workflow":
            try:
                payload = payload_from_text(await dag_and_meta(self._store, held.launch))
            except (NotFound, InvalidArgument) as error:
                await self._end(worker, run, Failed(error.message, reason="workflow_missing"))
                return None
        target = work_from_text(run.work).target
        return {
            **run_shape(view),
            "target": dict(target) if target else {"kind": "pull"},
            "payload": payload,
            "timeoutMs": held.policy.timeout_ms,
        }

    async def _end(self, worker: str, run: TakenRun, outcome: Outcome) -> None:
        now_ms = self._store.clock.now_ms()
        policy = policy_from_text(run.policy)
        finished = conclude(
            run.id, run.job_id, run.attempt, policy, outcome, now_ms, now_ms,
            failed_attempts=run.failed_attempts,
        )  # fmt: skip
        await self._store.finish(worker, [finished], of_chain)


def executor(worker: str) -> str:
    """The name that an executor has as a worker."""
    if not 0 < len(worker) <= 200 or not worker.isprintable():
        raise InvalidArgument("worker: name yourself, with text of 1 to 200 characters")
    return PULL + worker
