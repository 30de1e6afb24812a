"""The dashboard below a path of a FastAPI application, for a user of that application, in a real browser."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.conftest import NewTab, Tab
from tests.support.api_client import ApiClient
from tests.support.dashboard_pages import fill
from tests.support.host_app import ROOT, Host, serving_host
from tests.support.waiting import eventually
from wakeful import Wakeful
from wakeful.integrations.fastapi import User

pytestmark = pytest.mark.slow


async def test_a_user_of_the_host_works_with_the_dashboard(
    app: Wakeful, ask: ApiClient, chromium: Any, new_tab: NewTab
) -> None:
    world = await fill(ask)
    host = Host(app)
    host.users["s1"] = User("ada", "admin", workspace=None)
    async with serving_host(host):
        tab = await new_tab(ApiClient(host.url + ROOT, ask.session))  # requests outside of the path fail
        page = tab.page
        await page.context.add_cookies([{"name": "session", "value": "s1", "url": host.url}])
        for each in world.pages:
            await tab.open(each)
        await _create_and_run(tab)
        await _live(tab, ask)
        await _theme_and_workspaces(tab)
        # Signed out at the host: the next request of the page leads to the sign-in of the host.
        tab.expected += ["401", "404", "request to another host", "ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE"]
        del host.users["s1"]
        await tab.page.goto(f"{host.url}{ROOT}/")
        await page.wait_for_url("**/login?next=**")
        await page.context.close()


async def _create_and_run(tab: Tab) -> None:
    await tab.open("jobs", "new")
    page = tab.page
    await page.fill("#f-name", "by-hand")
    await page.fill("#f-schedule", "@yearly")
    await page.locator("[data-explain]", has_text="00:00").wait_for()
    await page.select_option("#f-target", "function")
    await page.fill("#f-target-function-name", "nothing")
    await page.click("[data-save]")
    await page.wait_for_url(f"**{ROOT}/workspaces/default/agents/default/jobs/by-hand")
    await tab.loaded()
    await page.click("[data-path$='/run']")
    await page.wait_for_url(f"**{ROOT}/workspaces/default/runs/*")


async def _live(tab: Tab, ask: ApiClient) -> None:
    await tab.open("dead-letters")
    await tab.page.locator("[data-live-state]", has_text="Live").first.wait_for(state="visible")
    await eventually(lambda: ask.app.services.auth.connection_limits.open()["events"])
    badge = tab.page.locator("[data-figure=nav-dead-letters]")
    before = int(await badge.inner_text())
    await ask("POST", "/agents/writer/jobs/broken/run")
    await tab.page.locator("[data-figure=nav-dead-letters]", has_text=str(before + 1)).wait_for()


async def _theme_and_workspaces(tab: Tab) -> None:
    page = tab.page
    await page.click("[data-theme-toggle]")
    await tab.open("jobs")
    assert await page.evaluate("document.documentElement.dataset.theme") == "dark"
    await page.click(".switcher summary")
    async with page.expect_navigation():
        await page.locator("[data-names] a", has_text="default").click()
    assert page.url.endswith(f"{ROOT}/workspaces/default/")
    await page.keyboard.press("Control+k")
    await page.keyboard.type("by-hand")
    async with page.expect_navigation():
        await page.get_by_role("option", name="by-hand").first.click()
    assert f"{ROOT}/workspaces/default/agents/default/jobs/by-hand" in page.url
