"""Claims of executors at two processes on one database, on virtual time.

Executors come, wait, are cancelled at any await, disconnect and release; runs of several workspaces, agents
and lanes become due; statements take a while and fail; notifications are late or missing. Each attempt goes
to at most one executor, nothing stays claimed for nobody, no attempt that was returned counts, and an
executor that waits gets a run that it may claim within a bound, in the order of arrival.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.simulation.virtual_loop import FalseClock, VirtualLoop, run_virtually
from tests.support.effort import cases
from tests.support.interruptions import cancel_at
from tests.support.pull_runs import new_job, pulled
from tests.support.services import run_service
from wakeful.document import Defaults
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.metrics import Metrics
from wakeful.errors import Unavailable
from wakeful.service.auth.access import LOCAL
from wakeful.service.auth.accounts import Accounts
from wakeful.service.runs import claim_hub
from wakeful.service.runs.claim_hub import ClaimHub, Waiter
from wakeful.service.runs.executors import Executors
from wakeful.service.runs.pull import PullService
from wakeful.service.runs.telemetry import RunTelemetry
from wakeful.store.claim_requests import ClaimedRun, ClaimRequest, ClaimScope
from wakeful.store.rows import JobRow, RunFilter
from wakeful.store.sqlite import SqliteStore
from wakeful.values.clock import SystemClock

START_MS: Final = 1_750_000_000_000
WORKSPACES: Final = ("acme", "zen")
AGENTS: Final = ("ada", "bob", "cleo")
LANES: Final = ("cron", "main")
#: Seconds that a statement takes at most, each way.
LATENCY_S: Final = 0.03
#: Seconds after which an executor that waits must have a run: a poll, a pause, and some statements.
BOUND_S: Final = claim_hub.POLL_S + 20 * LATENCY_S


class SlowStore:
    """The store of one process: its calls take time and may fail, and its notifications may be missing."""

    def __init__(self, store: SqliteStore, rng: random.Random, faults: float, lost: float) -> None:
        self._store = store
        self._rng = rng
        self.faults = faults
        self._lost = lost
        self.looks = 0
        #: seconds by which each call is held up
        self.held_up_s = 0.0

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        return self._slow(name, value) if inspect.iscoroutinefunction(value) else value

    def _slow(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self.looks += name == "claimable_ms"
            await asyncio.sleep(self.held_up_s + self._rng.random() * LATENCY_S)
            fails, late = self._rng.random() < self.faults, self._rng.random() < 0.5
            result = await method(*args, **kwargs) if late or not fails else None
            await asyncio.sleep(self._rng.random() * LATENCY_S)
            if fails:
                raise Unavailable(f"{name}: no response")
            return result

        return call

    def listen(self, listener: Callable[[str], None]) -> None:
        def deliver(topic: str) -> None:
            if self._rng.random() >= self._lost:
                asyncio.get_running_loop().call_later(self._rng.random() * LATENCY_S, listener, topic)

        self._store.listen(deliver)


@dataclass(eq=False)
class OpenClaim:
    """A claim that an executor waits for."""

    scope: ClaimScope
    since: float


@dataclass
class World:
    """Two processes, their executors, and what these hold."""

    rng: random.Random
    store: SqliteStore
    pulls: list[PullService]
    ports: list[SlowStore]
    jobs: dict[tuple[str, str], JobRow]
    #: the attempts that executors hold, with the executor
    held: dict[tuple[str, int], str] = field(default_factory=dict)
    given: set[tuple[str, int]] = field(default_factory=set)
    open: list[OpenClaim] = field(default_factory=list)
    #: since when an open claim could have got a run
    owed: dict[tuple[OpenClaim, str], float] = field(default_factory=dict)
    number: int = 0

    async def claim(
        self, pull: PullService, scope: ClaimScope, limit: int, wait_ms: int, claim_id: str
    ) -> None:
        worker = f"w-{claim_id}"
        entry = OpenClaim(scope, asyncio.get_running_loop().time())
        self.open.append(entry)
        try:
            runs = await pull.claim(
                LOCAL,
                scope.workspace,
                worker,
                agents=None if scope.agents is None else sorted(scope.agents),
                lanes=None if scope.lanes is None else sorted(scope.lanes),
                limit=limit,
                wait_ms=wait_ms,
                claim_id=claim_id,
            )
        except Unavailable:
            return
        finally:
            self.open.remove(entry)
        assert len(runs) <= limit
        for run in runs:
            attempt = str(run["id"]), int(str(run["attempt"]))
            assert attempt not in self.given, "an attempt was given twice"
            assert scope.workspace == run["workspace"]
            assert scope.agents is None or run["agentId"] in scope.agents
            assert scope.lanes is None or run["lane"] in scope.lanes
            self.given.add(attempt)
            self.held[attempt] = worker

    async def executor(self) -> None:
        """Claim once, in one of the ways in which executors end."""
        rng = self.rng
        self.number += 1
        claim_id = f"c{self.number}"
        pull = rng.choice(self.pulls)
        scope = ClaimScope.of(
            rng.choice(WORKSPACES),
            rng.choice([None, None, rng.sample(AGENTS, 1), rng.sample(AGENTS, 2)]),
            rng.choice([None, None, rng.sample(LANES, 1)]),
        )
        wait_ms = rng.choice([0, 200, 3_000, 10_000])
        claiming = self.claim(pull, scope, rng.choice([1, 1, 2, 5]), wait_ms, claim_id)
        way = rng.choice(["patient", "patient", "cancelled", "stepped", "released"])
        if way == "stepped":
            await cancel_at(claiming, rng.randint(1, 3), late=rng.random() < 0.5)
            return
        task = asyncio.create_task(claiming)
        if way != "patient":
            await asyncio.wait({task}, timeout=rng.random() * 2)
        if way == "cancelled":
            task.cancel()
        elif way == "released" and not task.done():
            try:
                released, _ = await pull.release(LOCAL, scope.workspace, f"w-{claim_id}", claim_id=claim_id)
                self.drop(f"w-{claim_id}", released)
            except Unavailable:
                pass
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()
        if way == "released":  # its response may have crossed the release
            await self.give_back(scope.workspace, f"w-{claim_id}", claim_id)

    def drop(self, worker: str, run_ids: Sequence[str] | None = None) -> None:
        for attempt, holder in list(self.held.items()):
            if holder == worker and (run_ids is None or attempt[0] in run_ids):
                del self.held[attempt]

    async def give_back(self, workspace: str, worker: str, claim_id: str) -> None:
        """Return all runs of a claim."""
        while True:
            try:
                await self.pulls[0].release(LOCAL, workspace, worker, claim_id=claim_id)
                break
            except Unavailable:
                await asyncio.sleep(0.1)
        self.drop(worker)

    async def produce(self) -> None:
        """Add runs, some of which are due later."""
        rng = self.rng
        for _ in range(40):
            await asyncio.sleep(rng.random() * 0.4)
            job = self.jobs[rng.choice(WORKSPACES), rng.choice(AGENTS)]
            due_ms = self.store.clock.now_ms() + rng.choice([0, 0, 300, 1_500])
            serial = rng.random() < 0.2
            count = rng.choice([1, 1, 4])
            lane = rng.choice(LANES)
            await self.store.add_runs([pulled(job, due_ms, lane=lane, serial=serial) for _ in range(count)])

    async def watch(self) -> None:
        """Check that no executor waits longer than the bound for a run that it could claim."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(0.2)
            now, now_ms = loop.time(), self.store.clock.now_ms()
            owed: dict[tuple[OpenClaim, str], float] = {}
            for workspace in WORKSPACES:
                waiting = await self.store.runs(
                    RunFilter(workspace, states=("pending", "retrying"), limit=1_000)
                )
                for run in waiting:
                    if run.due_ms is None or run.due_ms > now_ms or run.serial:
                        continue
                    for claim in self.open:
                        _, agents, lanes = claim.scope
                        if claim.scope.workspace != workspace or (agents and run.agent not in agents):
                            continue
                        if lanes is None or run.lane in lanes:
                            since = owed[claim, run.id] = self.owed.get((claim, run.id), now)
                            assert now - since < BOUND_S, f"{claim} waits for {run.id}"
            self.owed = owed

    async def close(self) -> None:
        """Stop both processes."""
        for pull in self.pulls:
            await pull.close()
        await self.store.close()


