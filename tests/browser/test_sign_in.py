"""Signing in and out in a browser: with a key, with a one-time link, and from a link on another site."""

from __future__ import annotations

import pytest

from tests.browser.conftest import NewTab
from tests.support.api_client import ApiClient
from wakeful.service.auth.access import Principal


async def _link(ask: ApiClient) -> str:
    principal: Principal = await ask.app.services.auth.keys.authenticate(ask.key)
    return (await ask.app.services.auth.web_sessions.create_link(principal)).token


async def test_a_person_signs_in_with_a_key_and_out(new_tab: NewTab, ask: ApiClient) -> None:
    tab = await new_tab(ask.with_key(None))
    await tab.open("?shown=all")
    await tab.page.wait_for_url("**/sign-in?next=**")
    tab.expected += ["401"]
    await tab.page.get_by_label("API key").fill("wk_wrong")
    await tab.page.keyboard.press("Enter")
    await tab.page.get_by_text("this key is not complete").wait_for()
    assert await tab.page.get_by_label("API key").input_value() == ""
    await tab.page.get_by_label("API key").fill(ask.key or "")
    await tab.page.get_by_role("button", name="Sign in").click()
    await tab.page.wait_for_url("**/workspaces/default/?shown=all")
    stored = await tab.page.evaluate(
        "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
    )
    assert "wk_" not in stored
    assert "wakeful_session" not in stored
    await tab.open()
    await tab.page.get_by_role("button", name="Sign out").click()
    await tab.page.wait_for_url("**/sign-in")
    await tab.open()
    await tab.page.wait_for_url("**/sign-in?next=**")


@pytest.mark.slow
async def test_a_one_time_link_signs_in_once_and_leaves_no_trace(new_tab: NewTab, ask: ApiClient) -> None:
    link = await _link(ask)
    tab = await new_tab(ask.with_key(None))
    await tab.page.goto(f"{tab.url}/sign-in#{link}")
    await tab.page.wait_for_url("**/workspaces/default/")
    assert link not in await tab.page.evaluate("location.href")
    other = await new_tab(ask.with_key(None))
    other.expected += ["401"]
    await other.page.goto(f"{tab.url}/sign-in#{link}")
    await other.page.get_by_text("this link was used already or has expired").wait_for()


@pytest.mark.slow
async def test_a_link_does_not_replace_a_session_without_a_click(new_tab: NewTab, ask: ApiClient) -> None:
    tab = await new_tab(await ask.new("member"))
    await tab.page.goto(f"{tab.url}/sign-in#{await _link(ask)}")
    await tab.page.get_by_text("To use it, press Sign in").wait_for()
    assert await tab.page.get_by_text("a key of the role member").is_visible()
    await tab.page.get_by_role("button", name="Sign in").click()
    await tab.page.wait_for_url("**/workspaces/default/")
    assert await tab.page.locator("meta[name=role]").get_attribute("content") == "admin"


@pytest.mark.slow
async def test_a_link_on_another_site_opens_the_page(new_tab: NewTab, ask: ApiClient) -> None:
    signed_in = await new_tab()
    elsewhere = "http://another.example/"  # answered by the test itself
    for tab in (signed_in, await new_tab(ask.with_key(None))):

        async def serve_link(route: object) -> None:
            await route.fulfill(  # type: ignore[attr-defined]
                body=f'<a href="{ask.url}/workspaces/default/">go</a>', content_type="text/html"
            )

        tab.expected += [f"request to another host: {elsewhere}"]
        await tab.page.route(elsewhere, serve_link)
        await tab.page.goto(elsewhere)
        await tab.page.get_by_text("go").click()
        await tab.page.wait_for_url("**/workspaces/default/" if tab is signed_in else "**/sign-in?next=**")
    assert await signed_in.page.title() == "Home · Wakeful"
