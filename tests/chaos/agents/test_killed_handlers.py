"""Replicas are killed at every stage of a handler, and another replica continues."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.chaos.agents.killed_replica import (
    FATAL,
    LONGEST,
    PACE,
    RELAY,
    RELAYS,
    SINK,
    STAGES,
    Relay,
    Sink,
    counter,
    place,
)  # fmt: skip
from tests.support import prefork
from tests.support.postgres_server import fresh_database
from tests.support.sqlite_files import fresh_file
from tests.support.waiting import PATIENCE, eventually
from wakeful import Agent, Signal, Wakeful
from wakeful.agents.class_registry import ClassRegistry
from wakeful.run.instances import instance_id
from wakeful.store.instances import InstanceFilter
from wakeful.store.rows import RunFilter, RunView

INSTANCE = "a"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new database."""
    if request.param == "sqlite":
        return f"sqlite:///{fresh_file(tmp_path / 'wakeful.db')}"
    return fresh_database()


class Children:
    """Replicas in processes of their own."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, agent: str, stage: str) -> int:
        """Start a replica with the class of this agent, which dies at this stage. Returns its number."""
        number = len(self.processes)
        program = str(Path(__file__).parent / "killed_replica.py")
        with (self._folder / f"{number}.log").open("w") as log:
            command = prefork.command(program, self._url, agent, stage, str(self._journal(number)))
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        return number

    async def exit_code(self, number: int) -> int:
        """Wait for the end of a replica."""
        return await asyncio.to_thread(self.processes[number].wait, PATIENCE)

    def calls(self, number: int) -> list[Call]:
        """Return the calls of handlers in a replica, in their order."""
        calls: list[Call] = []
        file = self._journal(number)
        for line in file.read_text().splitlines() if file.exists() else ():
            at, what, run_id = line.split()
            if what == "begin":
                calls.append(Call(run_id, int(at)))
            else:
                calls[-1] = calls[-1]._replace(ended=int(at))
        return calls

    def logs(self) -> str:
        """Return what all replicas have logged."""
        return "".join(log.read_text() for log in self._folder.glob("*.log"))

    def _journal(self, number: int) -> Path:
        return self._folder / f"{number}.journal"

    def kill(self, *numbers: int) -> None:
        """Kill these replicas."""
        for number in numbers:
            self.processes[number].kill()
            self.processes[number].wait()


class Call(NamedTuple):
    """A call of a handler, in nanoseconds of the clock that all processes share."""

    run_id: str
    began: int
    #: None: the process was killed before
    ended: int | None = None


@asynccontextmanager
async def running(url: str, *classes: type[Agent]) -> AsyncIterator[Wakeful]:
    """Run a replica with these classes in this process."""
    app = Wakeful(url, config=PACE)
    for each in classes:
        app.agent(each)
    async with app:
        yield app


@pytest.fixture
def children(url: str, tmp_path: Path) -> Iterator[Children]:
    children = Children(url, tmp_path)
    yield children
    children.kill(*range(len(children.processes)))


async def put_class(app: Wakeful, cls: type[Agent]) -> None:
    """Write a class to the database, without a process that has it."""
    registered = ClassRegistry().register(cls)
    await app.store.put_class(registered.agent_class, app.store.clock.now_ms())


async def send(app: Wakeful, agent: str, number: int, kind: str = "work") -> str:
    """Send a signal and return its run."""
    signal = Signal(kind, {"number": number}, id=str(number), source="/senders/x")
    return (await app.agents.send(agent, INSTANCE, signal)).id


async def is_idle(app: Wakeful, agent: str, instance: str) -> bool:
    """Whether all signals of an instance are handled."""
    view = await app.store.instance("default", agent, instance)
    return view is not None and view.waiting == 0 and view.active_run is None


async def runs_of(app: Wakeful, agent: str, instance: str = INSTANCE) -> list[RunView]:
    """Return the runs of an instance, oldest first."""
    own = instance_id("default", agent, instance)
    found = await app.store.runs(RunFilter("default", agent=agent, instance_id=own, limit=1000))
    return sorted(found, key=lambda run: run.id)


async def test_a_killed_handler_has_all_its_effects_once(url: str, children: Children):
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(running(url, Sink))
        fatal = {}
        for stage in STAGES:
            await put_class(first, counter(stage))
            for number in (1, 2, 3):
                run_id = await send(first, stage, number)
                if number == FATAL:
                    fatal[stage] = run_id
        dying = [children.start(stage, stage) for stage in STAGES]
        codes = await asyncio.gather(*(children.exit_code(number) for number in dying))
        assert dict(zip(STAGES, codes, strict=True)) == dict.fromkeys(STAGES, -signal.SIGKILL)

        other = await stack.enter_async_context(running(url, *(counter(stage) for stage in STAGES)))
        for stage in STAGES:
            assert await send(other, stage, FATAL) == fatal[stage], "a sender that repeats its signal"
            await eventually(lambda: _settled(other, stage))  # noqa: B023
            await check(other, stage, fatal[stage])


async def _settled(app: Wakeful, stage: str) -> bool:
    """Whether the instance and its delays are done, and what it emitted has arrived."""
    if not await is_idle(app, stage, INSTANCE):
        return False
    # The last outcome added its signals to the other mailbox in its transaction.
    return await is_idle(app, SINK, stage)


async def check(app: Wakeful, stage: str, fatal: str) -> None:
    """Check that each directive of each signal took effect once."""
    state = await app.agents.state(stage, INSTANCE)
    assert (state["count"], state["log"], sorted(state["later"])) == (3, [1, 2, 3], [1, 2, 3]), stage
    assert await state_of(app, SINK, stage) == {"told": [1, 2, 3]}, stage

    runs = await runs_of(app, stage)
    kinds = [run.signal for run in runs]
    assert (kinds.count("work"), kinds.count("later"), len(runs)) == (3, 3, 6), stage
    assert {run.state for run in runs} == {"succeeded"}, stage
    emitted = [json.loads(run.emitted or "[]") for run in runs if run.signal == "work"]
    assert [[event["data"]["number"] for event in events] for events in emitted] == [[1], [2], [3]], stage
    changes = await app.store.changes(0, 1000)
    published = Counter(
        run_id for change in changes if change.kind == "signal.emitted" for run_id in change.items
    )
    assert [published[run.id] for run in runs if run.signal == "work"] == [1, 1, 1], stage
    assert len(await runs_of(app, SINK, stage)) == 3, stage
    (killed,) = [run for run in runs if run.id == fatal]
    assert killed.attempt > 1 or stage == "committed", stage

    jobs = await app.store.schedules(instance_id("default", stage, INSTANCE))
    assert [job.schedule_id for job in jobs] == ["job-3"], stage


async def test_a_hundred_signals_of_two_senders_are_handled_one_at_a_time_and_in_order(
    url: str, children: Children
):
    async with running(url) as app:
        await put_class(app, counter("counter"))
        replicas = [children.start("counter", "none") for _ in range(2)]

        async def sender(name: str, numbers: range) -> list[str]:
            signals = [Signal("count", {"number": f"{name}{number}"}) for number in numbers]
            return [(await app.agents.send("counter", INSTANCE, signal)).id for signal in signals]

        sent = [*await asyncio.gather(sender("x", range(25)), sender("y", range(25)))]
        await eventually(lambda: sum(len(children.calls(number)) for number in replicas) > 20)
        busiest = max(replicas, key=lambda number: len(children.calls(number)))
        children.kill(busiest)
        killed_at = time.monotonic_ns()
        sent += await asyncio.gather(sender("x", range(25, 50)), sender("y", range(25, 50)))
        await eventually(lambda: is_idle(app, "counter", INSTANCE))

        state = await state_of(app, "counter")
        assert state["count"] == len(state["log"]) == 100
        for name in ("x", "y"):
            of_sender = [each for each in state["log"] if each.startswith(name)]
            assert of_sender == [f"{name}{number}" for number in range(50)]
        runs = await runs_of(app, "counter")
        assert {run.id for run in runs} == {run_id for part in sent for run_id in part}
        assert {run.state for run in runs} == {"succeeded"}
        calls = sorted((call for number in replicas for call in children.calls(number)), key=_began)
        ends = [call.ended or killed_at for call in calls]
        assert all(call.began > end for call, end in zip(calls[1:], ends, strict=False)), "one at a time"
        assert all(children.calls(number) for number in replicas), "both replicas handled signals"


def _began(call: Call) -> int:
    return call.began


async def state_of(app: Wakeful, agent: str, instance: str = INSTANCE) -> Any:
    """Return the stored state of an instance."""
    found = await app.store.instance("default", agent, instance)
    assert found is not None
    return json.loads(found.row.data or "{}")


async def test_signals_between_instances_arrive_once_while_replicas_are_killed(url: str, children: Children):
    """Outcomes of several instances that send to each other are written at once, in several processes."""
    async with running(url) as app:
        await put_class(app, Relay)
        replicas = [children.start(RELAY, "none") for _ in range(2)]
        for root in "abc":
            await app.agents.send(RELAY, place(root), Signal("relay", {"path": root}))
        paths = {root + "".join(rest) for root in "abc" for rest in _paths(LONGEST - 1)}
        for number in replicas:
            await eventually(partial(_more_than, app, len(paths) // 4 * (number + 1)))
            children.kill(number)
            children.start(RELAY, "none")
        await eventually(partial(_more_than, app, len(paths) - 1))

        found: list[str] = []
        for number in range(RELAYS):
            assert await is_idle(app, RELAY, f"r{number}")
            log = (await state_of(app, RELAY, f"r{number}"))["log"]
            assert {place(path) for path in log} == {f"r{number}"}
            found += log
        assert Counter(found) == dict.fromkeys(paths, 1)
        assert "deadlock" not in children.logs()


def _paths(longest: int) -> list[tuple[str, ...]]:
    return [path for length in range(longest + 1) for path in product("012", repeat=length)]


async def _more_than(app: Wakeful, count: int) -> bool:
    """Whether more signals than this were handled."""
    views = await app.store.instances(InstanceFilter("default", RELAY))
    return sum(len(json.loads(view.row.data or '{"log":[]}')["log"]) for view in views) > count


async def test_a_handler_that_ends_its_process_becomes_a_dead_letter_and_the_next_signal_runs(
    url: str, children: Children
):
    async with running(url) as app:
        await put_class(app, counter("poison"))
        sent = [await send(app, "poison", number, "count") for number in (1, FATAL, 3)]
        deaths = 0
        while (await runs_by_id(app, sent[1])).state != "failed":
            assert await children.exit_code(children.start("poison", "exit")) == 3
            deaths += 1
            await eventually(lambda: _rescued(app, sent[1]))
        assert deaths == counter("poison").max_attempts
        children.start("poison", "exit")
        await eventually(lambda: is_idle(app, "poison", INSTANCE))

        poison = await runs_by_id(app, sent[1])
        assert (poison.state, poison.reason, poison.attempt, poison.dead) == ("failed", "lost", deaths, True)
        state = await state_of(app, "poison")
        assert (state["count"], state["log"]) == (2, [1, 3])


async def _rescued(app: Wakeful, run_id: str) -> bool:
    return (await runs_by_id(app, run_id)).state != "running"


async def runs_by_id(app: Wakeful, run_id: str) -> RunView:
    """Return a run."""
    (run,) = await app.store.runs_by_ids([run_id])
    return run