def check_order(hub: ClaimHub) -> None:
    """Let an answer with runs fail if an earlier claim for the same runs still waits."""
    settle = hub._settle

    def checked(waiter: Waiter, result: list[ClaimedRun] | Exception) -> None:
        if result and not isinstance(result, Exception):
            for other in hub._waiters[waiter.scope.workspace]:
                if other is waiter:
                    break
                assert other.scope != waiter.scope or other.is_over
        settle(waiter, result)

    hub._settle = checked  # type: ignore[method-assign]


async def new_world(seed: int, faults: float = 0.0, lost: float = 0.0) -> World:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    rng = random.Random(seed)
    store = SqliteStore(":memory:", clock=FalseClock(loop, START_MS), inline=True)
    await store.open()
    jobs = {
        (workspace, agent): await new_job(
            store, f"of-{agent}", workspace=workspace, agent=agent, policy="{}", work="{}"
        )
        for workspace in WORKSPACES
        for agent in AGENTS
    }
    ports = [SlowStore(store, rng, faults, lost) for _ in range(2)]
    pulls = [new_pull(port) for port in ports]
    return World(rng, store, pulls, ports, jobs)


def new_pull(port: Any) -> PullService:
    telemetry = RunTelemetry(Metrics())
    accounts = Accounts(port, Defaults())
    pull = PullService(port, accounts, run_service(port), Executors(port), LauncherRegistry([]), telemetry)
    check_order(pull._hub)
    return pull


