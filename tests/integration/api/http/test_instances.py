"""Instances over HTTP: list, read, start, stop, pause, resume, hibernate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from io import StringIO
from typing import Any, cast

import pytest
from rich.console import Console

from tests.integration.conftest import NewApp, on_one_store
from tests.support.agent_classes import event, with_classes
from tests.support.api_client import ApiClient, served
from tests.support.waiting import over
from wakeful import Agent, CancelDelay, Delay, Signal, on
from wakeful.agents.directives import Directive
from wakeful.cli.commands.instances import instance_page
from wakeful.client.types import InstanceShape

ALL = "/agents/report/instances"
EU = f"{ALL}/eu"


@pytest.fixture
async def agent(new_app: NewApp) -> AsyncIterator[ApiClient]:
    """Yield an admin's client of a server with agent classes."""
    app = with_classes(new_app())
    async with app, served(app) as client:
        yield client


async def test_instances_are_listed_by_agent_and_status(agent: ApiClient):
    for name in ("c", "a", "b"):
        await agent("POST", f"{ALL}/{name}/start")
    await agent("POST", "/agents/painter/instances/z/start")
    await agent("POST", f"{ALL}/b/pause", {"note": "maintenance"})

    async def listed(path: str, **query: Any) -> list[str]:
        reply = await agent("GET", path, **query)
        assert reply.status == 200, reply
        return [f"{each['agentId']}/{each['id']}" for each in reply.body["instances"]]

    assert await listed(ALL) == ["report/a", "report/b", "report/c"]
    assert await listed(ALL, status="paused") == ["report/b"]
    assert await listed("/instances") == ["painter/z", "report/a", "report/b", "report/c"]
    assert await listed("/instances", agent="painter") == ["painter/z"]
    page = await agent("GET", "/instances", limit=2)
    assert await listed("/instances", limit=2, cursor=page.body["cursor"]) == ["report/b", "report/c"]
    one = (await agent("GET", ALL, status="paused")).body["instances"][0]
    assert (one["status"], one["note"], one["waiting"], one["runId"]) == ("paused", "maintenance", 0, None)
    assert "state" not in one


async def test_an_instance_shows_its_state_its_schedules_and_what_waits(agent: ApiClient):
    await agent("POST", f"{EU}/start", {"state": {"count": 41}})
    sent = await agent("POST", "/agents/report/signals", event("1"), instance="eu")
    await over(agent.app, sent.body["id"])
    await agent("POST", f"{EU}/pause")
    await agent("POST", "/agents/report/signals", event("2"), instance="eu")

    shown = (await agent("GET", EU)).body
    assert (shown["state"], shown["stateError"]) == ({"count": 42}, None)
    assert (shown["status"], shown["waiting"], shown["version"]) == ("paused", 1, 1)
    assert shown["handledAt"] is not None
    (daily,) = shown["schedules"]
    assert (daily["agentId"], daily["tz"]) == ("report", "America/New_York")
    assert daily["target"] == {"kind": "agent", "instance": "eu", "signal": "report.generate"}
    assert (await agent("GET", f"/jobs/{daily['id']}")).status == 200


async def test_an_instance_shows_its_delays(new_app: NewApp):
    app = new_app()

    class Reminder(Agent):
        name = "reminder"

        @on("remind")
        async def remind(self, signal: Signal) -> list[Directive]:
            return [Delay("1h", "reminder.due", id="first"), Delay("2h", "reminder.late")]

        @on("cancel")
        async def cancel(self, signal: Signal) -> CancelDelay:
            return CancelDelay("first")

        @on("reminder.*")
        async def nothing(self, signal: Signal) -> None: ...

    app.agent(Reminder)
    async with app, served(app) as client:
        for _ in range(2):  # the second one replaces the delay that has an id
            await over(app, (await app.agents.send("reminder", "eu", "remind")).id)
        shown = (await client("GET", "/agents/reminder/instances/eu")).body
        assert [(each["id"], each["signal"]) for each in shown["delays"]] == [
            ("first", "reminder.due"), (None, "reminder.late"), (None, "reminder.late"),
        ]  # fmt: skip
        assert shown["waiting"] == 3
        info = await app.agents.instance("reminder", "eu")
        assert [each.run_id for each in info.delays] == [each["runId"] for each in shown["delays"]]
        printed = Console(width=200, record=True, file=StringIO())
        printed.print(*instance_page(cast(InstanceShape, shown), app.store.clock.now_ms()))
        assert "reminder.due" in printed.export_text()
        await over(app, (await app.agents.send("reminder", "eu", "cancel")).id)
        assert [each.id for each in (await app.agents.instance("reminder", "eu")).delays] == [None, None]
        gone = await app.runs.get(shown["delays"][0]["runId"])
        assert (gone.state, gone.reason) == ("cancelled", "delay_cancelled")


