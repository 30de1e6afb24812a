"""A person connects an assistant of another site in a browser."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.browser.conftest import NewTab
from tests.support.api_client import ApiClient

pytest.importorskip("mcp")

import httpx2

from tests.support.mcp_oauth import RawClient

SITE = "https://assistant.example"


async def test_a_person_connects_an_assistant_of_another_site(new_tab: NewTab, ask: ApiClient) -> None:
    tab = await new_tab()
    async with httpx2.AsyncClient() as http:
        raw = RawClient(ask.url, http)
        await raw.register(redirect_uris=[f"{SITE}/cb"], client_name="<b>Assistant</b>\u202e")
        address = ask.url + raw.authorization(redirect_uri=f"{SITE}/cb")
        seen: list[str] = []

        async def serve(route: Any) -> None:
            seen.append(route.request.url)
            await route.fulfill(body=f'<a href="{address}">connect</a>', content_type="text/html")

        await tab.page.route(f"{SITE}/**", serve)
        tab.expected += [f"request to another host: {SITE}/"]
        await tab.page.goto(f"{SITE}/")
        await tab.page.get_by_text("connect").click()
        await tab.page.get_by_role("heading", name="Connect <b>Assistant</b>?").wait_for()
        assert "\u202e" not in await tab.page.content(), "it would turn the address beside it round"
        await tab.audit()
        tab.expected += [f"request to another host: {SITE}/cb"]
        await tab.page.get_by_role("button", name="Connect").click()
        await tab.page.wait_for_url(f"{SITE}/cb?*")
        code = parse_qs(urlsplit(seen[-1]).query)["code"][0]
        tokens = (await raw.exchange(code, redirect_uri=f"{SITE}/cb")).json()
        assert (await raw.call(tokens["access_token"])).status_code == 200


async def test_a_member_sees_and_revokes_the_assistants_that_he_connected(
    new_tab: NewTab, ask: ApiClient
) -> None:
    member = await ask.new("member", name="Bob")
    eve = await ask.new("member", name="Eve")
    tab, other = await new_tab(member), await new_tab(eve)
    async with httpx2.AsyncClient() as http:
        raw = RawClient(ask.url, http)
        await raw.register(redirect_uris=[f"{SITE}/cb"], client_name="<b>Assistant</b>")
        await tab.page.route(f"{SITE}/**", lambda route: route.fulfill(body="connected"))
        tab.expected += [f"request to another host: {SITE}/cb", "status of 404"]
        await tab.page.goto(ask.url + raw.authorization(redirect_uri=f"{SITE}/cb"))
        await tab.page.get_by_role("button", name="Connect").click()
        await tab.page.wait_for_url(f"{SITE}/cb?*")
        code = parse_qs(urlsplit(tab.page.url).query)["code"][0]
        tokens = (await raw.exchange(code, redirect_uri=f"{SITE}/cb")).json()
        (row,) = [key for key in (await ask("GET", "/keys")).body["keys"] if "Assistant" in key["name"]]
        await other.open("keys")
        await other.page.get_by_text("You have connected no assistant").wait_for()
        assert (await eve("DELETE", f"/keys/{row['id']}")).status == 403
        await tab.open("")
        await tab.follow("Assistants")
        await tab.audit()
        await tab.page.get_by_role("row", name="<b>Assistant</b>").get_by_role("button").click()
        await tab.page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        await tab.page.get_by_text("You have connected no assistant").wait_for()
        assert (await raw.call(tokens["access_token"])).status_code == 401