@pytest.mark.parametrize(
    ("faults", "lost"), [(0.0, 0.0), (0.05, 0.05), (0.0, 1.0)], ids=["well", "faulty", "no notifications"]
)
@pytest.mark.parametrize("seed", range(cases(4, 200)))
def test_each_run_goes_to_one_executor_that_waits_and_none_is_lost(
    seed: int, faults: float, lost: float
) -> None:
    async def story() -> None:
        world = await new_world(seed, faults, lost)
        watching = asyncio.create_task(world.watch())
        producing = asyncio.create_task(world.produce())
        executors: set[asyncio.Task[None]] = set()
        for _ in range(80):
            executors.add(asyncio.create_task(world.executor()))
            await asyncio.sleep(world.rng.random() * 0.2)
        await producing
        await asyncio.wait(executors)
        for task in executors:
            task.result()
        for port in world.ports:
            port.faults = 0.0
        await asyncio.sleep(60)  # what nobody got is returned
        assert not watching.done() or watching.result() is None
        watching.cancel()
        for workspace in WORKSPACES:
            for run in await world.store.runs(RunFilter(workspace, limit=1_000)):
                assert run.failed_attempts == 0, f"an attempt that was returned counts: {run.error}"
                holder = world.held.get((run.id, run.attempt))
                assert (run.state == "running", run.worker) == (holder is not None, holder)
        assert len(world.given) > 20
        await world.close()

    run_virtually(story())


def test_a_stop_answers_all_that_wait_at_once() -> None:
    async def story() -> None:
        world = await new_world(1)
        loop = asyncio.get_running_loop()
        scope = ClaimScope("acme")
        claims = [
            asyncio.create_task(world.claim(world.pulls[0], scope, 1, 60_000, f"c{number}"))
            for number in range(20)
        ]
        await asyncio.sleep(5)
        before = loop.time()
        world.pulls[0].shut_down()
        await asyncio.wait(claims)
        assert loop.time() == before
        await world.close()

    run_virtually(story())


def test_a_stop_answers_claims_that_are_repeated_one_by_one() -> None:
    class Store:
        clock = SystemClock()

        async def claim(self, now_ms: int, workspace: str, requests: Sequence[ClaimRequest]) -> None:
            if len(requests) > 1:
                raise ValueError("one of them is the cause")
            await asyncio.sleep(3_600)

    async def story() -> None:
        store: Any = Store()
        hub = ClaimHub(store)
        now = asyncio.get_running_loop().time()
        requests = [ClaimRequest(ClaimScope("acme"), "w", 1, f"c{number}") for number in range(3)]
        waiters = [hub.join(request, "topic", now) for request in requests]
        await asyncio.sleep(1)
        await hub.close()
        assert [type(waiter.result.exception()) for waiter in waiters] == [Unavailable] * 3

    run_virtually(story())


