"""The calendar by keyboard, in the zone of the viewer, and while it is computed."""

from __future__ import annotations

import pytest

from tests.browser.conftest import NewTab, Tab
from tests.support.api_client import ApiClient

_JOB = {"name": "digest", "schedule": "0 * * * *", "target": {"kind": "pull"}}


async def test_an_hour_opens_by_keyboard(tab: Tab, ask: ApiClient) -> None:
    assert (await ask("POST", "/agents/default/jobs", _JOB)).status == 201
    await tab.open("calendar")
    await tab.follow("Next week")
    cells = tab.page.locator(".chart-heat a")
    await tab.page.locator(".heat-upcoming").first.wait_for()
    assert await cells.count() == 7 * 24
    assert await tab.page.locator('.chart-heat a[tabindex="0"]').count() == 1
    await cells.first.hover()
    tooltip = cells.first.locator("title")
    await tooltip.wait_for(state="attached")
    assert await tooltip.text_content() == await cells.first.get_attribute("aria-label")
    await cells.first.focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowDown"):
        await tab.page.keyboard.press(key)
    focused = await tab.page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused.startswith("Tuesday")
    assert focused.endswith("02:00: 1 upcoming")
    await tab.page.keyboard.press("Enter")
    await tab.page.get_by_role("heading", name="Schedules that fire in this hour").wait_for()
    assert "02:00:00" in await tab.page.locator("#hour-title").inner_text()
    await tab.page.get_by_role("link", name="digest").wait_for()


async def test_the_zone_of_the_viewer_can_be_chosen(new_tab: NewTab, ask: ApiClient) -> None:
    await ask("POST", "/agents/default/jobs", {**_JOB, "schedule": "0 12 * * *"})
    tab = await new_tab(timezone_id="Asia/Tokyo")
    await tab.open("calendar")
    await tab.page.get_by_label("Time zone").select_option("Asia/Tokyo")
    await tab.page.wait_for_url("**tz=Asia%2FTokyo**")
    await tab.page.get_by_text("Times in Asia/Tokyo").wait_for()
    await tab.follow("Next week")
    await tab.page.locator('.chart-heat a[aria-label$="21:00: 1 upcoming"]').first.wait_for()
    assert await tab.page.locator('.chart-heat a[aria-label$="21:00: 1 upcoming"]').count() == 7


async def test_a_week_that_is_computed_appears_without_a_reload(
    tab: Tab, ask: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakeful.service.admin.calendar.WAIT_S", 0.0)
    await ask("POST", "/agents/default/jobs", _JOB)
    await tab.open("calendar")
    await tab.page.locator(".heat-upcoming").first.wait_for()


async def test_the_page_fits_a_phone(new_tab: NewTab) -> None:
    tab = await new_tab(phone=True, theme="dark")
    await tab.open("calendar")
    await tab.page.locator(".chart-heat").wait_for()
    assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
