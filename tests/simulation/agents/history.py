"""A random history of agents, determined by one seed.

Senders send signals and repeat them with the same id. Handlers count, take time, fail, hang, send signals to
each other and to themselves, delay, set and cancel schedules, and stop. Replicas start, stop, crash, stall
and hibernate instances; operators pause, resume, stop, cancel and replay. At the end the faults stop, and a
healthy replica handles the rest.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.simulation.agents.agent_world import AGENTS, AgentWorld
from tests.simulation.agents.journal import Dispatch, Handling, Plan
from tests.simulation.faults import CALM, Odds
from tests.simulation.world import Replica
from wakeful.engine.engine import EngineConfig
from wakeful.errors import FailedPrecondition, NotFound, Permanent, ResourceExhausted
from wakeful.run.planning import Limits
from wakeful.service.auth.access import LOCAL

LENGTH = 300  # units
_DEEDS = ("pause", "resume", "resume", "stop", "start", "start", "cancel", "end", "replay")
_LIVE = "SELECT 1 FROM runs WHERE state IN ('pending', 'running', 'retrying') LIMIT 1"
_JOBS = "SELECT agent, name FROM jobs WHERE deleted_at IS NULL"


class AgentHistory:
    """One history. `tell` runs it on a virtual loop and raises the violations that the checkers find."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = Random(f"agents {seed}")
        self.unit = rng.choice((1, 1, 60))
        ms = self.unit * 1000
        self.config = EngineConfig(
            tick_ms=rng.choice((5, 10, 20)) * ms,
            lanes={"team": rng.choice((1, 3, 100)), "cron": 3},
            limits=Limits(lookahead_ms=60 * ms, lead_ms=rng.choice((0, 50))),
            batch=rng.choice((2, 1000)),
            heartbeat_ms=10 * ms,
            lease_ms=40 * ms,
            retention_days=36_500,
        )
        self.odds = self._odds()
        self.want = rng.choice((1, 2, 2, 3))
        self.mailbox = rng.choice((1000, 1000, 12))
        #: how often a handler fails, and how often it stops its instance
        self.stops = 0.01
        self.fates = rng.choice((0.05, 0.2))
        self.resting = False
        self.places = [(agent, name) for agent in AGENTS for name in ("a", "b")][: rng.choice((2, 3, 4))]

    def _odds(self) -> Odds:
        rng = self.rng
        way_s = rng.choice((0, 0.01, 0.3)) * self.unit
        if rng.random() < 0.15:
            return replace(CALM, way_s=way_s)
        return Odds(
            crash=rng.choice((0, 2, 6)),
            refused=rng.choice((0, 2)),
            doubt=rng.choice((0, 3)),
            stall=rng.choice((0, 1, 3)),
            stall_s=40 * self.unit,
            way_s=way_s,
        )

    async def tell(self, folder: Path) -> AgentWorld:
        """Run the history."""
        async with AgentWorld(
            folder, self.seed, config=self.config, odds=self.odds, behaviour=self._behave,
            unit_ms=self.unit * 1000, mailbox=self.mailbox,
        ) as self.world:  # fmt: skip
            actors = [self._operate(), self._use(), self._send("x"), self._send("y")]
            tasks = [self.world.loop.create_task(actor) for actor in actors]
            for _ in range(4):
                await self.world.sleep(LENGTH / 4 * self.unit)
                self.world.check()
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, Exception):
                    raise ended
            await self._come_to_rest()
            return self.world

    async def _come_to_rest(self) -> None:
        world = self.world
        self.resting = True
        for survivor in world.alive:
            survivor.store.odds = CALM
        if world.sending:
            await asyncio.wait(world.sending)
        world.agents = AGENTS
        await world.start(odds=CALM)
        for agent, name in self.places:
            await self._change(agent, name, "resume")
        for owner, job in world.recorder.execute(_JOBS):
            await world.service().pause(LOCAL, "default", str(owner), str(job))
        for _ in range(400):
            await world.sleep(20 * self.unit)
            if not world.recorder.execute(_LIVE):
                break
        for replica in world.alive:
            await replica.stop()
        world.check(over=True)

    # --- handlers ----------------------------------------------------------------------------------

    async def _behave(self, handling: Handling) -> Plan:
        """Take some time, then fail or return a plan. It depends only on the run and the attempt."""
        launch = handling.launch
        rng = Random(f"{self.seed} {launch.run_id} {launch.attempt}")
        if rng.random() < 0.7:
            await asyncio.sleep(rng.choice((0.01, 0.5, 4)) * rng.random() * self.unit)
        if rng.random() < self.fates and not self.resting:
            fate = rng.randrange(5)
            if fate == 0:
                raise Permanent("never again")
            if fate == 1:
                await asyncio.sleep(1e6 * self.unit)  # hangs
            raise RuntimeError("it did not work")
        return Plan() if self.resting else self._plan(handling, rng)

    def _plan(self, handling: Handling, rng: Random) -> Plan:
        numbers = itertools.count(1)

        def token() -> str:
            return f"{handling.launch.run_id}:{handling.launch.attempt}:{next(numbers)}"

        own = handling.agent, handling.instance
        sends = []
        if handling.depth < 3:
            for _ in range(rng.choice((0, 0, 1, 2))):
                kind, signal_id = rng.random(), None
                if rng.random() < 0.3:
                    signal_id = f"id-{rng.randrange(20)}"
                if kind < 0.4:
                    sends.append(Dispatch(token(), rng.choice(self.places), None, signal_id))
                elif kind < 0.6:
                    sends.append(Dispatch(token(), own, None, signal_id))
                else:
                    delay_ms = round(rng.choice((0, 1, 30)) * rng.random() * self.unit * 1000)
                    sends.append(Dispatch(token(), own, delay_ms, signal_id))
        crons: list[tuple[str, str | None]] = []
        if rng.random() < 0.15:
            for _ in range(rng.choice((1, 2))):
                schedule_id = rng.choice(("p", "q", "r"))
                crons.append((schedule_id, token() if rng.random() < 0.5 else None))
        emitted = tuple(token() for _ in range(rng.choice((0, 0, 1, 2))))
        return Plan(tuple(sends), emitted, tuple(crons), stop=rng.random() < self.stops)

    # --- actors --------------------------------------------------------------------------------------

    async def _wait(self, units: float) -> None:
        await self.world.sleep(self.rng.expovariate(1 / units) * self.unit)

    async def _send(self, sender: str) -> None:
        """Send signals in order; repeat one without a response, and sometimes one with a response."""
        rng, world = self.rng, self.world
        pace = rng.choice((5, 15))
        number = 0
        while True:
            await self._wait(pace)
            number += 1
            agent, instance = rng.choice(self.places)
            times, most = 0, rng.choice((1, 1, 1, 1, 2))
            while times < most:
                through = rng.choice((None, *world.alive))
                try:
                    sent = await world.send(agent, instance, f"{number}", sender, through)
                except (FailedPrecondition, ResourceExhausted) as error:
                    world.note(f"refused: {error.message}")
                    break
                if sent is None:
                    world.note(f"signal {number} of {sender} is sent again")
                    await self._wait(1)
                else:
                    times += 1

    async def _operate(self) -> None:
        """Start, stop, stall and crash replicas, and hibernate instances."""
        rng, world = self.rng, self.world
        while True:
            if len(world.alive) < self.want:
                world.agents = rng.choice((AGENTS, AGENTS, AGENTS[:1], AGENTS[1:]))
                await world.start()
            await self._wait(20)
            fate, alive = rng.random(), world.alive
            if not alive:
                continue
            victim = rng.choice(alive)
            if fate < 0.05:
                await victim.stop(round(rng.choice((0, 5, 100)) * self.unit * 1000))
            elif fate < 0.12 and not self.odds.calm:
                victim.crash("out of the blue")
            elif fate < 0.18 and self.odds.stall:
                victim.store.silence(rng.uniform(10, 120) * self.unit)
            elif fate < 0.5:
                world.hibernate(victim, *rng.choice(self.places))

    async def _use(self) -> None:
        """Change instances and runs as operators do."""
        rng = self.rng
        while True:
            await self._wait(20)
            agent, name = rng.choice(self.places)
            deed = rng.choice(
                ("pause", "resume", "resume", "stop", "start", "start", "cancel", "end", "replay")
            )
            through = rng.choice((None, *self.world.alive))
            if deed == "cancel":
                await self._cancel(through)
            elif deed == "end":
                await self._end(through)
            elif deed == "replay":
                await self._replay(through)
            elif deed != "stop" or rng.random() < 0.3:
                await self._change(agent, name, deed)

    async def _change(self, agent: str, name: str, deed: str) -> None:
        if deed:
            try:
                await self.world.change(agent, name, deed)
            except (FailedPrecondition, NotFound) as error:
                self.world.note(f"refused: {error.message}")

    def _some_run(self, condition: str) -> str | None:
        found = self.world.recorder.execute(f"SELECT id FROM runs WHERE {condition} ORDER BY id")
        return str(self.rng.choice(found)[0]) if found else None

    async def _cancel(self, through: Replica | None) -> None:
        if run := self._some_run("state IN ('pending', 'retrying')"):
            self.world.signals.cancelled.add(run)
            await self.world.run_service(through).cancel(LOCAL, "default", run)
            self.world.note(f"run {run[-6:]} is cancelled")

    async def _end(self, through: Replica | None) -> None:
        if run := self._some_run("state = 'running'"):
            self.world.signals.cancelled.add(run)
            await self.world.run_service(through).stop(LOCAL, "default", run)
            self.world.note(f"run {run[-6:]} is stopped")

    async def _replay(self, through: Replica | None) -> None:
        if run := self._some_run("dead"):
            try:
                await self.world.run_service(through).replay(LOCAL, "default", run)
                self.world.note(f"run {run[-6:]} is replayed")
            except (FailedPrecondition, ResourceExhausted) as error:
                self.world.note(f"refused: {error.message}")