def test_claims_wait_on_the_next_event_loop_after_a_stop() -> None:
    class Store:
        clock = SystemClock()
        looks = 0

        async def claim(self, *given: object) -> list[list[ClaimedRun]]:
            return [[]]

        async def claimable_ms(self, now_ms: int, scopes: Sequence[ClaimScope]) -> list[None]:
            self.looks += 1
            return [None for _ in scopes]

    store: Any = Store()
    hub = ClaimHub(store)

    async def wait() -> None:
        until = asyncio.get_running_loop().time() + 4.5
        waiter = hub.join(ClaimRequest(ClaimScope("acme"), "w", 1, "c"), "topic", until)
        before = store.looks
        assert await waiter.result == []
        assert store.looks - before >= 4
        await hub.close()

    async def come_late() -> None:
        await hub.close()
        hub.join(
            ClaimRequest(ClaimScope("acme"), "w", 1, "c"), "topic", asyncio.get_running_loop().time() + 9
        )
        await asyncio.sleep(1)  # it waits when the event loop ends

    run_virtually(wait())
    run_virtually(wait())
    run_virtually(come_late())
    run_virtually(hub.close())


def test_a_look_that_the_database_held_up_does_not_delay_the_next() -> None:
    async def story() -> None:
        world = await new_world(4)
        loop, port, scope = asyncio.get_running_loop(), world.ports[0], ClaimScope("acme")
        waiting = asyncio.create_task(world.claim(world.pulls[0], scope, 1, 60_000, "held-up"))
        await asyncio.sleep(3)
        port.held_up_s, port.faults = 10.0, 1.0
        await waiting
        assert not world.given
        port.held_up_s = port.faults = 0.0
        await world.store.add_runs([pulled(world.jobs["acme", "ada"], world.store.clock.now_ms())])
        began = loop.time()
        await world.claim(world.pulls[0], scope, 1, 30_000, "next")
        assert world.given
        assert loop.time() - began < BOUND_S
        await world.close()

    run_virtually(story())


def test_waiting_executors_cost_one_look_each_second_whatever_their_number() -> None:
    async def story() -> None:
        world = await new_world(2)
        claims = [
            asyncio.create_task(
                world.claim(
                    world.pulls[0],
                    ClaimScope.of(WORKSPACES[number % 2], [f"agent-{number}"], None),
                    1,
                    60_000,
                    f"c{number}",
                )
            )
            for number in range(200)
        ]
        await asyncio.sleep(5)
        looked = world.ports[0].looks
        await asyncio.sleep(20)
        assert world.ports[0].looks - looked <= 21
        world.pulls[0].shut_down()
        await asyncio.wait(claims)
        await world.close()

    run_virtually(story())


def test_an_agent_with_many_runs_does_not_delay_the_first_of_another() -> None:
    async def story() -> None:
        world = await new_world(3)
        loop = asyncio.get_running_loop()
        many = [pulled(world.jobs["acme", "ada"], START_MS - 1) for _ in range(3_000)]
        await world.store.add_runs(many)

        async def busy(name: str) -> None:
            for number in range(1_000):
                await world.claim(
                    world.pulls[0], ClaimScope("acme", frozenset({"ada"})), 2, 5_000, f"{name}-{number}"
                )

        workers = [asyncio.create_task(busy(f"busy-{number}")) for number in range(10)]
        await asyncio.sleep(1)
        for workspace in WORKSPACES:
            scope = ClaimScope.of(workspace, ["bob"], None)
            waiting = asyncio.create_task(world.claim(world.pulls[0], scope, 1, 30_000, f"first-{workspace}"))
            await asyncio.sleep(0.5)
            began = loop.time()
            await world.store.add_runs([pulled(world.jobs[workspace, "bob"], world.store.clock.now_ms())])
            await waiting
            assert loop.time() - began < BOUND_S
        left = await world.store.runs(RunFilter("acme", "ada", states=("pending",), limit=1_000))
        assert left, "the other agent still has runs that wait"
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
        await world.close()

    run_virtually(story())
