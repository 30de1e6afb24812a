"""A random history of a world, determined by one seed.

A history has a unit of time, from a second to an hour. It has jobs with random schedules, policies and
bodies; replicas that start, stop, crash and stall; a clock that may be set; and users who edit, pause,
resume, delete, trigger, stop, cancel and replay. At the end the faults stop, a healthy replica finishes the
remaining runs, and the checker verifies the result.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from tests.simulation.faults import CALM, Odds
from tests.simulation.journal import Life, Plain, Rules
from tests.simulation.world import Body, Replica, World
from wakeful.engine.engine import EngineConfig
from wakeful.errors import FailedPrecondition, NotFound, Permanent
from wakeful.launch.port import Launch
from wakeful.run.outcome import AwaitingCallback, Failed
from wakeful.run.planning import Limits
from wakeful.service.auth.access import LOCAL

LENGTH = 1_500  # units
_CRONS = {
    1: ("* * * * *", "*/2 * * * *", "*/5 * * * *", "3,18,33,48 * * * *"),
    60: ("*/20 * * * *", "0 * * * *", "30 */6 * * *", "5,35 8-18 * * *"),
    600: ("0 */4 * * *", "0 9 * * *", "15 6,18 * * *", "0 */6 * * 1-5"),
    3600: ("0 9 * * *", "0 9 * * 1-5", "0 */12 * * *", "30 4 * * 0"),
}
_OVERLAPS = ("allow", "skip", "queue", "queue_one", "replace")
_CATCHUPS = ("none", "latest", "fire_immediately", "spread")


class History:
    """One history. `tell` runs it on a virtual loop and raises the violations that the checker finds."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = Random(f"history {seed}")
        self.unit = rng.choice(tuple(_CRONS))
        ms = self.unit * 1000
        self.config = EngineConfig(
            tick_ms=rng.choice((5, 20, 30)) * ms,
            lanes={"cron": rng.choice((1, 3, 30))},
            limits=Limits(
                lookahead_ms=60 * ms,
                max_catchup=rng.choice((2, 10, 100)),
                lead_ms=rng.choice((0, 50, ms // 10)),
            ),
            batch=rng.choice((2, 1000)),
            heartbeat_ms=10 * ms,
            lease_ms=40 * ms,
            retention_days=36_500,
        )
        self.odds = self._odds()
        self.jumps = rng.random() < 0.15
        # A replica with a steered clock notices a clock jump only with the next response.
        self.steered = rng.random() < 0.5 and not self.jumps
        self.want = rng.choice((1, 1, 2, 3))
        self.fields: dict[str, dict[str, Any]] = {}

    def _odds(self) -> Odds:
        rng = self.rng
        way_s = rng.choice((0, 0.01, 0.3)) * self.unit
        if rng.random() < 0.2:
            return replace(CALM, way_s=way_s)
        return Odds(
            crash=rng.choice((0, 2, 6)),
            refused=rng.choice((0, 2)),
            doubt=rng.choice((0, 2)),
            stall=rng.choice((0, 1, 3)),
            stall_s=40 * self.unit,
            way_s=way_s,
        )

    async def tell(self, folder: Path) -> World:
        """Run the history."""
        async with World(
            folder, self.seed, config=self.config, odds=self.odds, steered=self.steered
        ) as self.world:
            self.bodies = Random(f"bodies {self.seed}")
            for number in range(self.rng.randint(2, 5)):
                await self._create(f"job-{number}")
            if self.rng.random() < 0.3:
                await self._follower()
            actors = [self._operate(), self._use()] + ([self._set_clock()] if self.jumps else [])
            tasks = [self.world.loop.create_task(actor) for actor in actors]
            await self.world.sleep(LENGTH * self.unit)
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, Exception):
                    raise ended
            await self._come_to_rest()
            return self.world

    async def _come_to_rest(self) -> None:
        world = self.world
        for survivor in world.alive:
            survivor.store.odds = CALM
        await world.start(odds=CALM)
        # Long enough for the leases of dead workers to expire and for missed ticks to be caught up.
        await world.sleep(200 * self.unit)
        for life in self._living():
            # A one-time job is deleted after its success; a follower has no ticks.
            if life.now is not None and not _once(life) and life.after is None:
                await world.pause(life)
        before, unchanged = None, 0
        while unchanged < _UNCHANGED:  # a long queue of slow runs takes long
            await world.sleep(20 * self.unit)
            live = world.recorder.execute(_LIVE)
            if not live:
                break
            before, unchanged = live, unchanged + 1 if live == before else 0
        for replica in world.alive:
            await replica.stop()
        world.check(over=True)
        await world.check_counts()

    # --- jobs --------------------------------------------------------------------------------------

    def _schedule(self) -> Plain:
        rng = self.rng
        kind = rng.random()
        if kind < 0.4:
            return Plain(cron=rng.choice(_CRONS[self.unit]))
        if kind < 0.45:
            return Plain(at_ms=self.world.clock.now_ms() + rng.randint(10, LENGTH) * self.unit * 1000)
        return Plain(every_ms=round(rng.choice((8, 20, 60, 200)) * rng.uniform(0.7, 1.3) * self.unit * 1000))

    def _rules(self) -> Rules:
        rng, ms = self.rng, self.unit * 1000
        return Rules(
            overlap=rng.choice(_OVERLAPS),
            catchup=rng.choice(_CATCHUPS),
            window_ms=rng.choice((50, 300, 3000)) * ms,
            grace_ms=rng.choice((40, 80)) * ms,
            jitter_ms=rng.choice((0, 0, 0, 3, 20)) * ms,
            max_attempts=rng.choice((1, 2, 4)),
            on_lost=rng.choice(("retry", "retry", "fail")),
            max_runs=rng.choice((None, None, None, None, 5)),
            max_queued=rng.choice((3, 100)),
        )

    async def _create(self, name: str, through: Replica | None = None) -> Life:
        rng, ms = self.rng, self.unit * 1000
        schedule, rules = self._schedule(), self._rules()
        base = round(rng.choice((0.2, 1, 5)) * ms)
        self.fields[name] = {
            "timeoutMs": rng.choice((4, 20, 100)) * ms,
            "backoff": {"baseMs": base, "maxMs": base * 4},
        }
        return await self.world.create(
            name, schedule, rules, body=self._body(), through=through, **self.fields[name]
        )

    async def _follower(self) -> None:
        rules = replace(self._rules(), max_runs=None)
        await self.world.create(
            "follower", None, rules, body=self._body(), after="job-0", timeoutMs=20_000 * self.unit,
            after_on=self.rng.choice(("succeeded", "failed", "finished")),
        )  # fmt: skip

    def _body(self) -> Body:
        """Return a body that mostly succeeds after some time, and sometimes fails, parks or hangs."""
        rng, unit = self.bodies, self.unit
        length = self.rng.choice((0, 0.5, 5, 40)) * unit
        bad = self.rng.choice((0, 0.1, 0.4))

        async def body(run: Launch) -> object:
            await asyncio.sleep(length * rng.expovariate(1) if length else 0)
            if rng.random() >= bad:
                return None
            fate = rng.randrange(6)
            if fate == 0:
                raise Permanent("never again")
            if fate == 1:
                return Failed("come back later", retry_after_ms=round(6 * unit * 1000))
            if fate == 2:
                return AwaitingCallback(timeout_ms=round(10 * unit * 1000))
            if fate == 3:
                await asyncio.sleep(1e6 * unit)  # hangs
            if fate == 4:
                try:
                    await asyncio.sleep(1e6 * unit)
                except asyncio.CancelledError:
                    await asyncio.sleep(unit)  # hangs, and is slow to react to the cancellation
                    raise
            raise RuntimeError("it did not work")

        return body

    # --- actors -----------------------------------------------------------------------------

    def _living(self) -> list[Life]:
        return [life for life in self.world.journal.lives.values() if not life.deleted]

    async def _wait(self, units: float) -> None:
        await self.world.sleep(self.rng.expovariate(1 / units) * self.unit)

    async def _operate(self) -> None:
        """Start, stop and crash replicas."""
        rng, world = self.rng, self.world
        outages = rng.choice((0, 0.1, 0.4))
        while True:
            if len(world.alive) < self.want:
                if rng.random() < outages:
                    await self._wait(300)
                await world.start(skew_ms=rng.choice((0, 300_000, -300_000)))
            await self._wait(30)
            fate, alive = rng.random(), world.alive
            if not alive:
                continue
            victim = rng.choice(alive)
            if fate < 0.05:
                await victim.stop(round(rng.choice((0, 5, 100)) * self.unit * 1000))
            elif fate < 0.08 and not self.odds.calm:
                victim.crash("out of the blue")
            elif fate < 0.10 and self.odds.stall:
                victim.store.silence(rng.uniform(10, 120) * self.unit)

    async def _set_clock(self) -> None:
        while True:
            await self._wait(500)
            self.world.jump(round(self.rng.uniform(-100, 100) * self.unit * 1000))

    async def _use(self) -> None:
        """Change jobs and runs as users do."""
        deeds = (
            self._edit_schedule, self._edit_rules, self._pause_or_resume, self._delete, self._upsert,
            self._trigger, self._stop, self._cancel, self._replay, self._complete,
        )  # fmt: skip
        step_ms = self.rng.choice((30, 100, 1000))
        while True:
            await self._wait(step_ms)
            if self.rng.random() < 0.2:
                await self._wait_for_lead()
            # While the clock is set back, a new schedule would collide with finished ticks.
            if self.world.clock.now_ms() < self.world.clock.high_ms:
                continue
            through = self.rng.choice((None, *self.world.alive))
            try:
                await self.rng.choice(deeds)(through)
            except (FailedPrecondition, NotFound) as error:
                self.world.note(f"refused: {error.message}")

    async def _wait_for_lead(self) -> None:
        """Wait until the next tick is recorded, and does not start yet."""
        (found,) = self.world.recorder.execute(
            "SELECT min(next_at) FROM jobs WHERE next_at > ?", self.world.clock.now_ms()
        )
        if isinstance(found[0], int):
            await self.world.until(found[0] - self.config.limits.lead_ms // 2)

    def _some_job(self) -> Life | None:
        """Return a job that may be changed: not one that ends by itself."""
        jobs = [
            life
            for life in self._living()
            if life.after is None and life.eras[-1].rules.max_runs is None and not _once(life)
        ]
        return self.rng.choice(jobs) if jobs else None

    async def _edit_schedule(self, through: Replica | None) -> None:
        if life := self._some_job():
            schedule = self._schedule()
            if schedule.at_ms is None:
                await self.world.edit(life, schedule=schedule, through=through)

    async def _edit_rules(self, through: Replica | None) -> None:
        if life := self._some_job():
            rules = replace(self._rules(), on_lost=life.eras[-1].rules.on_lost, max_runs=None)
            await self.world.edit(life, rules=rules, through=through)

    async def _pause_or_resume(self, through: Replica | None) -> None:
        if life := self._some_job():
            await (self.world.pause if life.now else self.world.resume)(life, through)

    async def _delete(self, through: Replica | None) -> None:
        life = self._some_job()
        if life and self.rng.random() < 0.3:
            await self.world.delete(life, through)
            await self._create(life.name, through)

    async def _upsert(self, through: Replica | None) -> None:
        if life := self._some_job():
            await self.world.upsert(life, through, **self.fields[life.name])

    async def _trigger(self, through: Replica | None) -> None:
        if life := self._some_job():
            await self.world.trigger(life, through)

    def _some_run(self, condition: str) -> str | None:
        found = self.world.recorder.execute(f"SELECT id FROM runs WHERE {condition} ORDER BY rowid")
        return str(self.rng.choice(found)[0]) if found else None

    async def _stop(self, through: Replica | None) -> None:
        if run := self._some_run("state = 'running'"):
            await self.world.run_service(through).stop(LOCAL, "default", run)
            self.world.note(f"run {run[-6:]} is stopped")

    async def _cancel(self, through: Replica | None) -> None:
        if run := self._some_run("state IN ('pending', 'retrying')"):
            await self.world.run_service(through).cancel(LOCAL, "default", run)
            self.world.note(f"run {run[-6:]} is cancelled")

    async def _replay(self, through: Replica | None) -> None:
        if run := self._some_run("dead"):
            await self.world.run_service(through).replay(LOCAL, "default", run)
            self.world.note(f"run {run[-6:]} is replayed")

    async def _complete(self, through: Replica | None) -> None:
        if run := self._some_run("awaiting_callback"):
            status = self.rng.choice(("succeeded", "failed"))
            await self.world.run_service(through).complete(LOCAL, "default", run, status)


def _once(life: Life) -> bool:
    schedule = life.eras[-1].schedule
    return schedule is not None and schedule.at_ms is not None


_LIVE = "SELECT id, state, attempt FROM runs WHERE state IN ('pending', 'running', 'retrying') ORDER BY id"
#: Much longer than any body, pause between attempts or lease: runs that did not change for so many looks are
#: held for ever.
_UNCHANGED = 200
