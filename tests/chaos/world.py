"""The chaos test: replicas are killed, the database crashes and stalls, webhooks are cut, jobs are changed.

The parent process keeps replicas running on one database and records the changes it makes to jobs, with the
time in the response. Calls that fail because the database is unavailable are retried, as a client would.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import asyncpg

from tests.chaos.checker import Findings, check
from tests.chaos.databases import (
    ALL_OVER,
    DELETED,
    RESCUED_AND_SUCCEEDED,
    RUNS,
    UP_TO_DATE,
    Database,
)
from tests.chaos.jobs import Life, Plain, Rules, Stretch, any_rules, any_schedule
from tests.chaos.launches import read_launches
from tests.chaos.receiver import Receiver
from tests.chaos.work import LEAD_MS, LEASE_MS, POISONED, build
from tests.support.paths import ROOT
from wakeful.errors import AlreadyExists, FailedPrecondition, NotFound, Unavailable
from wakeful.job.job import JobRecord
from wakeful.service.auth.access import LOCAL

T = TypeVar("T")

WHERE = (LOCAL, "default", "default")
#: Upper limit of every wait, in seconds. Runs that were lost twice are tried one at a time, at the end too.
PATIENCE = 400.0


@dataclass
class Tally:
    """Counts of the injected faults and changes."""

    kills: int = 0
    stops: int = 0
    stalls: int = 0
    poisonings: int = 0
    crashes: int = 0
    pauses: int = 0
    changes: int = 0

    def __str__(self) -> str:
        replicas = f"{self.kills} kills, {self.stops} stops, {self.stalls} stalls, {self.poisonings} exits"
        return f"{replicas}, {self.crashes} crashes, {self.pauses} pauses, {self.changes} changes"


@dataclass
class Replica:
    """A replica; its process is replaced after each kill."""

    number: int
    process: subprocess.Popen[bytes]
    #: whether the test ended the process
    expected: bool = False


@dataclass
class World:
    """Jobs, replicas and a database."""

    folder: Path
    database: Callable[[], Database]
    seed: int
    jobs: int
    #: the factor by which ticks are rarer than every second
    pace: int = 1
    say: Callable[[str], None] = lambda line: None
    tally: Tally = field(default_factory=Tally)
    lives: list[Life] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    async def go_through(self, seconds: float, *, crash_every: float) -> Findings:
        """Run so many seconds of chaos, let all runs end, and run the checker."""
        self._dice = random.Random(self.seed)
        self._over = asyncio.Event()
        self._database = await asyncio.to_thread(self.database)
        self._receiver = Receiver(random.Random(self.seed))
        self._replicas: list[Replica] = []
        try:
            await self._receiver.start()
            self._app = build(self._database.url, self.folder / "parent.journal")
            self._service = self._app.services.jobs
            await self._app.store.open()
            try:
                await self._database.watch()
                await self._create_all()
                self._replicas = [Replica(n, self._start(n)) for n in range(len(self._database.skews_ms))]
                up = asyncio.create_task(self._keep_them_up())
                await self._chaos(seconds, crash_every)
                await self._quiet()
                up.cancel()
                return await self._look()
            finally:
                await self._app.store.close()
        finally:
            for replica in self._replicas:
                replica.process.kill()
                replica.process.wait()
            self._receiver.close()
            await asyncio.to_thread(self._database.remove)

    # --- the replicas ------------------------------------------------------------------------------

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        arguments = [self._database.url, str(self.folder), str(number), str(self._database.skews_ms[number])]
        return subprocess.Popen([sys.executable, "-m", "tests.chaos.replica", *arguments], cwd=ROOT)

    async def _keep_them_up(self) -> None:
        """Restart replicas that have ended; an unexpected end is a violation."""
        while True:
            for replica in self._replicas:
                code = replica.process.poll()
                if code is not None:
                    if code == POISONED:
                        self.tally.poisonings += 1
                    elif not replica.expected:
                        self.wrong.append(f"replica {replica.number} ended by itself with {code}")
                    replica.process, replica.expected = self._start(replica.number), False
            await asyncio.sleep(0.05)

    def _is_ready(self, replica: Replica) -> bool:
        return (self.folder / f"{replica.process.pid}.ready").exists()

    async def _kill_them(self) -> None:
        """Repeatedly kill a replica; less often stall or stop one."""
        while await self._rest(1, 2):
            ready = [replica for replica in self._replicas if self._is_ready(replica)]
            if self._dice.random() < 0.1:
                ready = self._replicas  # also one that is still starting
            elif len(ready) < 2:
                continue  # otherwise slow starts would leave no replica running
            replica, fate = self._dice.choice(ready), self._dice.random()
            if fate < 0.7:
                replica.expected = True
                replica.process.kill()
                self.tally.kills += 1
            elif fate < 0.85:
                await self._stall(replica.process)
            else:
                replica.expected = True
                replica.process.send_signal(signal.SIGTERM)
                self.tally.stops += 1

    async def _stall(self, process: subprocess.Popen[bytes]) -> None:
        """Suspend the process for longer than its lease, then resume it."""
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(self._dice.uniform(1.2, 2) * LEASE_MS / 1000)
        process.send_signal(signal.SIGCONT)
        self.tally.stalls += 1

    async def _crash_the_database(self, every: float) -> None:
        while await self._rest(0.9 * every, 1.1 * every):
            if self._dice.random() < 0.5:
                await self._database.pause(self._dice.uniform(1, 4))
                self.tally.pauses += 1
                continue
            began = time.monotonic()
            if self._database.embedded:
                for replica in self._replicas:
                    replica.expected = True
                    replica.process.kill()
            await asyncio.to_thread(self._database.crash)
            self.tally.crashes += 1
            self.say(f"the database crashed, and was there again after {time.monotonic() - began:.1f} s")

    # --- changes of jobs ------------------------------------------------------------------------------------

    async def _create_all(self) -> None:
        """Create the initial jobs in one call, as a program that declares its jobs does."""

        def any_job(number: int) -> tuple[str, Plain, Rules]:
            schedule = any_schedule(self._dice, self.pace)
            return f"job-{number}", schedule, any_rules(self._dice, self._receiver.url)

        made = [any_job(number) for number in range(self.jobs)]
        saved = await self._service.create_many(*WHERE, [_document(*each) for each in made])
        for each, (name, schedule, rules) in zip(saved, made, strict=True):
            self._born(each.job, name, schedule, rules)

    def _born(self, job: JobRecord, name: str, schedule: Plain, rules: Rules) -> None:
        self.lives.append(Life(job.id, name, rules, [Stretch(schedule, job.created_ms, job.created_ms)]))

    async def _change_things(self) -> None:
        """Make random changes to random jobs."""
        what = [self._pause_or_resume] * 4 + [self._reschedule] * 2 + [self._reword] * 2
        what += [self._run_by_hand, self._skip_next] * 2 + [self._deploy_again, self._rename, self._replace]
        while await self._rest(0.05, 0.3):
            alive = [life for life in self.lives if not life.deleted]
            await self._dice.choice(what)(self._dice.choice(alive))
            self.tally.changes += 1

    async def _pause_or_resume(self, life: Life) -> None:
        if life.lasts is not None:
            await self._pause(life)
        else:
            job = await insist(lambda: self._service.resume(*WHERE, life.name))
            last = life.stretches[-1]
            life.stretches.append(Stretch(last.schedule, last.anchor_ms, job.updated_ms))

    async def _pause(self, life: Life) -> None:
        lasts = life.lasts
        if lasts is not None:
            job = await insist(lambda: self._service.pause(*WHERE, life.name))
            lasts.end(job.updated_ms)

    async def _reschedule(self, life: Life) -> None:
        """Change the schedule; an interval counts from now."""
        schedule, lasts = any_schedule(self._dice, self.pace), life.lasts
        if schedule == life.schedule or lasts is None:
            return
        patch = {"schedule": schedule.document()}
        job = (await insist(lambda: self._service.update(*WHERE, life.name, patch))).job
        lasts.end(job.updated_ms)
        life.stretches.append(Stretch(schedule, job.updated_ms, job.updated_ms))

    async def _reword(self, life: Life) -> None:
        """Change rules that do not affect its ticks."""
        overlap = self._dice.choice(["allow", "skip", "queue", "queue_one", "replace"])
        life.rules = replace(life.rules, ms=self._dice.choice([0, 10, 400]), overlap=overlap)
        patch = {key: life.rules.document()[key] for key in ("overlapPolicy", "payload")}
        await insist(lambda: self._service.update(*WHERE, life.name, patch))

    async def _deploy_again(self, life: Life) -> None:
        """Deploy the same definition again: nothing may change."""
        document = _document(life.name, life.schedule, life.rules)
        saved = await insist(lambda: self._service.upsert(*WHERE, document))
        if saved.changed:
            self.wrong.append(f"{life.name} was deployed again as it was, and changed")

    async def _run_by_hand(self, life: Life) -> None:
        await insist(lambda: self._service.trigger(*WHERE, life.name))

    async def _skip_next(self, life: Life) -> None:
        with contextlib.suppress(FailedPrecondition):  # the job is paused
            await insist(lambda: self._service.skip_next(*WHERE, life.name))

    async def _rename(self, life: Life) -> None:
        new = f"{life.name.partition('--')[0]}--{self._dice.getrandbits(40):x}"
        with contextlib.suppress(NotFound):  # the response was lost
            await insist(lambda: self._service.update(*WHERE, life.name, {"name": new}))
        life.name = (await insist(lambda: self._service.get(*WHERE, new))).name

    async def _replace(self, life: Life) -> None:
        """Delete the job beside a run by hand, and create another of the same name, with its own id."""
        before_ms = self._app.store.clock.now_ms()

        async def run_it() -> None:
            with contextlib.suppress(NotFound):  # the deletion was faster
                await self._run_by_hand(life)

        async def delete_it() -> None:
            with contextlib.suppress(NotFound):  # the response was lost
                await insist(lambda: self._service.delete(*WHERE, life.name))

        await asyncio.gather(run_it(), delete_it())
        after_ms = self._app.store.clock.now_ms()
        deleted_ms = await insist(lambda: self._database.ask(DELETED, life.job_id))
        if life.lasts is not None:  # a job without runs leaves no row
            life.lasts.end(deleted_ms or before_ms, deleted_ms or after_ms)
        life.deleted = True
        document = _document(life.name, life.schedule, life.rules)
        try:
            job = (await insist(lambda: self._service.create(*WHERE, document))).job
        except AlreadyExists:  # the response was lost
            job = await insist(lambda: self._service.get(*WHERE, life.name))
        self._born(job, life.name, life.schedule, life.rules)

    # --- phases ----------------------------------------------------------------------

    async def _chaos(self, seconds: float, crash_every: float) -> None:
        """Run all faults and changes. Changes are completed, so that each is recorded."""
        async with asyncio.TaskGroup() as doing:
            doing.create_task(self._kill_them())
            doing.create_task(self._crash_the_database(crash_every))
            doing.create_task(self._change_things())
            doing.create_task(self._report())
            await asyncio.sleep(seconds)
            await wait_until(self._was_chaos)  # takes longer on a slow machine
            self._over.set()

    async def _was_chaos(self) -> bool:
        """Whether there were kills, database crashes, rescues and successes."""
        if self.tally.kills < 3 or self.tally.crashes < 1:
            return False
        return bool(await insist(lambda: self._database.ask(RESCUED_AND_SUCCEEDED)))

    async def _rest(self, least: float, most: float) -> bool:
        """Wait a random time. Returns False when the chaos is over."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), self._dice.uniform(least, most))
        return not self._over.is_set()

    async def _report(self) -> None:
        began = time.monotonic()
        while await self._rest(10, 10):
            runs = await insist(lambda: self._database.ask(RUNS))
            self.say(f"{time.monotonic() - began:4.0f} s: {runs} runs; {self.tally}")

    async def _quiet(self) -> None:
        """Pause all jobs and wait for the remaining runs to end."""
        await wait_until(lambda: insist(lambda: self._database.ask(UP_TO_DATE)))
        some = asyncio.Semaphore(8)

        async def pause(life: Life) -> None:
            async with some:
                await self._pause(life)

        await asyncio.gather(*(pause(life) for life in self.lives))
        self.say(f"all paused; {self.tally}")
        await wait_until(lambda: insist(lambda: self._database.ask(ALL_OVER)))
        for replica in self._replicas:
            replica.expected = True

    async def _look(self) -> Findings:
        self.records = await self._database.read()
        self.launches = read_launches(self.folder) + self._receiver.launches
        found = check(self.lives, self.records, self.launches, lead_ms=LEAD_MS, lease_ms=LEASE_MS)
        found.others += self.wrong
        for log in sorted(self.folder.glob("*.log")):
            found.others += [f"{log.name}: {line}" for line in _errors(log.read_text())]
        return found


async def insist(what: Callable[[], Awaitable[T]]) -> T:
    """Retry while the database is unavailable."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return await what()
        except (Unavailable, OSError, asyncpg.PostgresConnectionError, asyncpg.CannotConnectNowError):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


async def wait_until(check: Callable[[], Awaitable[object]]) -> None:
    """Wait until `check` is true or the time is up; the checker then reports what is missing."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while not await check():
                await asyncio.sleep(0.1)


def _document(name: str, schedule: Plain, rules: Rules) -> dict[str, object]:
    return {"name": name, "schedule": schedule.document(), **rules.document()}


def _errors(log: str) -> Iterator[str]:
    """Yield the errors that a process logged, each with the end of its traceback."""
    for entry in re.split(r"^(?=[A-Z]+ \d+ )", log, flags=re.MULTILINE):
        # The driver closes a broken connection in a separate task and ignores its failure.
        if entry.startswith(("ERROR", "CRITICAL")) and "coro=<Connection.close()" not in entry:
            lines = entry.strip().splitlines()
            yield " … ".join(line.strip()[:200] for line in dict.fromkeys((lines[0], *lines[-2:])))
