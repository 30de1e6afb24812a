"""Workers, channels and settings over HTTP, with real services behind the channels."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import ApiClient, served
from tests.support.receiver import Receiver, serving
from wakeful.settings import Settings

SECRET = "Sw0rdf1sh"


@pytest.fixture
async def service() -> AsyncIterator[Receiver]:
    """Run an HTTP service for a channel."""
    async with serving(Receiver()) as service:
        yield service


@pytest.fixture
async def channels(new_app: NewApp, service: Receiver) -> AsyncIterator[ApiClient]:
    """Return a client of a server with channels."""
    app = new_app(
        settings=Settings(
            channels={
                "hook": f"json://ada:{SECRET}@127.0.0.1:{service.port}/{SECRET}",
                "person": f"json://127.0.0.1:{service.port}/{{to}}?-token={SECRET}",
                "broken": f"json://ada:{SECRET}@127.0.0.1:1/{SECRET}",
            },
            ping_url=f"http://127.0.0.1:1/{SECRET}",
            jwt_secret=SECRET * 4,
        )
    )
    async with app, served(app) as caller:
        yield caller


# --- workers --------------------------------------------------------------------------------------


async def test_workers_are_listed_with_heartbeat_and_lanes(ask: ApiClient):
    (worker,) = (await ask("GET", "/workers")).body["workers"]
    assert worker["alive"]
    assert worker["thisProcess"]
    assert worker["version"]
    assert worker["lanes"]["cron"] == {"used": 0, "size": 30}
    assert "function:nothing" in worker["capabilities"]
    assert worker["lastHeartbeatAt"] >= worker["startedAt"]


async def test_executors_are_listed_with_the_runs_that_they_hold(ask: ApiClient):
    job = {"schedule": SELDOM, "target": {"kind": "pull"}, "overlapPolicy": "allow"}
    await ask("PUT", "/agents/writer/jobs/digest", {**job, "verify": {"kind": "manual"}})
    for _ in range(2):
        await ask("POST", "/agents/writer/jobs/digest/run")
    claimed = await ask("POST", "/runs/claim", {"worker": "laptop", "agents": ["writer"], "limit": 2})
    assert len(claimed.body["runs"]) == 2
    (executor,) = (await ask("GET", "/workers")).body["executors"]
    assert (executor["name"], executor["runs"]) == ("laptop", 2)
    assert executor["lastHeartbeatAt"] is not None
    for run in claimed.body["runs"]:
        body = {"attempt": 1, "status": "succeeded"}
        assert (await ask("POST", f"/runs/{run['id']}/complete", body)).body["verifying"]
    assert (await ask("GET", "/workers")).body["executors"] == [], "the server verifies them"


@on_one_store
async def test_an_admin_of_one_workspace_sees_only_its_own_runs_and_classes(ask: ApiClient):
    await ask("PUT", "/agents/writer/jobs/digest", {"schedule": SELDOM, "target": {"kind": "pull"}})
    await ask("POST", "/agents/writer/jobs/digest/run")
    await ask("POST", "/runs/claim", {"worker": "laptop", "agents": ["writer"]})
    await ask("PUT", "/api/workspaces/acme", {})
    other = await ask.new("admin", "acme")
    found = (await other("GET", "/api/workspaces/acme/workers")).body
    assert found["executors"] == []
    assert [worker["capabilities"] for worker in found["workers"]] == [{}]


# --- channels -------------------------------------------------------------------------------------


@on_one_store
async def test_channels_are_listed_without_their_urls(channels: ApiClient):
    reply = await channels("GET", "/channels")
    assert [(each["name"], each["kind"], each["takesRecipient"]) for each in reply.body["channels"]] == [
        ("broken", "json", False),
        ("hook", "json", False),
        ("person", "json", True),
    ]
    assert SECRET not in str(reply.body)


async def test_a_test_message_arrives_and_is_audited(channels: ApiClient, service: Receiver):
    reply = await channels("POST", "/channels/hook/test")
    assert (reply.status, reply.body["outcome"], reply.body["error"]) == (200, "accepted", None)
    (body,) = service.bodies
    assert "test message" in body.decode()
    (entry,) = (await channels("GET", "/audit", action="channel")).body["entries"]
    assert (entry["action"], entry["subject"]) == ("channel.test", "hook")
    assert entry["details"] == {"outcome": "accepted", "error": None}
    assert (await channels("GET", "/audit/verify")).body["ok"]


@on_one_store
async def test_a_test_message_needs_a_recipient_where_the_channel_takes_one(
    channels: ApiClient, service: Receiver
):
    assert (await channels("POST", "/channels/person/test")).code == "invalid-argument"
    assert (await channels("POST", "/channels/hook/test", {"to": "ada"})).code == "invalid-argument"
    assert (await channels("POST", "/channels/person/test", {"to": 7})).code == "invalid-argument"
    assert (await channels("POST", "/channels/person/test", {"to": "\ud800"})).status in (400, 422)
    assert (await channels("POST", "/channels/none/test")).code == "not-found"
    assert service.requests == []
    assert (await channels("POST", "/channels/person/test", {"to": "ada"})).body["outcome"] == "accepted"


@on_one_store
async def test_the_error_of_a_test_message_has_no_secret(channels: ApiClient, service: Receiver):
    unreachable = await channels("POST", "/channels/broken/test")
    assert unreachable.body["outcome"] == "not_sent"
    service.answers(500)
    refused = await channels("POST", "/channels/hook/test")
    assert refused.body["outcome"] == "not_sent"
    assert "500" in refused.body["error"]
    everything = f"{unreachable.body}{refused.body}{(await channels('GET', '/audit')).body}"
    assert SECRET not in everything


@on_one_store
async def test_test_messages_are_rate_limited(channels: ApiClient, service: Receiver):
    replies = await asyncio.gather(*(channels("POST", "/channels/hook/test") for _ in range(8)))
    assert sorted(reply.status for reply in replies) == [200] * 6 + [429] * 2
    (limited, _) = [reply for reply in replies if reply.status == 429]
    assert "6 test messages a minute" in limited.body["detail"]
    assert len(service.requests) == 6


# --- settings -------------------------------------------------------------------------------------


@on_one_store
async def test_settings_show_their_source_and_no_secrets(channels: ApiClient):
    reply = await channels("GET", "/settings")
    settings = {each["name"]: each for each in reply.body["settings"]}
    assert SECRET not in str(reply.body)
    assert settings["WAKEFUL_PING_URL"]["set"]
    assert settings["WAKEFUL_PING_URL"]["value"] is None
    assert settings["WAKEFUL_CHANNEL_HOOK"]["secret"]
    assert settings["WAKEFUL_TICK_MS"] == {
        "name": "WAKEFUL_TICK_MS",
        "value": "1000",
        "source": "default",
        "secret": False,
        "set": True,
        "description": "The engine's longest sleep.",
    }
    assert settings["WAKEFUL_ALLOW_PRIVATE_TARGETS"]["source"] == "option"
