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
        await raw.register(redirect_uris=[f"{SITE}/cb"], client_name="<b>Assistant</b>")
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
        await tab.audit()
        tab.expected += [f"request to another host: {SITE}/cb"]
        await tab.page.get_by_role("button", name="Connect").click()
        await tab.page.wait_for_url(f"{SITE}/cb?*")
        code = parse_qs(urlsplit(seen[-1]).query)["code"][0]
        tokens = (await raw.exchange(code, redirect_uri=f"{SITE}/cb")).json()
        assert (await raw.call(tokens["access_token"])).status_code == 200
