"""The frame of every page: navigation, theme, phone width."""

from __future__ import annotations

import pytest

from tests.browser.conftest import NewTab, Tab


async def test_the_home_page_opens_without_errors(tab: Tab) -> None:
    await tab.page.goto(tab.url)
    await tab.page.wait_for_url("**/workspaces/default/")
    assert await tab.page.title() == "Home · Wakeful"
    assert await tab.page.locator("nav[aria-label=Main] a[aria-current=page]").inner_text() == "Home"


@pytest.mark.slow
async def test_the_theme_can_be_changed_and_is_kept(tab: Tab) -> None:
    await tab.open()
    before = await tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    await tab.page.get_by_role("button", name="Light or dark").click()
    after = await tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert before != after
    await tab.page.reload()
    assert await tab.page.evaluate("getComputedStyle(document.body).backgroundColor") == after


@pytest.mark.slow
async def test_the_menu_opens_on_a_phone(new_tab: NewTab) -> None:
    tab = await new_tab(phone=True)
    await tab.open()
    menu = tab.page.locator("#navigation")
    assert not await menu.is_visible()
    await tab.page.get_by_role("button", name="Menu").click()
    assert await menu.is_visible()
    await tab.page.keyboard.press("Escape")
    assert not await menu.is_visible()
    assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
