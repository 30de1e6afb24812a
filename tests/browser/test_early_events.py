"""What a person does before the scripts of a page have loaded is not lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.browser.conftest import Tab
from tests.support.api_client import JOBS, ApiClient

JOB = {"name": "digest", "schedule": "0 0 29 2 *", "target": {"kind": "echo"}, "message": "one"}


@asynccontextmanager
async def withheld(tab: Tab, script: str) -> AsyncIterator[None]:
    """Withhold a script from the pages that are opened in the block; let it pass at the end of the block."""
    asked, released = asyncio.Event(), asyncio.Event()

    async def pass_later(route: Any) -> None:
        asked.set()
        await released.wait()
        await route.continue_()

    await tab.page.route(f"**/{script}", pass_later)
    yield
    await asked.wait()
    released.set()


async def opened(tab: Tab, *parts: str) -> Any:
    """Open a page, and return it when it is parsed."""
    await tab.page.goto(f"{tab.url}/workspaces/default/{'/'.join(parts)}", wait_until="commit")
    await tab.page.locator("body > .toasts").wait_for(state="attached")
    return tab.page


async def test_a_click_before_the_module_of_a_button_has_loaded_opens_its_dialog(
    tab: Tab, ask: ApiClient
) -> None:
    await ask("POST", JOBS, JOB)
    async with withheld(tab, "form_dialog.js"):
        page = await opened(tab, "agents", "default", "jobs", "digest")
        for _ in range(2):
            await page.get_by_role("button", name="Pause", exact=True).click()
        assert await page.locator("dialog").count() == 0
    await page.locator("dialog[open]").get_by_label("Until").wait_for()
    assert await page.locator("dialog").count() == 1


async def test_a_click_before_any_script_has_loaded_is_done(tab: Tab, ask: ApiClient) -> None:
    await ask("POST", JOBS, JOB)
    async with withheld(tab, "app.js"):
        page = await opened(tab, "agents", "default", "jobs", "digest")
        await page.get_by_role("button", name="Run now").click()
    await page.wait_for_url("**/runs/*")


async def test_text_typed_before_the_module_of_a_form_has_loaded_is_saved(tab: Tab, ask: ApiClient) -> None:
    await ask("POST", JOBS, JOB)
    async with withheld(tab, "job_form.js"):
        page = await opened(tab, "agents", "default", "jobs", "digest", "edit")
        await page.fill("#f-message", "two")
        await page.fill("#f-schedule", "@yearly")
        await page.locator("[data-save]").click()
        assert page.url.endswith("/edit"), "it is not sent as a plain form"
    await page.wait_for_url("**/jobs/digest")
    saved = (await ask("GET", f"{JOBS}/digest")).body
    assert (saved["message"], saved["schedule"]["expr"]) == ("two", "0 0 1 1 *")


async def test_a_filter_chosen_before_any_script_has_loaded_applies(tab: Tab, ask: ApiClient) -> None:
    await ask("POST", JOBS, JOB)
    async with withheld(tab, "app.js"):
        page = await opened(tab, "agents", "default", "jobs", "digest")
        await page.locator("form[data-auto] select").select_option("failed")
    await page.wait_for_url("**/jobs/digest?state=failed")


async def test_menus_boxes_and_a_search_of_a_list_without_its_scripts_apply_later(
    tab: Tab, ask: ApiClient
) -> None:
    for name in ("digest", "other"):
        await ask("POST", JOBS, {**JOB, "name": name})
    async with withheld(tab, "switcher.js"):
        async with withheld(tab, "app.js"):
            page = await opened(tab, "jobs")
            await page.locator(".switcher summary").click()
            await page.get_by_label("Select default/digest").check()
            await page.fill("[data-filters] [name=q]", "dig")
        await page.locator("tr", has_text="other").wait_for(state="detached")
        await page.locator("[data-selected]", has_text="1 selected").wait_for()
    await page.locator(".switcher [data-names] a").wait_for()
    assert await page.get_by_label("Select default/digest").is_checked()


async def test_a_module_that_cannot_be_loaded_is_reported(tab: Tab, ask: ApiClient) -> None:
    tab.expected.append("ERR_FAILED")
    await ask("POST", JOBS, JOB)
    await tab.page.route("**/form_dialog.js", lambda route: route.abort())
    await tab.open("agents", "default", "jobs", "digest")
    await tab.page.locator(".toast.error", has_text="could not be loaded").wait_for()
