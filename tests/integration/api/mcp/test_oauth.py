"""Assistants that connect with the address of /mcp alone: discovery, registration, consent and tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.conftest import NewApp
from tests.support.api_client import ApiClient, served
from tests.support.browser_client import browsing
from tests.support.sqlite_files import fresh_file
from wakeful.service.auth.access import LOCAL
from wakeful.settings import Settings

pytest.importorskip("mcp")

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.support.mcp_agent import Agent
from tests.support.mcp_oauth import MemoryStorage, Person, RawClient, sign_in_with


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Use SQLite only: what depends on the store is in the suite of the store."""
    return f"sqlite:///{fresh_file(tmp_path / 'wakeful.db')}"


@dataclass
class World:
    """A server, a person at its dashboard, and a client."""

    operator: ApiClient
    person: Person
    raw: RawClient


@pytest.fixture
async def world(new_app: NewApp) -> AsyncIterator[World]:
    async with (
        new_app() as app,
        served(app) as operator,
        browsing(operator.url) as browser,
        httpx2.AsyncClient() as http,
    ):
        await app.services.agents.put(LOCAL, "default", "writer", {"target": {"kind": "pull"}})
        person_key = await operator.new("admin", name="Ada")
        assert (await browser.sign_in(person_key.key)).status == 303
        yield World(operator, Person(browser), RawClient(operator.url, http))


async def test_the_official_client_connects_with_the_address_alone(world: World):
    url, storage = f"{world.operator.url}/mcp", MemoryStorage()
    auth = sign_in_with(world.person, url, storage)
    async with (
        httpx2.AsyncClient(auth=auth) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        agent = Agent(client)
        await agent("add", name="digest", schedule="0 7 * * *", message="Write the digest.")
        assert [job["name"] for job in (await agent("list"))["jobs"]] == ["digest"]
    (page,) = world.person.pages
    assert "Connect Test assistant?" in page.body
    assert "localhost" in page.body
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert world.person.returned["iss"] == world.operator.url

    keys = (await world.operator("GET", "/keys")).body["keys"]
    (grant,) = [key for key in keys if key["client"]]
    assert (grant["name"], grant["role"], grant["agent"]) == ("Test assistant", "agent", "writer")
    assert (grant["client"], grant["createdByName"]) == ("localhost", "Ada")
    entries = (await world.operator("GET", "/audit")).body["entries"]
    (created,) = [each for each in entries if each["action"] == "job.create"]
    assert created["actorName"] == "Test assistant"
    assert created["details"]["client"] == "localhost"
    assert created["details"]["person"] == grant["createdBy"]
    listed = await world.person.browser("GET", "/workspaces/default/keys")
    assert "assistant at localhost" in listed.body

    assert (await world.operator("DELETE", f"/keys/{grant['id']}")).status == 204
    assert storage.tokens is not None
    refused = await world.raw.call(storage.tokens.access_token)
    assert refused.status_code == 401
    assert "resource_metadata=" in refused.headers["www-authenticate"]


async def test_a_token_is_refreshed_and_revoked(world: World):
    raw = world.raw
    assert (await raw.register()).json()["token_endpoint_auth_method"] == "none"
    await world.person.open(raw.authorization())
    tokens = (await raw.exchange(world.person.returned["code"])).json()
    assert (tokens["token_type"], tokens["expires_in"], tokens["scope"]) == ("Bearer", 3_600, "mcp")
    assert (await raw.call(tokens["access_token"])).status_code == 200
    assert (await raw.call(tokens["access_token"], "/mcp?agent=painter")).status_code == 200
    api = await raw.http.get(
        f"{raw.url}/api/workspaces/default/keys",
        headers={"authorization": f"Bearer {tokens['access_token']}"},
    )
    assert api.status_code == 401  # it is for /mcp alone
    new = (await raw.refresh(tokens["refresh_token"])).json()
    assert (await raw.call(new["access_token"])).status_code == 200
    form = {"token": new["refresh_token"], "client_id": raw.client_id}
    assert (await raw.http.post(f"{raw.url}/oauth/revoke", data=form)).status_code == 200
    for access in tokens["access_token"], new["access_token"]:
        assert (await raw.call(access)).status_code == 401
    assert (await raw.refresh(new["refresh_token"])).json()["error"] == "invalid_grant"


async def test_behind_a_proxy_all_addresses_are_the_public_ones(new_app: NewApp):
    public = "https://wakeful.example.com"
    async with new_app(settings=Settings(public_url=public)) as app, served(app) as operator:
        refused = await operator.with_key(None)("POST", "/mcp")
        found = f'resource_metadata="{public}/.well-known/oauth-protected-resource/mcp"'
        assert found in refused.headers["www-authenticate"]
        resource = (await operator("GET", "/.well-known/oauth-protected-resource/mcp")).body
        assert (resource["resource"], resource["authorization_servers"]) == (f"{public}/mcp", [public])
        server = (await operator("GET", "/.well-known/oauth-authorization-server")).body
        assert server["issuer"] == public
        assert {url for name, url in server.items() if name.endswith("_endpoint")} == {
            f"{public}/oauth/{name}" for name in ("authorize", "token", "register", "revoke")
        }


async def test_without_https_only_this_computer_has_tokens(world: World):
    for host, status in ("10.0.0.5:9253", 404), ("localhost:9253", 200):
        headers = {"host": host}
        for path in "/.well-known/oauth-authorization-server", "/.well-known/oauth-protected-resource/mcp":
            assert (await world.raw.http.get(world.raw.url + path, headers=headers)).status_code == status


async def test_a_person_can_refuse(world: World):
    await world.raw.register()
    world.person.choice = {"decision": "deny"}
    await world.person.open(world.raw.authorization())
    assert world.person.returned == {"error": "access_denied", "state": "s1", "iss": world.operator.url}
