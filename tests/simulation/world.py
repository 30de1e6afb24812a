"""A simulated world for the real engine: virtual time, a SQLite file, replicas and a journal.

`Engine`, `JobService`, `RunService` and `SqliteStore` are real. Only the time, the bodies of the runs and the
faults are simulated. Replicas share only the file, as processes do; each is notified only of changes made
through its own store.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self, cast

from tests.simulation import checker
from tests.simulation.faults import CALM, CrashingStore, Odds
from tests.simulation.journal import Awake, Era, Journal, Launched, Life, Plain, Rules
from tests.simulation.machine import FalseTime, Machine, watch_tasks
from tests.simulation.records import Recorder, Records, Run
from tests.simulation.virtual_loop import FalseClock, VirtualLoop
from tests.support.services import job_service, run_service
from tests.support.sqlite_files import fresh_file
from wakeful.engine import history
from wakeful.engine.engine import Engine, EngineConfig
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.loop import Loop
from wakeful.engine.metrics import Metrics
from wakeful.errors import Permanent, Unavailable
from wakeful.launch.function import FunctionLauncher
from wakeful.launch.port import Launch
from wakeful.run.outcome import AwaitingCallback, Failed
from wakeful.service.auth.access import LOCAL
from wakeful.service.jobs.jobs import JobService
from wakeful.service.runs.runs import RunService
from wakeful.store.port import Store
from wakeful.store.sql.run_counts import read_days
from wakeful.store.sqlite import SqliteStore
from wakeful.values import clock as wakeful_clock
from wakeful.values import ids

MONDAY = round(datetime(2027, 1, 4, tzinfo=UTC).timestamp() * 1000)

Body = Callable[[Launch], Awaitable[object]]


async def succeeds(run: Launch) -> None:
    """Succeed immediately: the default body."""


def takes(seconds: float) -> Body:
    """Return a body that takes so long."""

    async def body(run: Launch) -> None:
        await asyncio.sleep(seconds)

    return body


def hasten(store: SqliteStore) -> None:
    """Turn off fsync: processes crash here, but machines do not lose power."""
    assert store._connection._db is not None
    store._connection._db.execute("PRAGMA synchronous = OFF")


class Replica:
    """One process: a machine, a store, an engine."""

    def __init__(self, world: World, number: int, skew_ms: int, odds: Odds) -> None:
        self._world = world
        self.machine = Machine(world.loop, skew_ms)
        self._inner = SqliteStore(world.path, clock=world.clock, inline=True)
        rng = Random(f"{world.seed}:{number}")
        self.store = CrashingStore(self._inner, self.machine, odds, rng, steered=world.steered)
        self.store.on_crash, self.store.on_trouble = self.crash, self._trouble
        self.targets = world.new_targets(self)
        self._engine: Engine | None = None
        self._awake: Awake | None = None
        self._well_at = 0.0
        self.worker = ""
        self.running: list[Launched] = []
        self.jobs = job_service(self._inner, self.targets)
        self.runs = run_service(self._inner)

    @property
    def alive(self) -> bool:
        """Whether it is neither dead nor stopped."""
        return self._engine is not None and not self.machine.dead

    async def start(self) -> bool:
        """Start the process. Returns False if it crashed."""

        async def begin() -> None:
            await self.store.open()
            hasten(self._inner)
            # The clock is steered only after the first response of the database.
            loops = self._world.new_loops(self)
            engine = Engine(cast(Store, self.store), self.targets, self._world.config, Metrics(), loops)
            self.worker = engine.worker_name
            await engine.start()
            self._engine = engine

        if not await self._lives(begin()):
            return False
        self._well()
        return True

    async def stop(self, grace_ms: int = 10_000) -> bool:
        """Stop it as a deployment does. Returns False if it crashed."""
        engine, self._engine = self._engine, None
        if engine is None or self.machine.dead:
            return False
        self._asleep()
        self._world.note(f"replica {self.worker[-4:]} is stopped")
        if not await self._lives(engine.stop(grace_ms)):
            return False
        self.machine.die()
        await self._inner.close()
        return True

    async def _lives(self, doing: Coroutine[Any, Any, None]) -> bool:
        """Run this on the machine; kill a process that cannot start or stop. Returns False if it crashed."""
        task = self.machine.run(doing)
        await asyncio.wait([task])
        if self.machine.dead:
            return False
        if not task.cancelled() and isinstance(task.exception(), Unavailable):
            self.crash("as its database does not answer")
            return False
        task.result()
        return True

    def crash(self, where: str = "for no reason") -> None:
        """Crash immediately."""
        if self.machine.dead:
            return
        self._world.note(f"replica {self.worker[-4:]} dies {where}")
        self._asleep()
        for launch in self.running:
            self._world.ended(launch, "crashed")
        self.running.clear()
        self.machine.die()
        self._world.bury(self._inner)

    def _trouble(self, seconds: float) -> None:
        """Count the replica as not awake for so long."""
        self._asleep()
        self._well_at = max(self._well_at, self._world.loop.time() + seconds)
        self._world.loop.call_at(self._well_at + 0.001, self._well)

    def _well(self) -> None:
        if self.alive and self._awake is None and self._world.loop.time() >= self._well_at:
            self._awake = Awake(self._world.clock.now_ms())
            self._world.journal.awake.append(self._awake)

    def _asleep(self) -> None:
        if self._awake is not None:
            self._awake.until_ms, self._awake = self._world.clock.now_ms(), None

    async def launched(self, run: Launch) -> object:
        """Record the launch and run the body of the job: the target of all jobs."""
        world = self._world
        launch = Launched(
            run.id, run.job_id, run.attempt, run.idempotency_key, self.worker, world.recorder.seq(),
            world.clock.now_ms(), world.clock.high_ms, world.loop.time(),
        )  # fmt: skip
        world.journal.launches.append(launch)
        self.running.append(launch)
        end = "cut short"
        try:
            answer = await world.bodies.get(run.job or "", succeeds)(run)
            end = "failed" if isinstance(answer, Failed) else "succeeded"
            end = "parked" if isinstance(answer, AwaitingCallback) else end
            return answer
        except Permanent:
            end = "permanent"
            raise
        except Exception:
            end = "failed"
            raise
        finally:
            if launch in self.running:
                self.running.remove(launch)
                world.ended(launch, end)


@dataclass(frozen=True)
class Told:
    """An event, for the report of a failure."""

    at_ms: int
    what: str


class World:
    """An async context manager on a virtual loop; `check` runs the checker."""

    def __init__(
        self,
        folder: Path,
        seed: object = 0,
        *,
        config: EngineConfig | None = None,
        odds: Odds = CALM,
        steered: bool = False,
        start_ms: int = MONDAY,
    ) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.seed = seed
        self.path = fresh_file(folder / "wakeful.db")
        self.config = config or EngineConfig(tick_ms=5_000, retention_days=36_500)
        self.odds = odds
        self.steered = steered
        self.clock = FalseClock(loop, start_ms)
        self.journal = Journal(slow=not odds.calm or odds.way_s > 0, lead_ms=self.config.limits.lead_ms)
        self.journal.tick_ms = (
            round(self.config.tick_ms + self.config.limits.lead_ms + 12_000 * odds.way_s) + 100
        )
        self.told: list[Told] = []
        self.bodies: dict[str, Body] = {}
        self.replicas: list[Replica] = []
        self._started = 0
        self._burials: list[asyncio.Task[None]] = []
        self._client = SqliteStore(self.path, clock=self.clock, inline=True)
        self.targets = self.new_targets(None)
        self._jobs = job_service(self._client, self.targets)
        self._runs = run_service(self._client)

    async def __aenter__(self) -> Self:
        watch_tasks(self.loop)
        self._real_time, wakeful_clock.time = wakeful_clock.time, FalseTime(self.loop, self.clock)  # type: ignore[assignment, attr-defined]
        self._real_ids = ids._last_ms, ids._count, ids._prefix, ids._RANDOM.getstate()
        ids._last_ms, ids._count, ids._prefix = 0, 0, ""
        ids._RANDOM.seed(f"ids of {self.seed}")
        # Hourly pruning would be most of the work in a test of months.
        self._real_pruning = history._EVERY_MS
        history._EVERY_MS = max(history._EVERY_MS, 50 * self.config.tick_ms)  # type: ignore[misc]
        await self._client.open()
        hasten(self._client)
        self.recorder = Recorder(self.path)
        self.recorder.watch()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for replica in self.replicas:
            replica.crash("with the world")
        await asyncio.gather(*self._burials)
        await self._client.close()
        self.recorder.close()
        wakeful_clock.time = self._real_time  # type: ignore[attr-defined]
        ids._last_ms, ids._count, ids._prefix, state = self._real_ids
        ids._RANDOM.setstate(state)
        history._EVERY_MS = self._real_pruning  # type: ignore[misc]

    # --- time and events --------------------------------------------------------------------------

    async def sleep(self, seconds: float) -> None:
        """Let this much time pass."""
        await asyncio.sleep(seconds)

    async def until(self, ms: int) -> None:
        """Let time pass until the database clock shows this."""
        while self.clock.now_ms() < ms:
            await asyncio.sleep((ms - self.clock.now_ms()) / 1000)

    def jump(self, by_ms: int) -> None:
        """Set the database clock forward or back."""
        self.journal.jumped = True
        self.clock.jump(by_ms)
        self.note(f"the clock is set by {by_ms / 1000:g} s")

    def note(self, what: str) -> None:
        """Record an event for the report of a failure."""
        self.told.append(Told(self.clock.now_ms(), what))

    # --- replicas ----------------------------------------------------------------------------------

    def new_targets(self, replica: Replica | None) -> LauncherRegistry:
        """Return the targets of a process: one function."""
        functions = FunctionLauncher()
        if replica is not None:
            functions.register("body", replica.launched)
        return LauncherRegistry([functions])

    def new_loops(self, replica: Replica) -> Sequence[Loop]:
        """Return the loops that a replica runs besides those of the engine."""
        return ()

    async def start(self, *, skew_ms: int = 0, odds: Odds | None = None) -> Replica:
        """Start a replica; it may have crashed when this returns."""
        self._started += 1
        replica = Replica(self, self._started, skew_ms, self.odds if odds is None else odds)
        self.replicas = [each for each in self.replicas if each.alive] + [replica]
        if await replica.start():
            self.note(f"replica {replica.worker[-4:]} starts")
        return replica

    @property
    def alive(self) -> list[Replica]:
        """The replicas that are up."""
        return [replica for replica in self.replicas if replica.alive]

    def bury(self, store: SqliteStore) -> None:
        """Close the store of a dead process, as the operating system does."""
        self._burials.append(self.loop.create_task(store.close(), context=Context()))

    def ended(self, launch: Launched, how: str) -> None:
        """Record the end of a launch."""
        launch.end, launch.ended_at = how, self.loop.time()

    # --- jobs: each change is recorded in the journal with its time ------------------

    def service(self, replica: Replica | None = None) -> JobService:
        """Return the job service of a replica, which is notified of changes, or of a separate process."""
        return replica.jobs if replica else self._jobs

    def run_service(self, replica: Replica | None = None) -> RunService:
        """Return the run service of a replica, or of a separate process."""
        return replica.runs if replica else self._runs

    async def create(
        self,
        name: str,
        schedule: Plain | None,
        rules: Rules | None = None,
        *,
        body: Body | None = None,
        after: str | None = None,
        after_on: str = "succeeded",
        through: Replica | None = None,
        **fields: object,
    ) -> Life:
        """Create a job."""
        rules = rules or Rules()
        if after is not None:
            fields["after"] = {"job": after, "on": after_on}
        document = _document(name, schedule, rules) | fields
        saved = await self.service(through).create(LOCAL, "default", "default", document)
        if body is not None:
            self.bodies[name] = body
        life = Life(saved.job.id, name, after=after, after_on=after_on)
        now = self.clock.now_ms()
        life.eras.append(Era(schedule, rules, now, now))
        self.journal.lives[life.job_id] = life
        self.note(f"{name} is created: {schedule}, {rules}")
        return life

    async def edit(
        self,
        life: Life,
        *,
        schedule: Plain | None = None,
        rules: Rules | None = None,
        through: Replica | None = None,
        **fields: object,
    ) -> None:
        """Change the schedule or the rules of a job."""
        era = life.eras[-1]
        schedule, rules = schedule or era.schedule, rules or era.rules
        patch = {key: value for key, value in _document(life.name, schedule, rules).items() if key != "name"}
        if schedule == era.schedule:
            del patch["schedule"]
        saved = await self.service(through).update(LOCAL, "default", "default", life.name, patch | fields)
        self.note(f"{life.name} is edited: {schedule}, {rules}")
        if saved.changed:
            self._turn(life, schedule, rules)

    async def upsert(self, life: Life, through: Replica | None = None, **fields: object) -> None:
        """Deploy the same definition again: nothing may change."""
        era = life.eras[-1]
        document = _document(life.name, era.schedule, era.rules) | fields
        if life.after is not None:
            document["after"] = {"job": life.after, "on": life.after_on}
        saved = await self.service(through).upsert(LOCAL, "default", "default", document)
        assert not saved.changed, f"{life.name} was deployed again as it was, and changed"

    def _turn(self, life: Life, schedule: Plain | None, rules: Rules) -> None:
        """Begin a new era. The anchor of an interval stays if the schedule is the same."""
        now, last, same = self.clock.now_ms(), life.eras[-1], schedule == life.eras[-1].schedule
        anchor_ms = last.anchor_ms if same else now
        if life.now is None:  # paused: no ticks until it is resumed
            life.eras.append(Era(schedule, rules, anchor_ms, now, now))
        else:
            last.until_ms, last.goes_on = self.clock.high_ms, same
            life.eras.append(Era(schedule, rules, anchor_ms, last.from_ms if same else now))

    async def pause(self, life: Life, through: Replica | None = None, *, until_ms: int | None = None) -> None:
        """Pause a job, until it is resumed or until `until_ms`."""
        await self.service(through).pause(LOCAL, "default", "default", life.name, until=until_ms)
        self.note(f"{life.name} is paused")
        if life.now is not None:
            life.now.until_ms = self.clock.high_ms
        if until_ms is not None:
            life.eras.append(replace(life.eras[-1], from_ms=until_ms - 1, until_ms=None, goes_on=False))

    async def resume(self, life: Life, through: Replica | None = None) -> None:
        """Resume a job."""
        await self.service(through).resume(LOCAL, "default", "default", life.name)
        self.note(f"{life.name} is resumed")
        last = life.eras[-1]
        if life.now is None:
            life.eras.append(replace(last, from_ms=self.clock.now_ms(), until_ms=None, goes_on=False))

    async def delete(self, life: Life, through: Replica | None = None) -> None:
        """Delete a job."""
        await self.service(through).delete(LOCAL, "default", "default", life.name)
        self.note(f"{life.name} is deleted")
        if life.now is not None:
            life.now.until_ms = self.clock.high_ms
        life.deleted = True

    async def trigger(self, life: Life, through: Replica | None = None) -> None:
        """Trigger a job."""
        await self.service(through).trigger(LOCAL, "default", "default", life.name)
        self.note(f"{life.name} is run by hand")

    # --- results -----------------------------------------------------------------------------------

    def records(self) -> Records:
        """Return the records of the file."""
        return self.recorder.read()

    def recorded(self, life: Life, *states: str) -> list[Run]:
        """Return the runs of a job in tick order, optionally only those in these states."""
        runs = [run for run in self.records().runs if run.job_id == life.job_id]
        return [run for run in runs if not states or run.state in states]

    def launches(self, life: Life) -> list[Launched]:
        """Return the launches of a job, in order."""
        return [launch for launch in self.journal.launches if launch.job_id == life.job_id]

    def check(self, *, over: bool = False) -> None:
        """Run the checker. Raises an AssertionError with the complaints."""
        self.journal.end_ms = self.clock.high_ms
        complaints = checker.check(self.journal, self.records(), over=over)
        if complaints:
            raise AssertionError(
                f"seed {self.seed}: {len(complaints)} complaints\n" + "\n".join(complaints[:20])
            )

    async def check_counts(self) -> None:
        """Check that every finished run is counted once, and that those without success have a cause.

        PostgreSQL lists runs without success by an index of those with an error or a reason.
        """
        long_after_ms = self.clock.high_ms + 24 * 3_600_000
        while (await self._client.count_runs(long_after_ms, 2_000)).more:
            pass
        ask = self.recorder.execute
        hours = ask("SELECT hour, state, sum(runs) FROM run_counts GROUP BY 1, 2 ORDER BY 1, 2")
        by_day: Counter[tuple[int, str]] = Counter()
        for period, text in ask("SELECT period, days FROM job_run_periods"):
            for each in read_days(int(str(period)), str(text)):
                by_day[each.day, each.state] += each.runs
        days = [(*key, runs) for key, runs in sorted(by_day.items())]
        for counted, length_ms in ((hours, 3_600_000), (days, 24 * 3_600_000)):
            assert counted == ask(
                f"SELECT finished_at / {length_ms}, state, sum(covers) FROM runs"
                " WHERE finished_at IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2"
            ), f"seed {self.seed}: counts of {length_ms} ms differ from the runs"
        unexplained = ask(
            "SELECT id, state FROM runs WHERE state IN ('failed', 'cancelled', 'skipped', 'missed')"
            " AND error IS NULL AND reason IS NULL"
        )
        assert not unexplained, f"seed {self.seed}: runs without an error or a reason: {unexplained}"


def _document(name: str, schedule: Plain | None, rules: Rules) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": name,
        "target": {"kind": "function", "name": "body"},
        "overlapPolicy": rules.overlap,
        "catchupPolicy": rules.catchup,
        "catchupWindowMs": rules.window_ms,
        "misfireGraceMs": rules.grace_ms,
        "jitterMs": rules.jitter_ms,
        "maxAttempts": rules.max_attempts,
        "onLost": rules.on_lost,
        "lostLimit": rules.lost_limit,
        "maxRuns": rules.max_runs,
        "maxQueued": rules.max_queued,
    }
    if schedule is not None:
        document["schedule"] = schedule.document()
    return document
