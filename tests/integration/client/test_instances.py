"""Instances and signals through `AsyncClient` and `Client`, next to the embedded interface."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from tests.integration.conftest import NewApp, on_one_store
from tests.support.agent_classes import with_classes
from tests.support.api_client import ApiClient, served
from tests.support.waiting import PATIENCE
from wakeful import (
    AgentsApi,
    AsyncClient,
    Client,
    FailedPrecondition,
    InstanceStatus,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Scheduler,
    Signal,
    Wakeful,
    WakefulError,
)


class Pair(NamedTuple):
    """A scheduler in this process, and the same one over its HTTP API."""

    embedded: Wakeful
    remote: AsyncClient
    operator: ApiClient

    @property
    def both(self) -> tuple[Scheduler, Scheduler]:
        """Return both as the common interface."""
        return self.embedded, self.remote


@pytest.fixture
async def pair(new_app: NewApp) -> AsyncIterator[Pair]:
    app = with_classes(new_app())
    async with app, served(app) as operator, AsyncClient(operator.url, operator.key) as client:
        yield Pair(app, client, operator)


async def test_both_start_send_read_and_stop(pair: Pair):
    for number, scheduler in enumerate(pair.both):
        id = f"i{number}"
        agents = scheduler.agents
        started = await agents.start("report", id, state={"count": 1})
        assert (started.id, started.status, started.agent) == (id, InstanceStatus.ACTIVE, "report")
        run = await agents.send("report", id, Signal("report.generate", {"month": 3}))
        async with asyncio.timeout(PATIENCE):
            over = await scheduler.runs.wait(run.id)
        assert (over.state, over.output, over.instance) == ("succeeded", "report 2", id)
        assert [each["type"] for each in over.emitted] == ["report.ready"]
        assert await agents.state("report", id) == {"count": 2}
        paused = await agents.pause("report", id, note="tests")
        assert (paused.status, paused.note) == ("paused", "tests")

        sent = await agents.send("report", id, [Signal("report.generate", id="7"), {"type": "x", **_EVENT}])
        again = await agents.send("report", id, Signal("report.generate", id="7"))
        assert [run.duplicate for run in (*sent, again)] == [False, False, True]
        assert again.id == sent[0].id
        by_type = await agents.send("report", id, "report.generate")
        assert by_type.signal == "report.generate"
        waiting = await scheduler.runs.of("report").list(instance=id, states=["pending"])
        assert {each.id for each in waiting} == {sent[0].id, sent[1].id, by_type.id}

        shown = await agents.instance("report", id)
        assert (shown.waiting, shown.state, len(shown.schedules)) == (3, {"count": 2}, 1)
        assert shown.schedules[0].tz == "America/New_York"
        assert (await agents.resume("report", id)).status == "active"
        assert (await agents.hibernate("report", id)).hibernated_at is not None
        assert (await agents.stop("report", id)).status == "stopped"
    lists = [[each.id for each in await scheduler.agents.list("report")] for scheduler in pair.both]
    assert lists == [["i0", "i1"]] * 2
    assert [agent.name for agent in await pair.remote.agents.list()] == ["default", "painter", "report"]


#: Data of users that looks like the credentials of a target, which are masked for members.
_DATA: dict[str, Any] = {
    "url": "https://me:pw@a.example/x?id=17#top",
    "headers": {"authorization": "Bearer 1"},
    "env": {"A": "1"},
    "nested": [{"token": "t", "servers": ["nats://u:p@h"], "secret": "***"}],
}


async def test_state_payload_and_output_are_returned_as_they_are(pair: Pair):
    member = await pair.operator.new("member")
    await pair.embedded.agents.start("report", "eu", state=_DATA)
    await pair.embedded.jobs.create("echo", schedule="@daily", target={"kind": "echo"}, payload=_DATA)
    run = await pair.embedded.jobs.run("echo", payload=_DATA)
    assert await pair.remote.agents.state("report", "eu") == {"count": 0, **_DATA}
    async with AsyncClient(member.url, member.key) as client, asyncio.timeout(PATIENCE):
        over = await client.runs.wait(run.id)
        assert (over.payload, json.loads(over.output or "")) == (_DATA, _DATA)
        assert (await client.jobs.get("echo")).payload == _DATA


_EVENT = {"specversion": "1.0", "id": "8", "source": "/tests"}


async def test_both_return_the_same_instance(pair: Pair):
    await pair.embedded.agents.start("report", "eu")
    await pair.embedded.agents.start("painter")
    one, other = [await scheduler.agents.instance("report", "eu") for scheduler in pair.both]
    assert one == other
    assert (one.state, one.schedules) == (other.state, other.schedules)
    for scheduler in pair.both:
        page = await scheduler.agents.instances(limit=1)
        assert ([each.agent for each in page], page.cursor is None) == (["painter"], False)
        following = await scheduler.agents.instances(limit=1, cursor=page.cursor)
        assert ([each.id for each in following], following.cursor) == (["eu"], None)
        assert await scheduler.agents.instances(status=InstanceStatus.BLOCKED) == []


async def test_errors_are_the_same_through_both(pair: Pair):
    await pair.embedded.agents.start("report", "gone")
    await pair.embedded.agents.stop("report", "gone")
    await pair.embedded.agents.start("report", "full")
    await pair.embedded.agents.pause("report", "full")
    await pair.embedded.agents.send("report", "full", [Signal("x") for _ in range(5)])
    calls: list[tuple[type[WakefulError], Callable[[AgentsApi], Awaitable[object]]]] = [
        (NotFound, lambda agents: agents.send("nobody", "eu", Signal("x"))),
        (NotFound, lambda agents: agents.instance("report", "nobody")),
        (FailedPrecondition, lambda agents: agents.start("default")),
        (FailedPrecondition, lambda agents: agents.send("report", "gone", Signal("x"))),
        (FailedPrecondition, lambda agents: agents.pause("report", "gone")),
        (ResourceExhausted, lambda agents: agents.send("report", "full", Signal("x"))),
        (InvalidArgument, lambda agents: agents.send("report", "a\nb", Signal("x"))),
        (InvalidArgument, lambda agents: agents.send("report", "eu", {"type": "x"})),
        (InvalidArgument, lambda agents: agents.send("report", "eu", [])),
        (InvalidArgument, lambda agents: agents.start("report", "eu", state={"count": object()})),
        (InvalidArgument, lambda agents: agents.start("report", "eu", state=5)),  # type: ignore[arg-type]
    ]
    for kind, call in calls:
        messages = []
        for scheduler in pair.both:
            with pytest.raises(WakefulError) as refused:
                await call(scheduler.agents)
            assert isinstance(refused.value, kind), refused.value
            messages.append(refused.value.message)
        if "object" not in messages[0]:
            assert messages[0] == messages[1]


@on_one_store
async def test_the_state_requires_the_role_admin(pair: Pair):
    await pair.embedded.agents.start("report", "eu")
    member = await pair.operator.new("member")
    async with AsyncClient(member.url, member.key) as client:
        assert (await client.agents.instance("report", "eu")).state is None
        with pytest.raises(PermissionDenied, match="admin"):
            await client.agents.state("report", "eu")
        with pytest.raises(PermissionDenied):
            await client.agents.stop("report", "eu")
        assert (await client.agents.send("report", "eu", "report.generate")).trigger == "signal"


@on_one_store
async def test_a_program_without_an_event_loop(pair: Pair):
    def work() -> None:
        with Client(pair.operator.url, pair.operator.key) as client:
            agents = client.agents
            assert agents.start("report", "eu").status == "active"
            run = agents.send("report", "eu", "report.generate")
            assert client.runs.wait(run.id, timeout=PATIENCE).state == "succeeded"
            assert agents.state("report", "eu") == {"count": 1}
            agents.pause("report", "eu")
            first, second = agents.send("report", "eu", [Signal("a"), Signal("b")])
            assert (first.signal, second.signal) == ("a", "b")
            assert [each.id for each in agents.list("report")] == ["eu"]
            assert "report" in [each.name for each in agents.list()]
            assert agents.instances("report")[0].waiting == 2
            assert agents.instance("report", "eu").note is None
            agents.resume("report", "eu")
            agents.hibernate("report", "eu")
            assert agents.stop("report", "eu").status == "stopped"

    await asyncio.to_thread(work)