async def test_only_an_admin_sees_the_state(agent: ApiClient):
    await agent("POST", f"{EU}/start")
    for role, given in (("member", {}), ("agent", {"agent": "report"})):
        other = await agent.new(role, **given)
        shown = (await other("GET", EU)).body
        assert shown.keys() & {"state", "stateError"} == set()
        assert len(shown["schedules"]) == 1
        # an admin's key of the workspace is not the first key, and sees it too
    admin = await agent.new("admin")
    assert (await admin("GET", EU)).body["state"] == {"count": 0}


async def test_an_instance_is_stopped_and_begins_anew(agent: ApiClient):
    await agent("POST", f"{EU}/start", {"state": {"count": 5}})
    await agent("POST", f"{EU}/pause")
    waiting = await agent("POST", "/agents/report/signals", event("1"), instance="eu")

    stopped = await agent("POST", f"{EU}/stop")
    assert (stopped.status, stopped.body["status"], stopped.body["waiting"]) == (200, "stopped", 0)
    run = (await agent("GET", f"/runs/{waiting.body['id']}")).body
    assert (run["state"], run["reason"]) == ("cancelled", "stopped")
    assert (await agent("GET", EU)).body["schedules"] == []
    assert (await agent("POST", f"{EU}/stop")).status == 200
    for action in ("pause", "resume"):
        reply = await agent("POST", f"{EU}/{action}")
        assert (reply.status, reply.code) == (409, "failed-precondition")

    started = await agent("POST", f"{EU}/start")
    assert started.body["status"] == "active"
    shown = (await agent("GET", EU)).body
    assert (shown["state"], len(shown["schedules"])) == ({"count": 0}, 1)


async def test_pause_resume_and_hibernate(agent: ApiClient):
    await agent("POST", f"{EU}/start")
    paused = await agent("POST", f"{EU}/pause", {"note": "the API is down"})
    assert (paused.body["status"], paused.body["note"]) == ("paused", "the API is down")
    resumed = await agent("POST", f"{EU}/resume")
    assert (resumed.body["status"], resumed.body["note"]) == ("active", None)
    hibernated = await agent("POST", f"{EU}/hibernate")
    assert hibernated.body["hibernatedAt"] is not None
    audit = await agent("GET", "/audit")
    actions = [entry["action"] for entry in audit.body["entries"] if entry["subject"] == "report/eu"]
    assert {"instance.start", "instance.pause", "instance.resume"} <= {*actions}


WRONG: list[tuple[str, object, int]] = [
    ("/agents/nobody/instances/eu/start", None, 404),
    ("/agents/default/instances/eu/start", None, 409),
    (f"{ALL}/nobody/stop", None, 404),
    (f"{ALL}/nobody/pause", None, 404),
    (f"{ALL}/nobody/resume", None, 404),
    (f"{ALL}/nobody/hibernate", None, 404),
    (f"{ALL}/a%0Ab/start", None, 422),
    (f"{ALL}/{'x' * 256}/start", None, 422),
    (f"{EU}/start", {"state": [1]}, 422),
    (f"{EU}/start", {"state": {"count": "x" * 300_000}}, 413),
    (f"{EU}/start", {"status": {}}, 422),
    (f"{EU}/stop", {"note": "x"}, 422),
    (f"{ALL}/default/pause", {"note": "x" * 501}, 422),
    (f"{ALL}/default/pause", {"note": 7}, 422),
]


@on_one_store
async def test_a_wrong_request_is_a_problem_and_changes_nothing(agent: ApiClient):
    await agent("POST", f"{ALL}/default/start")
    for path, body, status in WRONG:
        reply = await agent("POST", path, body)
        assert reply.status == status, reply
        assert reply.code
    (only,) = (await agent("GET", "/instances")).body["instances"]
    assert (only["id"], only["status"]) == ("default", "active")


@on_one_store
async def test_unknown_instances_and_statuses_are_problems(agent: ApiClient):
    assert (await agent("GET", f"{ALL}/nobody")).status == 404
    assert (await agent("GET", "/agents/nobody/instances")).status == 404
    assert (await agent("GET", "/agents/default/instances")).body == {"instances": [], "cursor": None}
    reply = await agent("GET", ALL, status="sleeping")
    assert (reply.status, reply.body["detail"][:7]) == (422, "status:")
    assert (await agent("GET", ALL, cursor="x")).status == 422
