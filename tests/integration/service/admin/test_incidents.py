"""Incidents from end to end: their three messages, and how people read and acknowledge them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.integration.conftest import QUICK, SELDOM, NewApp, on_one_store
from tests.support.api_client import ApiClient, served
from tests.support.movable_clock import MovableClock, store_with
from tests.support.receiver import Receiver
from tests.support.waiting import eventually, over
from wakeful import AsyncClient, Function, IncidentState, NotFound, Permanent, Wakeful
from wakeful.client.client import EventType
from wakeful.job.policy import DAY_MS
from wakeful.service.auth.access import LOCAL


class Switch:
    """A function that fails with an error, or succeeds."""

    def __init__(self, *apps: Wakeful) -> None:
        self.error: str | None = "it never works"
        for app in apps:
            app.function("work")(self.work)

    async def work(self) -> None:
        """Do what the test wants."""
        if self.error is not None:
            raise Permanent(self.error)


async def ends(app: Wakeful, name: str = "digest") -> str:
    """Run the job to its end."""
    return (await over(app, (await app.jobs.run(name)).id)).state


def received(receiver: Receiver) -> list[str]:
    """Return the kinds of the received messages."""
    return [json.loads(body)["payload"]["kind"] for body in receiver.bodies]


async def test_three_failures_a_day_and_a_success_are_three_messages(database: str, receiver: Receiver):
    clock = MovableClock()
    apps = [
        Wakeful(
            store=store_with(database, clock), config=QUICK, secret_key="k" * 32, allow_private_targets=True
        )
        for _ in range(2)
    ]
    switch = Switch(*apps)
    async with apps[0] as app, apps[1]:
        await app.services.agents.workspaces.put(LOCAL, "default", {"alerts": {"url": receiver.url}})
        await app.jobs.create("digest", schedule=SELDOM, target=Function("work"))
        for _ in range(3):
            assert await ends(app) == "failed"
        await eventually(lambda: received(receiver))
        (incident,) = await app.incidents.list()
        assert (incident.state, incident.job, incident.failed_runs) == ("open", "digest", 3)
        clock.offset_ms += DAY_MS
        await eventually(lambda: len(received(receiver)) >= 2)
        clock.offset_ms += DAY_MS  # there is one reminder
        assert await ends(app) == "failed"
        switch.error = None
        assert await ends(app) == "succeeded"
        await eventually(lambda: len(received(receiver)) >= 3)
        assert await ends(app) == "succeeded"

        async def settled() -> bool:
            runs = await app.jobs.runs("wakeful-workspace-alerts")
            return all(run.finished_at is not None for run in runs)

        await eventually(settled)
        (incident,) = await app.incidents.list()
    assert received(receiver) == ["dead_letter", "reminder", "recovered"]
    assert (incident.state, incident.failed_runs) == (IncidentState.RECOVERED, 4)
    assert incident.alerted_at is not None
    assert incident.reminded_at is not None
    assert incident.recovered_by_run_id is not None
    messages = [json.loads(body)["payload"] for body in receiver.bodies]
    assert {message["incident"] for message in messages} == {incident.id}
    assert "still fails: 3 failed runs since" in messages[1]["message"]
    assert messages[2]["message"].endswith("has recovered after 4 failed runs (it never works)")


@asynccontextmanager
async def failing(new_app: NewApp) -> AsyncIterator[tuple[ApiClient, Switch]]:
    """Serve an app whose job `digest` of agent `writer` has an open incident."""
    app = new_app()
    switch = Switch(app)
    async with app, served(app) as ask:
        job = {"name": "digest", "schedule": SELDOM, "target": {"kind": "function", "name": "work"}}
        assert (await ask("POST", "/agents/writer/jobs", job)).status == 201
        await run(ask)
        yield ask, switch


async def run(ask: ApiClient) -> dict[str, Any]:
    """Run the job to its end."""
    started = (await ask("POST", "/agents/writer/jobs/digest/run", {})).body["id"]

    async def ended() -> dict[str, Any]:
        body: dict[str, Any] = (await ask("GET", f"/runs/{started}")).body
        return body if body["finishedAt"] else {}

    return await eventually(ended)


async def test_incidents_over_http(new_app: NewApp):
    async with failing(new_app) as (ask, switch):
        last = await run(ask)
        listed = await ask("GET", "/incidents")
        assert (listed.status, listed.body["cursor"]) == (200, None)
        (incident,) = listed.body["incidents"]
        assert incident["lastRunId"] == last["id"]
        assert (incident["agentId"], incident["job"], incident["failedRuns"]) == ("writer", "digest", 2)
        assert (incident["state"], incident["cause"]) == ("open", "it never works")
        path = f"/incidents/{incident['id']}"
        assert (await ask("GET", path)).body == incident
        status = (await ask("GET", "/status")).body
        assert status["incidents"] == {"open": 1, "acknowledged": 0}

        member = await ask.new("member")
        done = await member("POST", f"{path}/ack", {"note": "  we know "})
        assert (done.status, done.body["state"], done.body["note"]) == (200, "acknowledged", "we know")
        assert done.body["acknowledgedBy"].startswith("key:")
        assert (await ask("POST", f"{path}/ack", {"note": "another"})).body == done.body
        (entry,) = [
            each
            for each in (await ask("GET", "/audit")).body["entries"]
            if each["action"] == "incident.acknowledge"
        ]
        assert entry["subject"] == incident["id"]
        assert entry["details"] == {"job": "writer/digest", "cause": "it never works", "note": "we know"}
        assert "wakeful_open_incidents{" in (await ask("GET", "/metrics")).body

        switch.error = "another problem"
        await run(ask)
        first = (await ask("GET", "/incidents", limit=1)).body
        assert [each["cause"] for each in first["incidents"]] == ["another problem"]
        second = (await ask("GET", "/incidents", limit=1, cursor=first["cursor"])).body
        assert ([each["id"] for each in second["incidents"]], second["cursor"]) == ([incident["id"]], None)
        for query, count in (
            ({"state": "open"}, 1),
            ({"state": "open,acknowledged"}, 2),
            ({"state": "recovered"}, 0),
            ({"agent": "writer"}, 2),
            ({"agent": "default"}, 0),
            ({"job": "digest"}, 2),
            ({"job": incident["jobId"]}, 2),
            ({"job": "report"}, 0),
        ):
            assert len((await ask("GET", "/incidents", **query)).body["incidents"]) == count, query

        switch.error = None
        await run(ask)
        states = [each["state"] for each in (await ask("GET", "/incidents")).body["incidents"]]
        assert states == ["recovered", "recovered"]
        late = first["incidents"][0]["id"]
        refused = await ask("POST", f"/incidents/{late}/ack")
        assert (refused.status, refused.code) == (409, "failed-precondition")
        assert "there is nothing to acknowledge" in refused.body["detail"]
        assert (await ask("POST", f"{path}/ack")).status == 200  # it was acknowledged before


@on_one_store
async def test_who_sees_and_acknowledges_an_incident(new_app: NewApp):
    async with failing(new_app) as (ask, _):
        (incident,) = (await ask("GET", "/incidents")).body["incidents"]
        path = f"/incidents/{incident['id']}"
        await ask("PUT", "/agents/other", {})
        own, other = await ask.new("agent", agent="writer"), await ask.new("agent", agent="other")
        assert (await own("GET", path)).body == {**incident, "may": []}
        assert len((await own("GET", "/incidents")).body["incidents"]) == 1
        refused = await own("POST", f"{path}/ack")
        assert (refused.status, refused.code) == (403, "permission-denied")
        assert "it takes the role admin or member" in refused.body["detail"]
        assert (await other("GET", "/incidents")).body["incidents"] == []
        for reply in (
            await other("GET", path),
            await other("POST", f"{path}/ack"),
            await other("GET", "/incidents", agent="writer"),
            await ask("GET", "/incidents", agent="nobody"),
            await ask("GET", "/incidents/01980000-0000-7000-8000-000000000000"),
            await ask("GET", "/incidents/x"),
            await ask("POST", "/incidents/x/ack"),
        ):
            assert (reply.status, reply.code) == (404, "not-found")
        await ask("PUT", "/api/workspaces/acme", {})
        stranger = await ask.new("admin", workspace="acme")
        assert (await stranger("GET", path)).status == 404
        elsewhere = f"/api/workspaces/acme{path}"
        for reply in (await stranger("GET", elsewhere), await stranger("POST", f"{elsewhere}/ack")):
            assert (reply.status, reply.code) == (404, "not-found")
        for body in ({"note": 5}, {"note": "x" * 1_001}, {"why": "x"}):
            assert (await ask("POST", f"{path}/ack", body)).code == "invalid-argument"
        assert (await ask("GET", "/incidents", state="broken")).code == "invalid-argument"
        assert (await ask("GET", "/incidents", cursor="x")).code == "invalid-argument"


@on_one_store
async def test_the_events_of_an_incident(new_app: NewApp):
    async with failing(new_app) as (ask, switch):
        (incident,) = (await ask("GET", "/incidents")).body["incidents"]
        await ask("POST", f"/incidents/{incident['id']}/ack", {"note": "known"})
        switch.error = None
        await run(ask)
        async with AsyncClient(ask.url, ask.key) as client:
            kinds = []
            types: tuple[EventType, ...] = ("incident.opened", "incident.acknowledged", "incident.recovered")
            async for event in client.events(types=types, after=0, agent="writer"):
                kinds.append(event.type)
                assert event.incident is not None
                assert (event.incident.id, event.job, event.run) == (incident["id"], "digest", None)
                if len(kinds) == 3:
                    break
    assert kinds == list(types)


async def test_the_client_and_the_embedded_app_return_the_same(new_app: NewApp):
    async with failing(new_app) as (ask, _), AsyncClient(ask.url, ask.key) as client:
        (found,) = await client.incidents.list(states=["open"], agent="writer", job="digest")
        assert [found] == await ask.app.incidents.list(states=["open"], agent="writer", job="digest")
        assert await client.incidents.get(found.id) == await ask.app.incidents.get(found.id) == found
        done = await client.incidents.ack(found.id, note="known")
        assert (done.state, done.note) == (IncidentState.ACKNOWLEDGED, "known")
        assert await ask.app.incidents.ack(found.id) == done
        await ask("DELETE", "/agents/writer/jobs/digest")
        closed = await client.incidents.get(found.id)
        assert (closed.state, closed.closed_reason) == (IncidentState.CLOSED, "job_deleted")
        for scheduler in (client, ask.app):
            with pytest.raises(NotFound):
                await scheduler.incidents.get("x")


async def test_a_replay_that_succeeds_recovers_and_a_discarded_dead_letter_does_not(new_app: NewApp):
    async with failing(new_app) as (ask, switch):
        second = await run(ask)
        await ask("POST", "/dead-letters/discard", {"ids": [second["id"]]})
        (incident,) = (await ask("GET", "/incidents")).body["incidents"]
        assert incident["state"] == "open"
        switch.error = None
        replayed = (await ask("POST", "/dead-letters/replay", {"ids": [incident["firstRunId"]]})).body
        assert replayed["replayed"] == [incident["firstRunId"]]

        async def recovered() -> dict[str, Any]:
            body: dict[str, Any] = (await ask("GET", f"/incidents/{incident['id']}")).body
            return body if body["state"] == "recovered" else {}

        assert (await eventually(recovered))["recoveredAt"]


@on_one_store
async def test_a_paused_job_closes_its_incident(new_app: NewApp):
    async with failing(new_app) as (ask, _):
        await ask("POST", "/agents/writer/jobs/digest/pause")
        (incident,) = (await ask("GET", "/incidents")).body["incidents"]
        assert (incident["state"], incident["closedReason"]) == ("closed", "job_disabled")
        await ask("POST", "/agents/writer/jobs/digest/resume")
        await run(ask)
        (again,) = (await ask("GET", "/incidents")).body["incidents"]
        assert (again["id"], again["state"], again["reopened"]) == (incident["id"], "open", 1)
