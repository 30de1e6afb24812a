"""Dead letters in a real browser: select groups or runs, replay and discard them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import expect

from tests.browser.conftest import PATIENCE_MS, Tab
from tests.support.api_client import JOBS, ApiClient
from tests.support.waiting import eventually
from wakeful import Launch, Permanent

expect.set_options(timeout=PATIENCE_MS)
SELDOM = "0 0 29 2 *"


class Picky:
    """A function that fails with the error of its payload, until it is mended."""

    mended = False

    async def __call__(self, run: Launch) -> str:
        assert isinstance(run.payload, dict)
        if self.mended:
            return "done"
        raise Permanent(str(run.payload["error"]))


@pytest_asyncio.fixture(loop_scope="session")
async def picky(ask: ApiClient) -> AsyncIterator[Picky]:
    """Fail three runs with one cause, and one with another."""
    made = Picky()
    ask.app.function("picky")(made)
    await ask("PUT", f"{JOBS}/orders", {"schedule": SELDOM, "target": {"kind": "function", "name": "picky"}})
    for error in ("order 1 refused", "order 2 refused", "order 3 refused", "no space left"):
        await ask("POST", f"{JOBS}/orders/run", {"payload": {"error": error}})
    await eventually(lambda: _dead(ask, 4))
    yield made


async def _dead(ask: ApiClient, count: int) -> bool:
    return len((await ask("GET", "/dead-letters")).body["deadLetters"]) == count


async def test_a_group_is_replayed(tab: Tab, picky: Picky, ask: ApiClient) -> None:
    picky.mended = True
    page = tab.page
    await tab.open("dead-letters")
    replay = page.get_by_role("button", name="Replay", exact=True)
    assert await replay.is_disabled()
    await page.get_by_label("Select 3 of orders: order # refused").check()
    await expect(page.locator("[data-selected]")).to_have_text("3 selected")
    await replay.click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_text("Replay 3 dead letters?").wait_for()
    await dialog.get_by_role("button", name="Replay").click()
    await page.locator(".toast", has_text="3 replayed.").wait_for()
    await expect(page.locator(".group")).to_have_count(1)
    runs = (await ask("GET", "/runs", trigger="replay")).body["runs"]
    assert len(runs) == 3


async def test_all_groups_are_discarded_by_keyboard(tab: Tab, picky: Picky, ask: ApiClient) -> None:
    page = tab.page
    await tab.open("dead-letters")
    await page.get_by_label("Select all").focus()
    await page.keyboard.press("Space")
    await expect(page.locator("[data-selected]")).to_have_text("4 selected")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await page.get_by_role("dialog").get_by_text("Discard 4 dead letters?").wait_for()
    await page.get_by_role("dialog").get_by_role("button", name="Discard").focus()
    await page.keyboard.press("Enter")
    await page.locator(".toast", has_text="4 discarded.").wait_for()
    await page.get_by_text("No dead letters", exact=True).wait_for()
    assert await _dead(ask, 0)


async def test_some_runs_of_a_group_are_replayed_and_the_rest_is_reported(
    tab: Tab, picky: Picky, ask: ApiClient
) -> None:
    picky.mended = True
    page = tab.page
    await tab.open("dead-letters")
    await page.locator(".group", has_text="order # refused").get_by_role("link", name="Show runs").click()
    rows = page.locator("#letters tbody tr")
    await expect(rows).to_have_count(3)
    await tab.loaded()
    await page.get_by_label("Select all on this page").check()
    await rows.nth(2).get_by_role("checkbox").uncheck()
    chosen = await rows.nth(0).get_attribute("data-key")
    await page.get_by_role("button", name="Replay", exact=True).click()
    confirm = page.get_by_role("dialog").get_by_role("button", name="Replay")
    await confirm.wait_for()
    # Handled elsewhere since it was selected.
    await ask("POST", "/dead-letters/discard", {"ids": [chosen]})
    await confirm.click()
    await page.locator(".toast", has_text="1 replayed. 1 not: handled before, or without budget.").wait_for()
    assert len((await ask("GET", "/dead-letters", cause="order # refused")).body["deadLetters"]) == 1


async def test_a_new_dead_letter_appears_and_the_selection_stays(
    tab: Tab, picky: Picky, ask: ApiClient
) -> None:
    page = tab.page
    await tab.open("dead-letters")
    await page.get_by_label("Select 3 of orders").check()
    await ask("POST", f"{JOBS}/orders/run", {"payload": {"error": "another cause"}})
    await page.locator(".group", has_text="another cause").wait_for()
    assert await page.get_by_label("Select 3 of orders").is_checked()
