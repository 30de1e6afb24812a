"""Events of an MCP server start jobs: subscribe, receive, poll, renew and end; and what is refused."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.integration.conftest import QUICK, SELDOM, NewApp, on_one_store
from tests.support.api_client import JOBS, ApiClient, served
from tests.support.mcp_event_server import EVENT, KEY, McpEventServer, Subscription
from tests.support.waiting import eventually
from wakeful import Agent, Signal, Wakeful, on
from wakeful.engine import event_subscriber
from wakeful.engine.event_subscriber import MAX_CONCURRENT
from wakeful.job.policy import Backoff
from wakeful.launch import mcp_client
from wakeful.service.jobs import event_receiver
from wakeful.settings import Settings
from wakeful.settings.event_servers import EventServer
from wakeful.signal.mcp_events import read_event
from wakeful.store.rows import RunFilter, RunView
from wakeful.store.sql.event_sources import EventSource
from wakeful.values.json_value import Json

_JOB: dict[str, Json] = {
    "name": "triage",
    "on": {"server": "crm", "event": EVENT, "arguments": {"queue": "billing"}},
    "target": {"kind": "pull"},
    "overlapPolicy": "allow",
}


class World(NamedTuple):
    """A server of events, and replicas: one with HTTP, the others with the subscriptions."""

    crm: McpEventServer
    ask: ApiClient
    apps: list[Wakeful]

    async def save(self, **fields: Json) -> None:
        saved = await self.ask("PUT", f"{JOBS}/triage", {**_JOB, **fields})
        assert saved.status in (200, 201), saved

    async def runs(self, number: int = 0) -> list[RunView]:
        """Return the runs, oldest first, when there are so many."""

        async def find() -> list[RunView] | None:
            found = await self.ask.app.store.runs(RunFilter("default", limit=500))
            return found[::-1] if len(found) >= number else None

        found = await eventually(find) if number else await find()
        assert found is not None
        return found

    async def source(self, state: str = "active") -> EventSource:
        """Return the subscription, once it is in that state."""
        store = self.ask.app.store
        job = await store.job("default", "default", "triage")
        assert job is not None
        job_id = job.id

        async def find() -> EventSource | None:
            found = await store.event_source_of_job(job_id)
            return found if found is not None and found.state == state else None

        found = await eventually(find)
        assert found is not None
        return found

    async def subscribed(self) -> Subscription:
        """Return the subscription as the server has it."""
        source = await self.source()
        (found,) = [each for each in self.crm.subscriptions.values() if each.url.endswith(source.id)]
        return found

    async def incidents(self) -> list[dict[str, Json]]:
        found: list[dict[str, Json]] = (await self.ask("GET", "/incidents")).body["incidents"]
        return found


@asynccontextmanager
async def _world(new_app: NewApp, *, callbacks: bool, replicas: int = 1) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        crm = await stack.enter_async_context(McpEventServer().serving())
        front = await stack.enter_async_context(new_app())
        ask = await stack.enter_async_context(served(front))
        settings = Settings(
            event_servers={"crm": EventServer(crm.url, KEY)}, public_url=ask.url if callbacks else None
        )
        apps = [await stack.enter_async_context(new_app(settings=settings)) for _ in range(replicas)]
        yield World(crm, ask, apps)


@pytest.fixture
async def world(new_app: NewApp) -> AsyncIterator[World]:
    """Yield a world with callbacks."""
    async with _world(new_app, callbacks=True) as world:
        yield world


@pytest.fixture
async def polling(new_app: NewApp) -> AsyncIterator[World]:
    """Yield a world without a public URL."""
    async with _world(new_app, callbacks=False) as world:
        yield world


def _payloads(runs: list[RunView]) -> list[dict[str, Json]]:
    return [json.loads(run.payload or "null")["data"] for run in runs]


async def test_an_event_starts_the_job_with_the_event_as_payload(world: World):
    await world.save()
    await world.subscribed()
    event = world.crm.add_event(ticket=7)
    assert await world.crm.deliver(event) == 204
    (run,) = await world.runs(1)
    assert (run.trigger, run.triggered_by) == ("event", "event:crm")
    del event["cursor"]
    assert json.loads(run.payload or "") == event
    shown = (await world.ask("GET", f"/runs/{run.id}")).body
    assert (shown["trigger"], shown["triggeredByName"]) == ("event", "crm")
    assert (await world.source()).position == "1"
    state = (await world.ask("GET", f"{JOBS}/triage")).body["subscription"]
    assert (state["state"], state["delivery"], state["error"]) == ("active", "webhook", None)
    assert state["lastEventAt"]
    assert "whsec_" not in json.dumps(state)


async def test_jobs_do_not_fire_each_other_for_ever_by_the_events_of_their_own_server(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(event_receiver, "MAX_CHAIN", 2)
    async with new_app() as front, served(front) as ask:
        settings = Settings(
            event_servers={"self": EventServer(f"{ask.url}/mcp", ask.key)}, public_url=ask.url
        )
        async with new_app(settings=settings) as app:
            world = World(McpEventServer(), ask, [app])
            on: Json = {"server": "self", "event": "run.finished"}
            await world.save(on=on, target={"kind": "echo"})
            await ask("PUT", f"{JOBS}/other", {"schedule": SELDOM, "target": {"kind": "echo"}})
            await world.source()
            for number in (1, 2):
                await ask("POST", f"{JOBS}/other/run")

                async def are_over(number: int = number) -> bool:
                    runs = await world.runs()
                    own = [run for run in runs if run.job_name == "triage" and run.state == "succeeded"]
                    return len(own) >= 2 * number

                await eventually(are_over)
            names = [run.job_name for run in await world.runs() if run.job_name in ("triage", "other")]
            assert sorted(names) == ["other"] * 2 + ["triage"] * 4


async def test_an_event_that_arrives_again_or_at_once_twice_starts_one_run(world: World):
    await world.save()
    await world.subscribed()
    events = [world.crm.add_event(ticket=number) for number in range(6)]
    for event in reversed(events):  # out of order
        answers = await asyncio.gather(world.crm.deliver(event), world.crm.deliver(event))
        assert 204 in answers, answers
        assert set(answers) <= {204, 409}
    assert await world.crm.deliver(events[0]) == 204
    assert (await world.source()).position == "1"
    for event in events:  # the server sends again what follows the cursor that it was given
        assert await world.crm.deliver(event) == 204
    assert (await world.source()).position == "6", "else it would send them for ever"
    assert sorted(str(data) for data in _payloads(await world.runs())) == sorted(
        str(event["data"]) for event in events
    )


async def test_what_is_not_signed_old_or_of_another_subscription_is_refused(world: World):
    await world.save()
    to = await world.subscribed()
    event = world.crm.add_event(ticket=1)
    now_s, post = int(time.time()), world.crm.post
    assert (await post(to, event, "evt_1", secret=b"x" * 32))[0] == 401
    assert (await post(to, event, "evt_1", headers={"webhook-signature": "v1,"}))[0] == 401
    assert (await post(to, event, "evt_1", sent_s=now_s - 301))[0] == 401, "replayed later"
    assert (await post(to, event, "evt_2"))[0] == 422, "the id of another event"
    assert (await post(to, event, "evt_1", headers={"x-mcp-subscription-id": "sub_other"}))[0] == 422
    assert (await post(to, {**event, "name": "other"}, "evt_1"))[0] == 422
    assert (await post(to, {**event, "data": []}, "evt_1"))[0] == 422
    assert (await post(to, {**event, "data": {"cost": math.nan}}, "evt_1"))[0] == 422
    assert (await post(to, {**event, "cursor": "\x00"}, "evt_1"))[0] == 422
    assert (await post(to, {**event, "data": {"text": "x" * 300_000}}, "evt_1"))[0] == 413
    challenge = {"type": "verification", "challenge": "c"}
    assert (await post(to, challenge, "msg_1", secret=b"x" * 32))[0] == 401
    assert await post(to, challenge, "msg_1") == (200, '{"challenge":"c"}')
    renewed = replace(to, id="sub_new")  # the server gives a new id when it is asked again
    assert await post(renewed, challenge, "msg_2") == (200, '{"challenge":"c"}')
    other = to.url.rpartition("/")[0] + "/01890000-0000-7000-8000-000000000000"
    assert (await post(Subscription("", other, to.secret, None, {}), challenge, "msg_1"))[0] == 410
    assert not await world.runs()


async def test_events_are_polled_without_a_public_url(polling: World):
    polling.crm.add_event(before="the subscription")
    await polling.save()
    await polling.source()
    for number in range(60):  # more than one page
        polling.crm.add_event(number=number)
    runs = await polling.runs(60)
    assert _payloads(runs) == [{"number": number} for number in range(60)]
    assert polling.crm.methods.count("events/subscribe") == 0


async def test_a_polled_event_that_cannot_be_read_does_not_hold_up_others(polling: World):
    await polling.save()
    await polling.source()
    for data in ({"number": 0}, {"text": "\ud800"}, {"text": "x" * 300_000}, {"number": 1}):
        polling.crm.add_event(**data)
    runs = await polling.runs(4)
    assert _payloads([run for run in runs if run.reason is None]) == [{"number": 0}, {"number": 1}]
    (gap,) = await polling.incidents()
    assert (gap["cause"], gap["failedRuns"]) == ("event_gap", 2)


async def test_a_polled_event_that_cannot_start_the_job_says_why(polling: World):
    class Desk(Agent):
        name = "default"

        @on("wakeful.job")
        async def take(self, signal: Signal, ctx: object) -> None:
            """Take the event."""

    polling.apps[0].agent(Desk)
    await polling.save(target={"kind": "agent", "instance": "eu"})
    await polling.source()
    polling.crm.add_event(number=0)
    await polling.runs(1)  # it adds the instance
    await polling.apps[0].agents.stop("default", "eu")
    polling.crm.add_event(number=1)

    async def shows(error: str) -> bool:
        return error in str((await polling.source()).error)

    await eventually(lambda: shows("instance 'eu' of agent 'default' is stopped"))
    await polling.apps[0].agents.start("default", "eu")
    await polling.runs(2)
    await eventually(lambda: shows("None"))


async def test_a_server_that_answers_every_poll_with_nonsense_opens_one_incident(polling: World):
    answer = {"events": [{"eventId": 7}, 8], "truncated": True, "hasMore": True, "nextPollMs": 0}
    polling.crm._poll = lambda **given: {**answer, "cursor": "1"}  # type: ignore[method-assign]
    await polling.save()
    await eventually(lambda: polling.crm.methods.count("events/poll") > 3)
    (gap,) = await polling.incidents()
    assert (gap["cause"], gap["failedRuns"]) == ("event_gap", 5), (
        "two at the start, and three after the cursor"
    )


@pytest.mark.parametrize("events", [[], [7]], ids=["no event", "an event that cannot be read"])
async def test_a_server_that_always_has_more_of_nothing_is_not_polled_at_once_again(
    polling: World, events: list[object]
):
    polls: list[float] = []

    def poll(**given: object) -> dict[str, Any]:
        polls.append(time.monotonic())
        return {"events": events, "hasMore": True, "nextPollMs": 0, "cursor": str(len(polls))}

    polling.crm._poll = poll  # type: ignore[method-assign, assignment]
    await polling.save()
    await eventually(lambda: len(polls) > 2)
    assert polls[2] - polls[1] > 0.9


@on_one_store
async def test_a_server_that_does_not_answer_holds_up_no_others(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(mcp_client, "TIMEOUT_S", 0.5)
    requests: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda reader, writer: requests.append(writer), "127.0.0.1", 0)
    async with silent, McpEventServer().serving() as crm, new_app() as front, served(front) as ask:
        url = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}/mcp"
        for number in range(60):
            job = {**_JOB, "name": f"job-{number}", "on": {"server": "silent", "event": EVENT}}
            assert (await ask("PUT", f"{JOBS}/job-{number}", job)).status == 201
        servers = {"crm": EventServer(crm.url, KEY), "silent": EventServer(url)}
        async with new_app(settings=Settings(event_servers=servers)) as app:
            world = World(crm, ask, [app])
            await world.save()
            await world.source()
        assert len(requests) <= 2 * MAX_CONCURRENT, "one after another waits for the silent server"
        failures = 0
        for number in range(60):
            row = await front.store.job("default", "default", f"job-{number}")
            source = None if row is None else await front.store.event_source_of_job(row.id)
            failures += 0 if source is None else source.failures
        assert failures <= 2 * MAX_CONCURRENT, "a request that was not sent counts as a failure"
        for writer in requests:
            writer.close()


async def test_an_event_without_webhook_delivery_is_polled(world: World):
    world.crm.modes = {"poll"}
    await world.save()
    assert (await world.source()).mode == "poll"
    world.crm.add_event(ticket=1)
    await world.runs(1)


async def test_a_replica_that_does_not_have_the_server_yet_leaves_it_to_the_others(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(event_subscriber, "MANY_FAILURES", 1_000_000)
    monkeypatch.setattr(event_subscriber, "_BACKOFF", Backoff(base_ms=100, max_ms=500))
    settings = Settings(event_servers={"erp": EventServer("http://127.0.0.1:9/mcp")})
    async with new_app(settings=settings) as old, served(old) as ask, McpEventServer().serving() as crm:
        world = World(crm, ask, [old])
        await world.save()

        async def has_failed() -> bool:
            return (await world.source("pending")).failures > 0

        await eventually(has_failed)
        async with new_app(settings=Settings(event_servers={"crm": EventServer(crm.url, KEY)})) as new:
            world.apps.append(new)
            await world.source()
        assert not await world.incidents()


@pytest.mark.parametrize("fault", ["cut", "http 503", "wrong challenge", "stream"])
async def test_a_request_that_fails_is_repeated(world: World, fault: str):
    world.crm.faults = [fault]
    await world.save()
    await world.subscribed()
    assert world.crm.methods.count("events/subscribe") == (1 if fault == "stream" else 2)
    assert not await world.incidents()


async def test_a_subscription_is_renewed_in_time_and_ends_with_its_job(world: World):
    world.crm.grant_ms = 1_500
    await world.save()
    first = await world.subscribed()
    await eventually(lambda: first.refreshes >= 2)

    changed: Json = {"server": "crm", "event": EVENT, "arguments": {"queue": "sales"}}
    await world.save(on=changed)
    await eventually(lambda: world.crm.ended == [first.url])
    second = await world.subscribed()
    assert (second.arguments, second.url == first.url) == ({"queue": "sales"}, False)

    assert (await world.ask("POST", f"{JOBS}/triage/pause")).status == 200
    await eventually(lambda: second.url in world.crm.ended)
    assert (await world.crm.post(second, {"type": "verification", "challenge": "c"}, "msg"))[0] == 410
    assert (await world.ask("POST", f"{JOBS}/triage/resume")).status == 200
    third = await world.subscribed()
    assert (await world.ask("DELETE", f"{JOBS}/triage")).status in (200, 204)
    await eventually(lambda: third.url in world.crm.ended)
    assert not world.crm.subscriptions


async def test_a_secret_that_cannot_be_decrypted_any_more_opens_an_incident(world: World):
    world.crm.grant_ms = 1_500
    await world.save()
    await world.subscribed()
    store = world.ask.app.store

    async def spoil(db: Any, events: object) -> None:
        await store._driver.session(db).execute("UPDATE event_sources SET secret = $1", b"of another key")

    await store._driver.write(spoil)
    assert "pause and resume the job" in ((await world.source("failed")).error or "")
    assert [each["cause"] for each in await world.incidents()] == ["event_refused"]
    for action in ("pause", "resume"):
        assert (await world.ask("POST", f"{JOBS}/triage/{action}")).status == 200
        await eventually(lambda: bool(world.crm.ended))
    await world.subscribed()


async def test_lost_events_and_the_end_of_a_subscription_open_incidents(world: World):
    await world.save()
    to = await world.subscribed()
    for _ in range(2):  # the second one is a repetition
        assert (await world.crm.post(to, {"type": "gap", "cursor": "9"}, "msg_gap_1"))[0] == 204
    (gap,) = await world.incidents()
    assert (gap["cause"], gap["failedRuns"]) == ("event_gap", 1)
    assert (await world.source()).position == "9"
    ended = {"type": "terminated", "error": {"code": -32012, "message": "access was revoked"}}
    assert (await world.crm.post(to, ended, "msg_terminated_1"))[0] == 204
    assert {each["cause"] for each in await world.incidents()} == {"event_gap", "event_ended"}
    failed = await world.source("failed")
    assert "access was revoked" in (failed.error or "")
    assert [run.reason for run in await world.runs()] == ["event_gap", "event_ended"]


async def test_polling_behind_the_retention_of_the_server_opens_an_incident(polling: World):
    await polling.save()
    await polling.source()
    for number in range(3):
        polling.crm.add_event(number=number)
    polling.crm.first = 2
    runs = await polling.runs(2)
    assert {run.reason for run in runs} == {None, "event_gap"}
    assert [each["cause"] for each in await polling.incidents()] == ["event_gap"]


async def test_a_refusal_opens_an_incident_at_once(world: World):
    await world.save(on={"server": "crm", "event": "no.such"})
    failed = await world.source("failed")
    assert "there is no event no.such" in (failed.error or "")
    assert [each["cause"] for each in await world.incidents()] == ["event_refused"]


async def test_a_flood_is_bounded_by_the_overlap_policy(world: World):
    await world.save(overlapPolicy="queue_one")
    await world.subscribed()
    events = [world.crm.add_event(number=number) for number in range(12)]
    for event in events:
        assert await world.crm.deliver(event) == 204
    runs = await world.runs()
    assert _payloads([run for run in runs if run.state == "pending"]) == [{"number": 11}]
    assert len(runs) == 12


async def test_one_of_two_replicas_subscribes(new_app: NewApp):
    async with _world(new_app, callbacks=True, replicas=2) as world:
        await world.save()
        await world.subscribed()
        await asyncio.sleep(0)
        for app in world.apps:
            assert app.alive
        assert len(world.crm.subscriptions) == 1
        assert world.crm.methods.count("events/subscribe") == 1


async def test_a_replica_that_dies_before_its_answer_repeats_nothing_that_has_an_effect(new_app: NewApp):
    """The event is stored, and the answer of the poll never counted: another replica polls it again."""
    async with _world(new_app, callbacks=False) as world:
        await world.save()
        source = await world.source()
        world.crm.add_event(ticket=1)
        await world.runs(1)
        await eventually(lambda: world.crm.methods.count("events/poll") > 2)
        store = world.apps[0].store
        (again,) = [await store.event_source(source.id)]
        assert again is not None
        event = read_event(world.crm.events[0])
        assert not await world.apps[0].services.jobs.events.start(again, event)
        assert len(await world.runs()) == 1


@on_one_store
async def test_a_wakeful_subscribes_to_the_time_of_another_one(new_app: NewApp, tmp_path: Path):
    other = Wakeful(
        f"sqlite:///{tmp_path / 'other.db'}", secret_key="key", allow_private_targets=True, config=QUICK
    )
    async with other, served(other) as there, new_app() as front, served(front) as ask:
        server = EventServer(f"{there.url}/mcp", there.key)
        settings = Settings(event_servers={"crm": server}, public_url=ask.url)
        async with new_app(settings=settings) as app:
            world = World(McpEventServer(), ask, [app])
            arguments: dict[str, Json] = {"schedule": "every 1s", "message": "Look around."}
            await world.save(on={"server": "crm", "event": "schedule.tick", "arguments": arguments})
            source = await world.source()
            assert source.mode == "webhook"
            runs = await world.runs(3)
            assert [data["number"] for data in _payloads(runs)[:3]] == [1, 2, 3]
            assert (await ask("DELETE", f"{JOBS}/triage")).status in (200, 204)

            async def ended() -> bool:
                row = await other.store.subscription(source.remote_id or "")
                return row is not None and row.reason in ("unsubscribed", "gone")  # an event met the end

            await eventually(ended)


async def test_the_page_of_a_job_shows_its_subscription(world: World):
    world.crm.faults = ["http 500"]
    await world.save()
    to = await world.subscribed()
    page = await world.ask("GET", "/workspaces/default/agents/default/jobs/triage")
    assert "Subscription to the event: active, by webhook" in page.body
    ended = {"type": "terminated", "error": {"code": 1, "message": "<b>gone</b>"}}
    assert (await world.crm.post(to, ended, "msg_1"))[0] == 204
    page = await world.ask("GET", "/workspaces/default/agents/default/jobs/triage")
    assert "failed, by webhook" in page.body
    assert "&lt;b&gt;gone&lt;/b&gt;" in page.body


async def test_an_agent_that_is_no_longer_allowed_gets_no_events(world: World, new_app: NewApp):
    await world.save()
    to = await world.subscribed()
    servers = {"crm": EventServer(world.crm.url, KEY, agents=("support",))}
    async with new_app() as app:
        app.services.jobs.events._servers = servers
        async with served(app) as other:
            to.url = other.url + to.url.removeprefix(world.ask.url)
            assert (await world.crm.post(to, world.crm.add_event(ticket=1), "evt_1"))[0] == 403
    assert not await world.runs()
