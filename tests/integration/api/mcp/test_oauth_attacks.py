"""Attacks on the sign-in of assistants: stolen codes and tokens, forged pages, redirects and garbage."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from tests.integration.api.mcp.test_oauth import World, database, world
from tests.support.waiting import PATIENCE
from wakeful.errors import InvalidArgument
from wakeful.launch.address_guard import AddressGuard
from wakeful.service.auth import client_documents, oauth
from wakeful.service.auth.access import LOCAL
from wakeful.service.auth.client_documents import MAX_BYTES, ClientDocuments

__all__ = ["database", "world"]

CALLBACK = "https://assistant.example/cb"
GARBAGE = [
    "",
    " ",
    "\x00",
    "\U0001f600",
    "x" * 20_000,
    "wc_" + "A" * 43,
    "../..",
    "'\"<script>",
    "%",
    "javascript:alert(1)",
]


async def _tokens(world: World) -> dict[str, str]:
    await world.raw.register()
    await world.person.open(world.raw.authorization())
    response = await world.raw.exchange(world.person.returned["code"])
    tokens: dict[str, str] = response.json()
    return tokens


async def test_a_copied_code_is_of_no_use_and_ends_the_grant_if_it_comes_twice(world: World):
    raw, other = world.raw, type(world.raw)(world.raw.url, world.raw.http)
    await raw.register()
    await other.register()
    await world.person.open(raw.authorization())
    code = world.person.returned["code"]
    for wrong in (
        await other.exchange(code, code_verifier=raw.verifier),
        await raw.exchange(code, code_verifier="x" * 43),
        await raw.exchange(code, redirect_uri="http://localhost:3031/callback"),
        await raw.exchange(code, resource="https://other.example/mcp"),
        await raw.exchange(code, client_id="unknown"),
    ):
        assert wrong.status_code in (400, 401), wrong.text
    tokens = (await raw.exchange(code)).json()
    assert (await raw.call(tokens["access_token"])).status_code == 200
    assert (await other.refresh(tokens["refresh_token"])).json()["error"] == "invalid_grant"
    assert (
        await other.http.post(
            f"{raw.url}/oauth/revoke", data={"token": tokens["access_token"], "client_id": other.client_id}
        )
    ).status_code == 200
    assert (await raw.call(tokens["access_token"])).status_code == 200  # another client cannot end it
    assert (await raw.exchange(code)).json()["error"] == "invalid_grant"
    assert (await raw.call(tokens["access_token"])).status_code == 401
    assert (await raw.refresh(tokens["refresh_token"])).json()["error"] == "invalid_grant"


async def test_tokens_are_confined_to_their_workspace_and_to_mcp(world: World):
    await world.operator.app.services.agents.workspaces.put(LOCAL, "acme", {})
    tokens = await _tokens(world)
    raw, access = world.raw, tokens["access_token"]
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    listed = call | {"params": {"name": "cron", "arguments": {"action": "list"}}}
    headers = {"authorization": f"Bearer {access}", "accept": "application/json, text/event-stream"}
    for query, found in ("", True), ("?workspace=acme", False), ("?agent=painter", False):
        response = await raw.http.post(f"{raw.url}/mcp{query}", json=listed, headers=headers)
        assert response.json()["result"].get("isError", False) != found, query
    for path in "/api/workspaces/default/keys", "/metrics", "/api/workspaces/default/agents/writer/jobs":
        response = await raw.http.get(raw.url + path, headers=headers)
        assert response.status_code == 401 or path == "/metrics"
    for text in tokens["refresh_token"], access[:-1], access + "x", "wa_" + "A" * 43:
        assert (await raw.call(text)).status_code == 401


async def test_the_grant_ends_with_the_key_of_the_person(world: World):
    tokens = await _tokens(world)
    keys = (await world.operator("GET", "/keys")).body["keys"]
    (owner,) = [key["id"] for key in keys if key["name"] == "Ada"]
    await world.operator("DELETE", f"/keys/{owner}")
    assert (await world.raw.call(tokens["access_token"])).status_code == 401
    assert (await world.raw.refresh(tokens["refresh_token"])).json()["error"] == "invalid_grant"


async def test_a_forged_or_late_form_changes_nothing(world: World):
    await world.raw.register()
    browser, person = world.person.browser, world.person
    page = await browser("GET", world.raw.authorization())
    for wrong in {"csrf": ""}, {"csrf": "00" * 64}:
        assert (await person.send(page, **wrong)).status == 403
    path = world.raw.authorization()
    form = {"decision": "allow", "role": "admin", "workspace": "default"}
    crossing = {"sec-fetch-site": "cross-site"}
    assert (await browser("POST", path, form=form, headers=crossing)).status == 403
    for wrong in {"role": "root"}, {"role": "admin", "workspace": "acme"}, {"role": "agent", "agent": "A B"}:
        assert (await person.send(page, **wrong)).status in (403, 404, 422), wrong
    await world.operator.app.services.auth.web_sessions.sign_out(browser.token)
    late = await person.send(page)
    assert late.status == 303
    assert late.headers["location"].startswith("/sign-in?next=%2Foauth%2Fauthorize%3F")
    keys = (await world.operator("GET", "/keys")).body["keys"]
    assert [key for key in keys if key["client"]] == []


async def test_a_person_who_follows_a_link_of_another_site_signs_in_first(world: World):
    await world.raw.register()
    async with world.raw.http.stream(
        "GET", world.raw.url + world.raw.authorization(), headers={"sec-fetch-site": "cross-site"}
    ) as response:
        assert response.status_code == 200
        assert 'http-equiv="refresh"' in (await response.aread()).decode()


@pytest.mark.parametrize(
    "uri",
    [
        "https://evil.example/cb",
        "https://assistant.example/cb/",
        "https://assistant.example/cb?x=1",
        "https://assistant.example:444/cb",
        "https://assistant.example/cb/../evil",
        "https://assistant.example@evil.example/cb",
        "https://assistant.example.evil.example/cb",
        "http://assistant.example/cb",
        "http://localhost/cb",
        "//evil.example",
        "javascript:alert(1)",
    ],
)
async def test_no_browser_is_sent_to_an_address_that_is_not_registered(world: World, uri: str):
    await world.raw.register(redirect_uris=[CALLBACK])
    reply = await world.person.browser("GET", world.raw.authorization(redirect_uri=uri))
    assert reply.status == 422
    assert "location" not in reply.headers


async def test_an_invalid_request_is_shown_and_sends_no_browser_away(world: World):
    await world.raw.register(redirect_uris=[CALLBACK])
    for wrong in (
        {"response_type": "token"},
        {"code_challenge": ""},
        {"code_challenge_method": "plain"},
        {"resource": "https://other.example/mcp"},
        {"resource": f"{world.raw.url}/mcp?x"},
        {"client_id": "unknown"},
    ):
        reply = await world.person.browser("GET", world.raw.authorization(redirect_uri=CALLBACK, **wrong))
        assert reply.status == 422, wrong
        assert "location" not in reply.headers


@pytest.mark.parametrize(
    "uri",
    [
        "http://evil.example/cb",
        "javascript:alert(1)",
        "data:text/html,x",
        "https://a@b.example/",
        "https://a.example/#f",
    ],
)
async def test_a_client_with_a_dangerous_address_cannot_register(world: World, uri: str):
    response = await world.raw.register(redirect_uris=[CALLBACK, uri])
    assert response.status_code == 400, response.text
    assert response.json()["error"] == "invalid_redirect_uri"


async def test_the_port_at_this_computer_is_free_and_all_else_is_not(world: World):
    await world.raw.register(redirect_uris=["http://127.0.0.1/callback"])
    shown = await world.person.browser(
        "GET", world.raw.authorization(redirect_uri="http://127.0.0.1:7/callback")
    )
    assert shown.status == 200
    for uri in "http://127.0.0.1:7/other", "http://localhost:7/callback", "https://127.0.0.1:7/callback":
        reply = await world.person.browser("GET", world.raw.authorization(redirect_uri=uri))
        assert reply.status == 422


async def test_registrations_are_limited_and_metadata_is_small(world: World, monkeypatch: pytest.MonkeyPatch):
    assert (await world.raw.register(client_uri="https://a.example/" + "x" * 11_000)).status_code == 400
    assert (
        await world.raw.register(redirect_uris=[f"https://a.example/{n}" for n in range(21)])
    ).status_code == 400
    found = [await world.raw.register() for _ in range(oauth.REGISTRATIONS_PER_MINUTE)]
    assert found[0].status_code == 201
    assert found[-1].status_code == 429
    assert 0 < int(found[-1].headers["retry-after"]) <= 60


async def test_garbage_in_every_parameter_is_no_error_of_the_server(world: World):
    tokens = await _tokens(world)
    raw, browser = world.raw, world.person.browser
    wrong = []

    async def check(what: object, status: int) -> None:
        if status >= 500:
            wrong.append((what, status))

    fields = (
        "client_id",
        "redirect_uri",
        "response_type",
        "code_challenge",
        "code_challenge_method",
        "state",
        "scope",
        "resource",
    )
    for name in fields:
        for text in GARBAGE:
            if len(text) < 10_000:
                path = raw.authorization(**{name: text})
                await check((name, text), (await browser("GET", path)).status)
    for name in (
        "grant_type",
        "code",
        "code_verifier",
        "redirect_uri",
        "client_id",
        "resource",
        "client_secret",
    ):
        for text in GARBAGE:
            sent = {"grant_type": "authorization_code", "code": "wc_x", "code_verifier": "x", name: text}
            await check((name, text[:20]), (await raw.token(**sent)).status_code)
    for name in "refresh_token", "scope", "resource":
        for text in GARBAGE:
            sent = {"refresh_token": tokens["refresh_token"], name: text}
            response = await raw.token(grant_type="refresh_token", **sent)
            await check((name, text[:20]), response.status_code)
    for body in (
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"redirect_uris": 7}',
        b"[" * 100_000,
        b'{"client_name": "\\ud800"}',
    ):
        response = await raw.http.post(f"{raw.url}/oauth/register", content=body)
        await check(body[:20], response.status_code)
    for path in "/oauth/token", "/oauth/revoke":
        for headers in {"content-type": "multipart/form-data"}, {"content-type": "application/json"}:
            response = await raw.http.post(raw.url + path, content=b"client_id=\xff&x", headers=headers)
            await check((path, headers), response.status_code)
        response = await raw.http.post(
            raw.url + path, files={"client_id": b"x", "resource": b"y", "token": b"z"}
        )
        await check((path, "files"), response.status_code)
    for value in "Bearer wa_", f"Bearer wa_{'é' * 43}", "Bearer " + "wa_" * 9_000:
        response = await raw.http.post(f"{raw.url}/mcp", headers=[(b"authorization", value.encode())])
        await check(value[:20], response.status_code)
    assert wrong == []


# --- metadata documents ---------------------------------------------------------------------------------


@pytest.fixture
async def site() -> AsyncIterator[dict[str, object]]:
    """Serve what the test puts under a path; yields the content by path, and the address as `url`."""
    content: dict[str, object] = {}

    async def answer(request: web.Request) -> web.Response:
        found = content[request.path]
        if isinstance(found, web.Response):
            return found
        return web.json_response(found)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    listening = web.TCPSite(runner, "127.0.0.1", 0)
    await listening.start()
    content["url"] = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield content
    await runner.cleanup()


async def test_a_client_is_known_by_its_metadata_document(world: World, site: dict[str, object]):
    client_id = f"{site['url']}/client.json"
    document = {"client_id": client_id, "client_name": "Claude", "redirect_uris": [CALLBACK]}
    site["/client.json"] = document | {
        "token_endpoint_auth_method": "private_key_jwt",
        "grant_types": ["authorization_code"],
    }
    world.raw.client_id = client_id
    unknown = await world.raw.refresh("wr_x")
    assert unknown.status_code == 401  # nothing is fetched for a stranger
    path = world.raw.authorization(redirect_uri=CALLBACK)
    page = await world.person.browser("GET", path)
    assert "Connect Claude?" in page.body
    assert "The name comes from a document at <strong>127.0.0.1</strong>" in page.body
    assert "form-action 'self' https://assistant.example:443" in page.headers["content-security-policy"]
    await world.person.open(path)
    del site["/client.json"]
    tokens = (await world.raw.exchange(world.person.returned["code"], redirect_uri=CALLBACK)).json()
    assert (await world.raw.call(tokens["access_token"])).status_code == 200
    assert (await world.raw.refresh(tokens["refresh_token"])).status_code == 200

    for wrong in (
        {**document, "client_id": f"{client_id}?x"},
        {**document, "redirect_uris": ["javascript:alert(1)"]},
        {**document, "redirect_uris": []},
        {**document, "client_name": "x" * MAX_BYTES},
        [document],
        web.Response(status=302, headers={"location": "/other.json"}),
        web.Response(text=json.dumps(document), content_type="text/html"),
        web.Response(body=b"{", content_type="application/json"),
        web.Response(status=404),
    ):
        site["/client.json"] = wrong
        refused = await world.person.browser("GET", path)
        assert refused.status == 422, wrong
        assert re.search("client_id|redirect_uris|metadata", refused.body), wrong


async def test_a_document_is_fetched_from_public_addresses_only(monkeypatch: pytest.MonkeyPatch):
    documents = ClientDocuments(AddressGuard())
    for address in (
        "https://127.0.0.1/c",
        "https://169.254.169.254/c",
        "https://localhost/c",
        "https://[::1]/c",
        "https://0x7f.1/c",
    ):
        assert documents.is_address(address)
        with pytest.raises(InvalidArgument):
            await documents.fetch(address)
    for address in (
        "http://a.example/c",
        "https://a.example",
        "https://a.example/",
        "https://u@a.example/c",
        "ftp://a.example/c",
        "https://a.example/c#f",
        "https://a.example/x/../c",
        "https:///c",
        f"https://a.example/{'x' * 500}",
        "x",
        "",
    ):
        assert not documents.is_address(address), address


async def test_a_document_that_does_not_come_is_given_up(
    site: dict[str, object], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(client_documents, "_TIMEOUT_S", 0.1)
    done = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the client gives up
        writer.close()
        done.set()

    silent = await asyncio.start_server(hold, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    documents = ClientDocuments(AddressGuard(allow_private=True))
    with pytest.raises(InvalidArgument, match="no response within"):
        await documents.fetch(f"http://127.0.0.1:{port}/c")
    async with asyncio.timeout(PATIENCE):
        await done.wait()
    silent.close()
