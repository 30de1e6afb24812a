"""Objects in memory: when they are used again, when they are removed, and what they can break."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest

from tests.unit.agents.test_launcher import FixedClock, launch
from wakeful import Agent, Context, SetState, Signal, on
from wakeful.agents.class_registry import ClassRegistry
from wakeful.agents.launcher import AgentLauncher
from wakeful.launch.port import Launch, SignalLaunch
from wakeful.run.instances import instance_id
from wakeful.run.outcome import Failed, Succeeded


class Recorder(Agent):
    """Counts its signals in memory, and records what happens to its objects."""

    name = "counter"
    version = 2
    state: ClassVar[Any] = {"count": 0}
    events: ClassVar[list[str]]

    def __init__(self) -> None:
        self.handled = 0

    @on("count.*")
    async def handle(self, signal: Signal, ctx: Context) -> object:
        self.handled += 1
        self.events.append(f"{ctx.instance} {self.handled}")
        if signal.type == "count.fail":
            raise ValueError
        return SetState(count=ctx.state["count"] + 1) if signal.type == "count.up" else None

    async def on_thaw(self, ctx: Any) -> object:
        self.events.append(f"thaw {ctx.instance} {ctx.state['count']}")
        ctx.state["count"] = 99
        return SetState(count=99)

    def on_hibernate(self, ctx: Any) -> object:
        assert threading.current_thread() is not threading.main_thread()
        self.events.append(f"hibernate {ctx.instance} {ctx.state['count']}")
        return None


class Fixture:
    def __init__(self) -> None:
        self.opened: list[AgentLauncher] = []

    def launcher(self, cls: type[Agent] = Recorder, **options: Any) -> AgentLauncher:
        classes = ClassRegistry()
        classes.register(cls)
        self.opened.append(AgentLauncher(classes, FixedClock(), threads=2, **options))
        return self.opened[-1]


@pytest.fixture
async def agents() -> AsyncIterator[Fixture]:
    Recorder.events = []
    fixture = Fixture()
    yield fixture
    for launcher in fixture.opened:
        await launcher.close()


async def until(expected: list[str]) -> None:
    """Wait until the objects have recorded these events, in any order."""
    async with asyncio.timeout(30):
        while Counter(expected) - Counter(Recorder.events):
            await asyncio.sleep(0.001)


def run(type: str = "count.look", count: int = 5, revision: int = 7, instance: str = "eu") -> Launch:
    return launch(type, state=f'{{"count":{count}}}', revision=revision, instance=instance)


async def test_an_object_is_used_again_while_it_saw_the_latest_state(agents: Fixture):
    launcher = agents.launcher()
    await launcher.start(run())
    await launcher.start(run("count.up"))
    await launcher.start(run(count=6, revision=8))

    assert Recorder.events == ["thaw eu 5", "eu 1", "eu 2", "eu 3"]


async def test_an_object_of_a_deleted_instance_is_not_used_for_a_new_one_of_its_name(agents: Fixture):
    launcher = agents.launcher()
    for created_ms in (1, 2):
        signal_run = run()
        assert isinstance(signal_run, SignalLaunch)
        signal_run.instance_created_ms = created_ms
        await launcher.start(signal_run)

    await until(["thaw eu 5", "eu 1", "hibernate eu 5", "thaw eu 5", "eu 1"])


@pytest.mark.parametrize("revision", [6, 8])
async def test_an_object_that_missed_a_change_is_replaced(agents: Fixture, revision: int):
    launcher = agents.launcher()
    await launcher.start(run())
    await launcher.start(run(count=6, revision=revision))

    await until(["eu 1", "eu 1", "hibernate eu 5", "thaw eu 5", "thaw eu 6"])
    assert len(Recorder.events) == 5
    assert len(launcher.cache) == 1


async def test_an_outcome_that_was_not_written_does_not_hide_the_stored_state(agents: Fixture):
    launcher = agents.launcher()
    await launcher.start(run("count.up"))  # the cache expects revision 8
    outcome = await launcher.start(run("count.up"))  # but its outcome was refused

    assert isinstance(outcome, Succeeded)
    assert outcome.handled is not None
    assert outcome.handled.data == '{"count":6}'
    assert Recorder.events.count("eu 1") == 2


async def test_hooks_cannot_change_the_state(agents: Fixture):
    outcome = await agents.launcher().start(run("count.up"))

    assert isinstance(outcome, Succeeded)
    assert outcome.handled is not None
    assert outcome.handled.data == '{"count":6}'


async def test_an_object_survives_a_failed_attempt(agents: Fixture):
    launcher = agents.launcher()
    assert isinstance(await launcher.start(run("count.fail")), Failed)
    await launcher.start(run())

    assert Recorder.events == ["thaw eu 5", "eu 1", "eu 2"]


async def test_instances_have_their_own_objects(agents: Fixture):
    launcher = agents.launcher()
    await launcher.start(run(instance="eu"))
    await launcher.start(run(instance="us"))
    await launcher.start(run(instance="eu"))

    assert Recorder.events == ["thaw eu 5", "eu 1", "thaw us 5", "us 1", "eu 2"]


async def test_an_idle_object_hibernates(agents: Fixture):
    class Short(Recorder):
        hibernate_after = "20ms"

    launcher = agents.launcher(Short)
    await launcher.start(run())
    assert len(launcher.cache) == 1

    await until(["thaw eu 5", "eu 1", "hibernate eu 5"])
    assert len(launcher.cache) == 0
    await launcher.start(run())
    await until(["thaw eu 5", "eu 1", "hibernate eu 5"] * 2)


async def test_an_object_that_is_used_stays(agents: Fixture, monkeypatch: pytest.MonkeyPatch):
    launcher = agents.launcher()
    now = asyncio.get_running_loop().time()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    await launcher.start(run(instance="eu"))
    now += 600
    await launcher.start(run(instance="us"))
    now += 301

    launcher.cache._sweep()

    assert instance_id("default", "counter", "eu") not in launcher.cache
    assert instance_id("default", "counter", "us") in launcher.cache
    monkeypatch.undo()


async def test_too_many_objects_leave_the_least_recently_used_first(agents: Fixture):
    launcher = agents.launcher(max_instances=2)
    for name in ("eu", "us", "eu", "ap"):
        await launcher.start(run(instance=name))

    names = [name for name in ("eu", "us", "ap") if instance_id("default", "counter", name) in launcher.cache]
    assert names == ["eu", "ap"]
    await until(["hibernate us 5"])


async def test_large_states_leave_memory_too(agents: Fixture):
    launcher = agents.launcher()
    launcher.cache._max_bytes = 1_000
    for name in ("eu", "us", "ap"):
        text = f'{{"count":1,"a":"{"x" * 400}"}}'
        await launcher.start(launch("count.look", state=text, instance=name))

    assert len(launcher.cache) == 2


async def test_an_instance_hibernates_on_request(agents: Fixture):
    launcher = agents.launcher()
    await launcher.start(run())

    assert launcher.hibernate(instance_id("default", "counter", "eu"))
    assert not launcher.hibernate(instance_id("default", "counter", "eu"))
    await until(["thaw eu 5", "eu 1", "hibernate eu 5"])


async def test_closing_hibernates_all_objects(agents: Fixture):
    launcher = agents.launcher()
    await launcher.start(run(instance="eu"))
    await launcher.start(run("count.up", instance="us"))
    await launcher.close()

    assert {"hibernate us 6", "hibernate eu 5"} <= {*Recorder.events}
    assert len(launcher.cache) == 0


async def test_a_busy_object_stays_and_is_not_shared(agents: Fixture):
    entered, leave = asyncio.Event(), asyncio.Event()

    class Slow(Recorder):
        @on("count.*")
        async def handle(self, signal: Signal, ctx: Context) -> object:
            self.events.append("enter")
            if signal.type == "count.wait":
                entered.set()
                await leave.wait()
            return None

    launcher = agents.launcher(Slow, max_instances=1)
    await launcher.start(run())
    waiting = asyncio.create_task(launcher.start(run("count.wait")))
    await entered.wait()
    await launcher.start(run(instance="us"))

    assert not launcher.hibernate(instance_id("default", "counter", "eu"))
    assert instance_id("default", "counter", "eu") in launcher.cache
    await launcher.start(run())  # a second attempt has an object of its own
    leave.set()
    await waiting
    assert Recorder.events.count("thaw eu 5") == 2


async def test_the_object_of_a_cancelled_attempt_is_not_used_again(agents: Fixture):
    entered, leave = threading.Event(), threading.Event()

    class Blocking(Recorder):
        @on("count.*")
        def handle(self, signal: Signal, ctx: Context) -> object:  # type: ignore[override]
            self.handled += 1
            self.events.append(f"{ctx.instance} {self.handled}")
            if signal.type == "count.wait":
                entered.set()
                leave.wait(30)
            return None

    launcher = agents.launcher(Blocking)
    task = asyncio.create_task(launcher.start(run("count.wait")))
    await asyncio.to_thread(entered.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await launcher.start(run())
    leave.set()

    assert Recorder.events == ["thaw eu 5", "eu 1", "thaw eu 5", "eu 1"]


async def test_a_hook_that_fails_changes_nothing(agents: Fixture, caplog: pytest.LogCaptureFixture):
    class Failing(Recorder):
        async def on_thaw(self) -> object:  # type: ignore[override]
            raise OSError("no network")

        async def on_hibernate(self, ctx: Any) -> object:
            raise SystemExit(1)

    launcher = agents.launcher(Failing)
    assert isinstance(await launcher.start(run("count.up")), Succeeded)
    await launcher.close()

    assert [each.getMessage().split()[0] for each in caplog.records] == ["event=instance.hook_failed"] * 2


async def test_a_migrated_state_is_what_on_thaw_sees(agents: Fixture):
    class Migrated(Recorder):
        version = 3

        def migrate(self, state: dict[str, Any], from_version: int) -> object:
            return {"count": state["count"] * 10}

    await agents.launcher(Migrated).start(run())

    assert Recorder.events[0] == "thaw eu 50"
