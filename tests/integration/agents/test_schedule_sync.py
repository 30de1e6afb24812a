"""The loop that gives instances the schedules of their class, on both stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from wakeful.agents.agent import Agent, Schedule, on
from wakeful.agents.class_registry import RegisteredClass, read_class
from wakeful.agents.schedule_sync import AgentSettings, ScheduleSync
from wakeful.document import Defaults
from wakeful.errors import Unavailable
from wakeful.run.instances import AgentClass, DeclaredSchedule
from wakeful.run.signal_rules import signal_run
from wakeful.service.agents import instance_rules
from wakeful.store.connect import store_at
from wakeful.store.instances import InstanceChange
from wakeful.store.port import Store
from wakeful.store.rows import JobRow

DAILY = Schedule("0 6 * * *", "add", job_id="daily")
LATER = Schedule("0 7 * * *", "add", job_id="daily")
HOURLY = Schedule("@hourly", "check", job_id="hourly")


async def _handle(self: Agent, signal: object) -> None: ...


def registered(agent: str = "counter", version: int = 1) -> RegisteredClass:
    fields = {"name": agent, "version": version, "handle": on("*")(_handle)}
    return read_class(type("Counter", (Agent,), fields))


def agent_class(*schedules: Schedule, version: int = 1, agent: str = "counter") -> AgentClass:
    declared = tuple(DeclaredSchedule(each.job_id, each.document({"lane": "team"})) for each in schedules)
    digest = "+".join(f"{each.job_id} {each.expr}" for each in schedules)
    return AgentClass("default", agent, version, "{}", 1_000, 1_000, "team", declared, ("*",), digest)


@pytest.fixture
async def store(database: str) -> AsyncIterator[Store]:
    store = store_at(database)
    await store.open()
    yield store
    await store.close()


def sync(store: Store, *classes: RegisteredClass) -> ScheduleSync:
    async def settings(workspace: str, agent: str) -> AgentSettings:
        return AgentSettings(Defaults(), active=True)

    return ScheduleSync(store, store.clock, classes or [registered()], settings)


async def put(store: Store, *schedules: Schedule, version: int = 1, agent: str = "counter") -> None:
    await store.put_class(agent_class(*schedules, version=version, agent=agent), store.clock.now_ms())


async def signalled(store: Store, *names: str) -> None:
    """Create instances by their first signal: they have no schedules yet."""
    known = await store.agent_class("default", "counter")
    assert known is not None
    arrivals = [signal_run(known, name, "add", "{}", store.clock.now_ms()) for name in names]
    await store.send(arrivals, 1_000)


async def jobs(store: Store, name: str, agent: str = "counter") -> list[JobRow]:
    view = await store.instance("default", agent, name)
    assert view is not None
    return await store.schedules(view.row.id)


async def ids(store: Store, name: str) -> list[str]:
    return [str(row.schedule_id) for row in await jobs(store, name)]


async def step_until_idle(loop: ScheduleSync) -> int:
    steps = 1
    while await loop.step() is not None:
        steps += 1
    return steps


async def test_all_instances_converge_in_batches(store: Store):
    await put(store, DAILY, HOURLY)
    names = [f"i{number}" for number in range(230)]
    await signalled(store, *names)
    assert await step_until_idle(sync(store)) == 3
    for name in (names[0], names[150], names[-1]):
        assert await ids(store, name) == ["daily", "hourly"]
    before = await jobs(store, "i7")
    assert await step_until_idle(sync(store)) == 1
    assert await jobs(store, "i7") == before


async def test_a_lower_version_never_overwrites_a_higher_one(store: Store):
    await put(store, LATER, version=2)
    await signalled(store, "eu")
    await step_until_idle(sync(store, registered(version=2)))
    kept = await jobs(store, "eu")
    await put(store, DAILY, version=1)
    await signalled(store, "us")
    await step_until_idle(sync(store, registered(version=1)))
    assert await jobs(store, "eu") == kept
    assert "0 7 * * *" in str((await jobs(store, "us"))[0].timing)


async def test_a_bad_declared_schedule_harms_no_other(store: Store):
    await put(store, DAILY)
    await signalled(store, "eu")
    await step_until_idle(sync(store))
    before = await jobs(store, "eu")
    await put(store, Schedule("61 * * * *", "add", job_id="daily"), HOURLY)
    await step_until_idle(sync(store))
    daily, hourly = await jobs(store, "eu")
    assert daily == before[0]
    assert hourly.enabled
    await put(store, LATER, HOURLY)
    await step_until_idle(sync(store))
    assert "0 7 * * *" in str((await jobs(store, "eu"))[0].timing)


async def test_an_instance_that_cannot_be_changed_delays_no_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    await put(store, DAILY)
    await signalled(store, "bad", "eu", "us")
    loop = sync(store)
    change = store.change_instance

    async def fail_one(workspace: str, agent: str, name: str, *rest: Any) -> Any:
        if name == "bad":
            raise RuntimeError("no")
        return await change(workspace, agent, name, *rest)

    monkeypatch.setattr(store, "change_instance", fail_one)
    await step_until_idle(loop)
    assert (await ids(store, "eu"), await ids(store, "us"), await ids(store, "bad")) == (
        ["daily"],
        ["daily"],
        [],
    )


async def test_a_class_whose_settings_cannot_be_read_delays_no_other(store: Store):
    await put(store, DAILY, agent="other")
    await put(store, DAILY)
    await signalled(store, "eu")

    async def settings(workspace: str, agent: str) -> AgentSettings:
        if agent == "other":
            raise Unavailable("no")
        return AgentSettings(Defaults(), active=True)

    await ScheduleSync(store, store.clock, [registered(agent="other"), registered()], settings).step()
    assert await ids(store, "eu") == ["daily"]


async def test_stopped_instances_get_no_schedules(store: Store):
    await put(store, DAILY)
    await signalled(store, "eu")
    now_ms = store.clock.now_ms()
    await store.change_instance(
        "default", "counter", "eu", now_ms, instance_rules.stop("counter", "eu", now_ms)
    )
    await step_until_idle(sync(store))
    assert await ids(store, "eu") == []


async def test_a_newer_version_unblocks_instances_once(store: Store):
    await put(store, DAILY, version=1)
    await signalled(store, "eu", "us")
    await step_until_idle(sync(store))

    async def block() -> None:
        def rule(row: Any, jobs: Any) -> Any:
            return InstanceChange(row._replace(status="blocked", note="why"))

        await store.change_instance("default", "counter", "eu", store.clock.now_ms(), rule)

    async def status() -> str:
        view = await store.instance("default", "counter", "eu")
        assert view is not None
        return view.row.status

    await block()
    await step_until_idle(sync(store))
    assert await status() == "blocked"
    await put(store, DAILY, version=2)
    await step_until_idle(sync(store, registered(version=1)))  # this process has the old class
    assert await status() == "blocked"
    newer = sync(store, registered(version=2))
    await step_until_idle(newer)
    assert await status() == "active"
    await block()
    await step_until_idle(newer)
    await step_until_idle(sync(store, registered(version=2)))
    assert await status() == "blocked"
