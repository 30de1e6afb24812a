"""Times in the zone of the viewer, ranges of runs, runs that are selected, and compared revisions."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from playwright.async_api import expect

from tests.browser.conftest import NewTab, Tab
from tests.support.api_client import JOBS, ApiClient

SELDOM = "0 0 29 2 *"
TOKYO = "Asia/Tokyo"


async def _run(ask: ApiClient, name: str, target: object, **body: object) -> str:
    await ask("PUT", f"{JOBS}/{name}", {"schedule": SELDOM, "target": target})
    return str((await ask("POST", f"{JOBS}/{name}/run", body)).body["id"])


async def test_times_are_in_the_zone_of_the_viewer_and_need_no_mouse(new_tab: NewTab, ask: ApiClient) -> None:
    run = await _run(ask, "digest", {"kind": "pull"})
    tab = await new_tab(phone=True, timezone_id=TOKYO, locale="en-GB")
    await tab.open()
    await tab.open("runs")
    time = tab.page.locator("td[data-label=Planned] time").first
    shown = await time.evaluate("(item) => [getComputedStyle(item, '::after').content, item.dataset.ms]")
    wanted = await tab.page.evaluate(
        "(ms) => new Date(Number(ms)).toLocaleTimeString('en-GB', {hour: '2-digit', minute: '2-digit'})",
        shown[1],
    )
    assert wanted in shown[0]
    await tab.open("runs", run)
    assert "JST" in await tab.page.locator(".timeline").inner_text()
    await tab.open("calendar")
    await tab.page.get_by_text(f"Times in {TOKYO}").wait_for()


async def test_runs_of_a_range_in_a_zone(new_tab: NewTab, ask: ApiClient) -> None:
    await _run(ask, "digest", {"kind": "pull"})
    tab = await new_tab(timezone_id=TOKYO)
    await tab.open()
    await tab.open("runs")
    now = f"{datetime.now(ZoneInfo(TOKYO)) - timedelta(minutes=5):%Y-%m-%dT%H:%M}"
    await tab.page.locator(".range > summary").click()
    await tab.page.get_by_label("From").fill(now)
    async with tab.page.expect_navigation():
        await tab.page.get_by_role("button", name="Filter").click()
    await expect(tab.page.locator("tr[data-key]")).to_have_count(1)
    await tab.loaded()
    assert await tab.page.get_by_label("From").input_value() == now
    await tab.page.locator(".range select").select_option("UTC")
    await tab.page.wait_for_url("**tz=UTC**")
    await tab.page.get_by_text("No run matches").wait_for()  # nine hours later


async def test_selected_runs_are_cancelled_and_replayed(tab: Tab, ask: ApiClient) -> None:
    waiting = [await _run(ask, f"job-{number}", {"kind": "pull"}) for number in range(3)]
    await _run(ask, "broken", {"kind": "function", "name": "failing"})
    await tab.open("runs?state=failed")
    await tab.page.locator("tr[data-key]").wait_for()
    await tab.open("runs")
    for run in waiting[:2]:
        await tab.page.locator(f"tr[data-key='{run}'] td.select input").check()
    await tab.page.get_by_role("button", name="Clear selection").click()
    await tab.page.get_by_label("Select all runs on this page").check()
    await expect(tab.page.locator("[data-selected]")).to_have_text("4 selected")
    await tab.page.get_by_role("button", name="Cancel them").click()
    await tab.page.locator("dialog[open]").get_by_role("button", name="Cancel 3 runs").click()
    await tab.page.locator(".toast", has_text="3 cancelled").wait_for()
    states = {(await ask("GET", f"/runs/{run}")).body["state"] for run in waiting}
    assert states == {"cancelled"}
    await expect(tab.page.locator("[data-selected]")).to_have_text("1 selected")
    await tab.page.get_by_role("button", name="Replay them").click()
    await tab.page.locator("dialog[open] button[value=ok]").click()
    await tab.page.locator(".toast", has_text="1 replayed").wait_for()


async def test_a_run_is_repeated_with_its_payload_to_edit(tab: Tab, ask: ApiClient) -> None:
    run = await _run(ask, "digest", {"kind": "echo"}, payload={"to": "ann", "n": 1.0})
    await tab.open("runs", run)
    await tab.page.locator(".subtitle", has_text="Succeeded").wait_for()  # then the buttons do not change
    await tab.page.get_by_role("button", name="Run with this payload").click()
    field = tab.page.get_by_role("dialog").get_by_label("Payload")
    text = await field.input_value()
    assert json.loads(text) == {"to": "ann", "n": 1.0}
    assert "1.0" in text
    await field.fill(text.replace("ann", "bob"))
    await tab.page.get_by_role("dialog").get_by_role("button", name="Run", exact=True).click()
    await tab.page.wait_for_url(lambda url: "/runs/" in url and run not in url)
    again = (await ask("GET", f"/runs/{tab.page.url.rpartition('/')[2]}")).body
    assert again["payload"]["to"] == "bob"


async def test_any_two_revisions_are_compared(tab: Tab, ask: ApiClient) -> None:
    await ask("POST", JOBS, {"name": "digest", "schedule": SELDOM, "message": "one"})
    for message in ("two", "three"):
        await ask("PATCH", f"{JOBS}/digest", {"message": message, "description": f"about {message}"})
    await tab.open("agents", "default", "jobs", "digest")
    await tab.page.get_by_label("Earlier revision").select_option("1")
    async with tab.page.expect_navigation():
        await tab.page.get_by_role("button", name="Compare").click()
    texts = await tab.page.locator(".compared pre").all_inner_texts()
    assert any('"one"' in text for text in texts)
    assert any('"three"' in text for text in texts)
    assert not any('"two"' in text for text in texts)
