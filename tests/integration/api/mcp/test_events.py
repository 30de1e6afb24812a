"""MCP events that are served: subscriptions, their callbacks, and the delivery of ticks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

import pytest
from aiohttp import web

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import ApiClient, served
from tests.support.receiver import Receiver
from tests.support.waiting import eventually
from wakeful import Wakeful
from wakeful.launch.secrets import format_secret, is_signed
from wakeful.service.agents import subscriptions
from wakeful.service.agents.subscriptions import SubscriptionRequest
from wakeful.service.auth.access import LOCAL, Principal
from wakeful.store.changelog import ChangeRow
from wakeful.values.clock import SystemClock

pytest.importorskip("mcp")

VERSION = "2026-07-28"
NOWHERE = "http://127.0.0.1:9/"
SECRET = b"s" * 32


class Subscriber:
    """A client of /mcp and its callback."""

    def __init__(self, client: ApiClient, receiver: Receiver) -> None:
        self.client = client
        self.receiver = receiver
        self.events: list[dict[str, Any]] = []
        self.ends: list[dict[str, Any]] = []
        self.status = 200
        self.challenge: str | None = None
        self.agent = ""
        receiver.answer = self.answer

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = self.receiver.bodies[-1]
        headers = {name.lower(): value for name, value in request.headers.items()}
        assert is_signed([SECRET], headers, body, SystemClock().now_ms())
        assert headers["x-mcp-subscription-id"].startswith("sub_")
        message = json.loads(body)
        if message.get("type") == "verification":
            return web.json_response({"challenge": self.challenge or message["challenge"]})
        if message.get("type") == "terminated":
            ids = {"id": headers["webhook-id"], "to": headers["x-mcp-subscription-id"]}
            self.ends.append({**message["error"], **ids})
            return web.Response(status=503 if len(self.ends) == 1 else 204)
        assert headers["webhook-id"] == message["eventId"]
        if self.status == 200:
            self.events.append(message)
        return web.Response(status=self.status)

    async def call(self, method: str, client: ApiClient | None = None, **params: object) -> dict[str, Any]:
        meta = {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": VERSION,
            "mcp-method": method,
            "content-type": "application/json",
        }
        if isinstance(params.get("name"), str):
            headers["mcp-name"] = str(params["name"])
        caller = client or self.client
        own = {"Authorization": f"Bearer {caller.key}"}
        async with caller.session.post(
            f"{caller.url}/mcp",
            params={"agent": self.agent},
            data=json.dumps(request),
            headers={"content-type": "application/json", **headers, **own},
        ) as response:
            answer: dict[str, Any] = await response.json(content_type=None)
            return answer

    async def result(self, method: str, **params: object) -> dict[str, Any]:
        answer = await self.call(method, None, **params)
        assert "result" in answer, answer
        found: dict[str, Any] = answer["result"]
        return found

    def tick(self, **given: object) -> dict[str, Any]:
        return {
            "name": "schedule.tick",
            "arguments": {"schedule": "every 1s", "message": "Look around."},
            "delivery": {"mode": "webhook", "url": self.receiver.url, "secret": format_secret(SECRET)},
            **given,
        }


@pytest.fixture
async def subscriber(new_app: NewApp, receiver: Receiver) -> AsyncIterator[Subscriber]:
    async with new_app() as app, served(app) as client:
        yield Subscriber(client, receiver)


async def test_a_subscription_to_time_delivers_ticks_in_order_until_it_ends(subscriber: Subscriber) -> None:
    discovered = await subscriber.result("server/discover")
    assert discovered["capabilities"]["events"] == {}
    assert "tools" in discovered["capabilities"]
    (tick,) = [e for e in (await subscriber.result("events/list"))["events"] if e["name"] == "schedule.tick"]
    assert tick["delivery"] == ["webhook", "poll"]
    assert tick["inputSchema"]["required"] == ["schedule"]

    made = await subscriber.result("events/subscribe", **subscriber.tick(ttlMs=None))
    assert (made["refreshBefore"], made["truncated"]) == (None, False)
    await eventually(lambda: len(subscriber.events) >= 3)
    again = await subscriber.result("events/subscribe", **subscriber.tick(ttlMs=60_000))
    assert again["id"] == made["id"]
    assert again["refreshBefore"] is not None
    await subscriber.result("events/unsubscribe", **subscriber.tick())
    events = [*subscriber.events]
    assert [event["data"]["number"] for event in events] == list(range(1, len(events) + 1))
    for event, following in zip(events, events[1:], strict=False):
        assert event["data"]["nextAt"] == following["data"]["scheduledAt"] == following["timestamp"]
    assert {event["data"]["message"] for event in events} == {"Look around."}
    assert len({event["eventId"] for event in events}) == len(events)

    store = subscriber.client.app.store
    row = await store.subscription(made["id"])
    assert row is not None
    assert (row.reason, await store.job_by_id(row.job_id)) == ("unsubscribed", None)
    error = (await subscriber.call("events/unsubscribe", **subscriber.tick()))["error"]
    assert error["code"] == -32011
    entries = await store.audit("default")
    assert {"subscription.create", "subscription.refresh", "subscription.end"} <= {e.action for e in entries}


async def test_a_callback_that_is_gone_ends_its_subscription(subscriber: Subscriber) -> None:
    subscriber.status = 410
    made = await subscriber.result("events/subscribe", **subscriber.tick())
    store = subscriber.client.app.store

    async def ended() -> bool:
        row = await store.subscription(made["id"])
        return row is not None and row.reason == "gone"

    await eventually(ended)
    sent = len(subscriber.receiver.bodies)
    assert sent == 2  # the verification and one event
    assert (await subscriber.result("events/subscribe", **subscriber.tick()))["id"] == made["id"]


@on_one_store
async def test_wrong_requests_are_refused_with_the_codes_of_the_protocol(subscriber: Subscriber) -> None:
    async def refused(**given: object) -> tuple[int, str]:
        error = (await subscriber.call("events/subscribe", **subscriber.tick(**given)))["error"]
        return error["code"], error["message"]

    delivery: Mapping[str, Any] = subscriber.tick()["delivery"]
    invalid = -32602
    assert (await refused(name="mail.received"))[0] == -32011
    assert (await refused(arguments={}))[0] == invalid
    assert "colour" in (await refused(arguments={"schedule": "every 1h", "colour": "red"}))[1]
    assert (await refused(arguments={"schedule": "every morning or so"}))[0] == invalid
    assert (await refused(delivery={**delivery, "mode": "push"}))[0] == invalid
    assert (await refused(delivery={**delivery, "secret": "whsec_c2hvcnQ="}))[0] == invalid
    assert "https" in (await refused(delivery={**delivery, "url": "http://example.com/"}))[1]
    assert (await refused(delivery={**delivery, "url": "https://me:pw@example.com/"}))[0] == invalid
    assert (await refused(ttlMs=-1))[0] == invalid
    subscriber.challenge = "another"
    assert (await refused())[0] == -32015
    subscriber.receiver.answers(500)
    assert (await refused())[0] == -32015
    assert await subscriber.client.app.store.subscriptions("default", None) == []


async def test_an_unusable_text_is_refused_and_only_who_writes_jobs_adds_an_agent(
    subscriber: Subscriber,
) -> None:
    member, invalid = await subscriber.client.new("member"), -32602
    delivery = subscriber.tick()["delivery"]
    finished: dict[str, Any] = {"name": "run.finished", "delivery": delivery}

    async def code(agent: str = "", client: ApiClient | None = None, **given: object) -> int | None:
        subscriber.agent = agent
        answer = await subscriber.call("events/subscribe", client, **given)
        found: int | None = answer.get("error", {}).get("code")
        return found

    for agent in ("No name!", "x" * 300, "a/b"):
        assert await code(agent, **subscriber.tick()) == await code(agent, **finished) == invalid
    for text in ("\ud800", "a\ud800b"):
        assert await code(**finished, arguments={"job": text}) == invalid
        assert await code(**subscriber.tick(arguments={"schedule": {"kind": text}})) == invalid
        assert await code(**{**finished, "delivery": {**delivery, "url": delivery["url"] + text}}) == invalid
    assert await code("nobody", member, **finished) == await code("nobody", **finished) == -32011
    assert [each.name for each in await subscriber.client.app.store.agents("default")] == ["default"]
    assert await code("writer", **subscriber.tick(arguments={"schedule": "0 9 * * *"})) is None
    assert await code("writer", member, **finished) is None


@pytest.mark.parametrize(
    "change", [{"active": False}, {"approval": "required"}, {"selfScheduling": {"outsideRuns": False}}]
)
async def test_an_agent_that_changes_while_its_callback_is_verified_is_checked_again(
    subscriber: Subscriber, change: dict[str, Any]
) -> None:
    store, verify = subscriber.client.app.store, subscriber.answer
    await subscriber.client("PUT", "/agents/default", {"deliverTo": []})
    agent = await subscriber.client.new("agent", agent="default")
    await subscriber.client("PUT", "/agents/default", {"target": {"kind": "webhook", "url": NOWHERE}})

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        await subscriber.client("PATCH", "/agents/default", change)
        return await verify(request)

    subscriber.receiver.answer = answer
    caller = subscriber.client if "active" in change else agent
    refused = (await subscriber.call("events/subscribe", caller, **subscriber.tick()))["error"]
    assert refused["code"] == (-32012 if "selfScheduling" in change else -32602), refused
    assert await store.subscriptions("default", None) == []
    assert len(subscriber.receiver.bodies) == 1, "it is verified once"


@on_one_store
async def test_only_the_key_that_subscribed_can_end_the_subscription(subscriber: Subscriber) -> None:
    made = await subscriber.result("events/subscribe", **subscriber.tick(arguments={"schedule": "0 9 * * *"}))
    request = subscriber.tick(arguments={"schedule": "0 9 * * *"})
    for role, more in (("admin", {}), ("member", {}), ("agent", {"agent": "default"})):
        other = await subscriber.client.new(role, **more)
        error = (await subscriber.call("events/unsubscribe", other, **request))["error"]
        assert error["code"] == -32011
    member = await subscriber.client.new("member")
    assert (await subscriber.call("events/subscribe", member, **request))["error"]["code"] == -32012
    agent = await subscriber.client.new("agent", agent="default")
    theirs = (await subscriber.call("events/subscribe", agent, **request))["result"]["id"]
    assert theirs != made["id"]
    name = f"wakeful-events-{made['id'].removeprefix('sub_')}"
    assert (await subscriber.client("DELETE", f"/agents/default/jobs/{name}")).code == "failed-precondition"
    row = await subscriber.client.app.store.subscription(made["id"])
    assert row is not None
    assert row.is_active


@on_one_store
async def test_a_client_that_initializes_learns_of_events_and_lists_them(ask: ApiClient) -> None:
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    found = []
    for method, params in (("initialize", about), ("events/list", {})):
        async with ask.session.post(
            f"{ask.url}/mcp",
            json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params},
            headers={
                "accept": "application/json, text/event-stream",
                "authorization": f"Bearer {ask.key}",
                "mcp-protocol-version": "2025-06-18",
            },
        ) as response:
            found.append((await response.json())["result"])
    assert found[0]["capabilities"]["events"] == {}
    assert "schedule.tick" in [event["name"] for event in found[1]["events"]]


@on_one_store
async def test_private_callbacks_are_refused(new_app: NewApp, receiver: Receiver) -> None:
    async with new_app(allow_private_targets=False) as app, served(app) as client:
        subscriber = Subscriber(client, receiver)
        for url in (receiver.url, "https://127.0.0.1/", "https://10.0.0.1/", "https://localhost/x"):
            delivery = {"mode": "webhook", "url": url, "secret": format_secret(SECRET)}
            answer = await subscriber.call("events/subscribe", **subscriber.tick(delivery=delivery))
            assert answer["error"]["code"] == -32602
        assert receiver.bodies == []


async def test_what_happens_to_runs_is_delivered_in_order_while_the_callback_fails(
    subscriber: Subscriber,
) -> None:
    app = subscriber.client.app

    @app.function()
    async def work(fails: bool) -> str:
        if fails:
            raise ValueError("the disk is full")
        return "done"

    for name, label in (("one", "ops"), ("two", "dev")):
        await app.jobs.create(
            name,
            schedule=SELDOM,
            target={"kind": "function", "name": "work", "arguments": True},
            labels={"team": label},
            max_attempts=1,
        )

    delivery = subscriber.tick()["delivery"]
    for event, arguments in (
        ("run.finished", {"label": "team=ops"}),
        ("incident.opened", {"agent": "default"}),
        ("incident.recovered", {}),
    ):
        await subscriber.result("events/subscribe", name=event, arguments=arguments, delivery=delivery)
    subscriber.status = 503
    ids: list[str] = []
    for name, fails in (("one", True), ("two", False), ("one", False), ("one", False)):
        run = await app.jobs.run(name, payload={"fails": fails})
        assert run is not None
        if name == "one":
            ids.append(run.id)
        await eventually(partial(_is_over, app, run.id))
    subscriber.status = 200
    await eventually(lambda: len(subscriber.events) >= 5)
    finished = [event["data"] for event in subscriber.events if event["name"] == "run.finished"]
    assert [data["runId"] for data in finished] == ids
    assert [data["state"] for data in finished] == ["failed", "succeeded", "succeeded"]
    others = [event["name"] for event in subscriber.events if event["name"] != "run.finished"]
    assert sorted(others) == ["incident.opened", "incident.recovered"]
    assert len({event["eventId"] for event in subscriber.events}) == 5


async def _is_over(app: Wakeful, run_id: str) -> bool:
    return (await app.runs.get(run_id)).finished_at is not None


async def test_events_are_polled_after_a_cursor_and_a_gap_is_reported(subscriber: Subscriber) -> None:
    app = subscriber.client.app

    async def poll(cursor: object, client: ApiClient | None = None, **given: object) -> dict[str, Any]:
        answer = await subscriber.call("events/poll", client, name="job.changed", cursor=cursor, **given)
        content: dict[str, Any] = answer.get("result") or answer["error"]
        return content

    begun = await poll(None)
    assert (begun["events"], begun["hasMore"], begun["truncated"]) == ([], False, False)
    names = [f"job-{number}" for number in range(7)]
    for name in names:
        await app.jobs.create(name, schedule=SELDOM)
    await subscriber.client("PUT", "/agents/writer", {})
    await subscriber.client("POST", "/agents/writer/jobs", {"name": "elsewhere", "schedule": SELDOM})
    found: list[str] = []
    cursor, pages = begun["cursor"], 0
    page: dict[str, Any] = {"hasMore": True}
    while page["hasMore"]:
        page = await poll(cursor, maxEvents=3)
        assert (len(page["events"]) <= 3, page["truncated"]) == (True, False)
        found += [event["data"]["job"] for event in page["events"]]
        cursor, pages = page["cursor"], pages + 1
    assert (found, pages) == ([*names, "elsewhere"], 3)
    assert (await poll(cursor))["events"] == []
    again = await poll(begun["cursor"], arguments={"job": "job-3"})
    assert [event["data"]["job"] for event in again["events"]] == ["job-3"]
    writer = await subscriber.client.new("agent", agent="writer")
    own = await poll(begun["cursor"], writer)
    assert [event["data"]["job"] for event in own["events"]] == ["elsewhere"]
    assert (await poll(begun["cursor"], writer, arguments={"agent": "default"}))["code"] == -32011
    assert (await poll("x"))["code"] == (await poll(cursor, maxEvents=0))["code"] == -32602

    async def is_pruned() -> bool:  # what is not counted yet stays
        await app.store.prune_changes(app.store.clock.now_ms() + 1, 1_000)
        return (await poll(begun["cursor"]))["truncated"] is True

    await eventually(is_pruned)
    assert (await poll("99999999"))["truncated"] is True


async def test_a_subscription_that_lapsed_gets_what_happened_since_its_cursor(
    subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, delivery = subscriber.client.app, subscriber.tick()["delivery"]
    request: dict[str, Any] = {"name": "job.changed", "arguments": {}, "delivery": delivery}
    made = await subscriber.result("events/subscribe", **request)
    await app.jobs.create("one", schedule=SELDOM)
    await eventually(lambda: len(subscriber.events) == 1)
    cursor = subscriber.events[0]["cursor"]
    await subscriber.result("events/unsubscribe", **request)
    for name in ("two", "three"):
        await app.jobs.create(name, schedule=SELDOM)
    again = await subscriber.result("events/subscribe", **request, cursor=cursor)
    assert (again["id"], again["truncated"]) == (made["id"], False)
    await app.jobs.create("four", schedule=SELDOM)
    await eventually(lambda: len(subscriber.events) >= 4)
    assert [event["data"]["job"] for event in subscriber.events] == ["one", "two", "three", "four"]
    assert int(cursor) <= int(again["cursor"]) < int(subscriber.events[1]["cursor"])
    # While it is active, the cursor changes nothing.
    same = await subscriber.result("events/subscribe", **request, cursor=cursor)
    assert (same["cursor"], same["truncated"]) == (cursor, False)
    await subscriber.result("events/unsubscribe", **request)
    young = await subscriber.result("events/subscribe", **request, cursor=cursor, maxAgeMs=1)
    assert young["truncated"] is True
    await subscriber.result("events/unsubscribe", **request)
    assert (await subscriber.result("events/subscribe", **request, cursor="99999999"))["truncated"] is True
    assert len(subscriber.events) == 4
    await subscriber.result("events/unsubscribe", **request)
    monkeypatch.setattr(subscriptions, "_MOST_REPLAYED", 2)
    assert (await subscriber.result("events/subscribe", **request, cursor=cursor))["truncated"] is True
    await eventually(lambda: len(subscriber.events) == 6)
    assert [event["data"]["job"] for event in subscriber.events][4:] == ["two", "three"]


async def test_a_subscription_that_lapsed_is_made_although_events_go_on_while_the_old_ones_are_read(
    subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, delivery = subscriber.client.app, subscriber.tick()["delivery"]
    request: dict[str, Any] = {"name": "job.changed", "arguments": {}, "delivery": delivery}
    cursor = (await subscriber.result("events/subscribe", **request))["cursor"]
    await subscriber.result("events/unsubscribe", **request)
    names = ["job-0"]
    await app.jobs.create(names[0], schedule=SELDOM)
    read = app.store.changes

    async def go_on(after: int, limit: int = 20, *, finished_only: bool = False) -> list[ChangeRow]:
        rows = await read(after, limit, finished_only=finished_only)
        task = asyncio.current_task()
        assert task is not None
        if after == int(cursor) and task.get_name() != "wakeful-event_feeder":
            names.append(f"job-{len(names)}")
            await app.jobs.create(names[-1], schedule=SELDOM)
            last = await app.store.last_change()

            async def is_fed() -> bool:
                position = await app.store.event_position()
                return position is not None and position.change >= last

            await eventually(is_fed)
        return rows

    monkeypatch.setattr(app.store, "changes", go_on)
    assert (await subscriber.result("events/subscribe", **request, cursor=cursor))["truncated"] is False
    await eventually(lambda: len(subscriber.events) >= len(names))
    assert [event["data"]["job"] for event in subscriber.events] == names == ["job-0", "job-1"]


async def test_ticks_are_polled_and_replayed_with_their_numbers(subscriber: Subscriber) -> None:
    now_ms = subscriber.client.app.store.clock.now_ms()
    begun_ms = (now_ms - 600_000) // 60_000 * 60_000 + 30_000  # nine or ten minutes ago
    wake = {"schedule": "* * * * *", "message": "Look around."}
    request: dict[str, Any] = {"name": "schedule.tick", "arguments": wake}
    page = await subscriber.result("events/poll", **request, cursor=f"{begun_ms}.{begun_ms}", maxEvents=4)
    first = page["events"]
    assert ([event["data"]["number"] for event in first], page["hasMore"]) == ([1, 2, 3, 4], True)
    assert first[0]["data"]["message"] == "Look around."
    rest = await subscriber.result("events/poll", **request, cursor=page["cursor"])
    assert rest["events"][0]["data"]["scheduledAt"] == first[-1]["data"]["nextAt"]
    assert (rest["events"][0]["data"]["number"], rest["hasMore"], rest["truncated"]) == (5, False, False)
    assert rest["nextPollMs"] <= 60_000
    assert (await subscriber.result("events/poll", **request, cursor=rest["cursor"]))["events"] == []
    old = f"{begun_ms - 30 * 86_400_000}.{begun_ms - 30 * 86_400_000}"
    assert (await subscriber.result("events/poll", **request, cursor=old))["truncated"] is True
    # Words such as 'in 20m' count from when it began.
    soon = {**request, "arguments": {"schedule": "in 9m"}}
    found = await subscriber.result("events/poll", **soon, cursor=f"{begun_ms}.{begun_ms}")
    assert [event["data"]["nextAt"] for event in found["events"]] == [None]
    ahead = f"{begun_ms}.{now_ms + 300_000}"  # the clock was set back: no tick is polled twice
    assert (await subscriber.result("events/poll", **request, cursor=ahead))["cursor"] == ahead
    for cursor in ("7", "5.3", f"0.{now_ms + 900_000}", 7):
        assert (await subscriber.call("events/poll", **request, cursor=cursor))["error"]["code"] == -32602

    webhook = subscriber.tick(arguments=request["arguments"], cursor=page["cursor"])
    made = await subscriber.result("events/subscribe", **webhook)
    assert (made["cursor"], made["truncated"]) == (page["cursor"], False)
    wanted = [event["data"] for event in rest["events"]]
    await eventually(lambda: len(subscriber.events) >= len(wanted))
    assert [event["data"] for event in subscriber.events][: len(wanted)] == wanted


async def test_a_subscription_ends_with_its_time_to_live_and_with_its_key(subscriber: Subscriber) -> None:
    services, store = subscriber.client.app.services, subscriber.client.app.store
    key, secret = await services.auth.keys.create(LOCAL, "default", {"name": "k", "role": "admin"})
    slow = {"schedule": "0 9 * * *"}
    short = await subscriber.result("events/subscribe", **subscriber.tick(arguments=slow, ttlMs=200))
    request = subscriber.tick(arguments={**slow, "tz": "Europe/Berlin"})
    answer = await subscriber.call("events/subscribe", subscriber.client.with_key(secret), **request)
    await services.auth.keys.revoke(LOCAL, "default", key.id)
    for identity in (short["id"], answer["result"]["id"]):

        async def has_ended(identity: str = identity) -> bool:
            row = await store.subscription(identity)
            return row is not None and not row.is_active

        await eventually(has_ended)


@on_one_store
async def test_a_token_of_an_issuer_and_who_names_no_time_subscribe_for_30_days(
    subscriber: Subscriber,
) -> None:
    service = subscriber.client.app.services.agents.subscriptions
    month, ada, ben = 30 * 86_400_000, Principal("jwt:ada", "admin", "default"), LOCAL
    given = subscriber.tick(arguments={"schedule": "0 9 * * *"})
    request = SubscriptionRequest(given["name"], given["arguments"], given["delivery"])

    async def lasts_ms(who: Principal, request: SubscriptionRequest) -> int | None:
        made = await service.subscribe(who, "default", None, request)
        row = await subscriber.client.app.store.subscription(made.id)
        assert row is not None
        assert row.expires_ms == made.refresh_before_ms
        return None if row.expires_ms is None else row.expires_ms - row.refreshed_ms

    for who, ttl_ms, wanted in (
        (ada, None, month),
        (ada, 2 * month, month),
        (ada, 5_000, 5_000),
        (ben, None, None),
        (ben, 2 * month, 2 * month),
    ):
        assert await lasts_ms(who, request._replace(ttl_ms=ttl_ms)) == wanted
    assert await lasts_ms(ben, request) == month
    answer = await subscriber.result("events/subscribe", **given)  # without `ttlMs`
    assert answer["refreshBefore"] is not None


@on_one_store
async def test_an_admin_sees_and_ends_subscriptions(subscriber: Subscriber) -> None:
    client = subscriber.client
    secret_url = f"{subscriber.receiver.url}?mcp_event_subscription=1234"
    delivery = {**subscriber.tick()["delivery"], "url": secret_url}
    made = await subscriber.result("events/subscribe", **subscriber.tick(delivery=delivery))
    await eventually(lambda: len(subscriber.events) >= 1)
    member = await client.new("member")
    assert (await member("GET", "/subscriptions")).body == {"subscriptions": [], "cursor": None}
    assert (await member("DELETE", f"/subscriptions/{made['id']}")).status == 404
    (row,) = (await client("GET", "/subscriptions", limit=1)).body["subscriptions"]
    assert (row["id"], row["event"], row["reason"]) == (made["id"], "schedule.tick", None)
    assert row["arguments"]["schedule"] == "every 1s"
    assert row["url"] == f"{subscriber.receiver.url}?***"
    assert row["lastState"] in ("succeeded", "running", "pending")
    page = await client("GET", "/workspaces/default/subscriptions")
    assert made["id"] in page.body
    assert "1234" not in page.body
    assert (await client("DELETE", f"/subscriptions/{made['id']}")).status == 204
    assert (await client("DELETE", f"/subscriptions/{made['id']}")).status == 409
    (row,) = (await client("GET", "/subscriptions")).body["subscriptions"]
    assert row["reason"] == "ended"


@on_one_store
async def test_a_callback_is_told_that_others_ended_its_subscription(subscriber: Subscriber) -> None:
    client, slow = subscriber.client, {"schedule": "0 9 * * *"}
    key, secret = await client.app.services.auth.keys.create(LOCAL, "default", {"role": "admin"})
    ended = await subscriber.result("events/subscribe", **subscriber.tick(arguments=slow))
    request = subscriber.tick(arguments=slow)
    revoked = (await subscriber.call("events/subscribe", client.with_key(secret), **request))["result"]
    own = {**slow, "message": "Mine."}
    await subscriber.result("events/subscribe", **subscriber.tick(arguments=own))
    await subscriber.result("events/unsubscribe", **subscriber.tick(arguments=own))
    assert (await client("DELETE", f"/subscriptions/{ended['id']}")).status == 204
    await eventually(lambda: len(subscriber.ends) == 2)  # the first answer was 503
    await client.app.services.auth.keys.revoke(LOCAL, "default", key.id)
    await eventually(lambda: len(subscriber.ends) == 3)
    assert [each["to"] for each in subscriber.ends] == [ended["id"], ended["id"], revoked["id"]]
    assert {each["code"] for each in subscriber.ends} == {-32012}
    assert len({each["id"] for each in subscriber.ends}) == 2, "a message keeps its id"
    row = await client.app.store.subscription(revoked["id"])
    assert row is not None
    assert row.reason == "key_ended"


@on_one_store
async def test_nobody_can_send_an_event_of_their_own_or_change_its_job(subscriber: Subscriber) -> None:
    client, delivery = subscriber.client, subscriber.tick()["delivery"]
    made = await subscriber.result("events/subscribe", name="run.finished", arguments={}, delivery=delivery)
    path = f"/agents/default/jobs/wakeful-events-{made['id'].removeprefix('sub_')}"
    forged = {"eventId": "evt_1", "name": "run.finished", "timestamp": "2026-01-01T00:00:00Z", "data": {}}
    for caller in (client, await client.new("member"), await client.new("agent", agent="default")):
        requests: list[dict[str, Any]] = [{"payload": forged}, {"payload": {"eventId": {}}}, {}]
        for body in requests:
            assert (await caller("POST", f"{path}/run", body)).status in (403, 409)
        for change in (
            {"target": {"kind": "webhook", "url": "https://example.com/"}},
            {"schedule": "every 1s"},
            {"deleteAfterRun": True},
        ):
            assert (await caller("PATCH", path, change)).status in (403, 409, 422), change
    assert (await client("POST", f"{path}/hook")).status == 409
    assert (await client("POST", f"{path}/rotate-secret")).status == 409
    assert (await client("GET", path)).body["may"] == ["pause", "resume", "skip-next"]
    assert (await client("POST", f"{path}/pause")).status == 200
    assert (await client("POST", f"{path}/resume")).status == 200
    assert subscriber.events == []
    assert len(subscriber.receiver.bodies) == 1, "the verification"
