"""The list of jobs in a browser: search, selection, bulk actions with undo, keyboard and phone."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from playwright.async_api import Route, expect

from tests.browser.conftest import PATIENCE_MS, NewTab, Tab
from tests.support.api_client import HOME, ApiClient

expect.set_options(timeout=PATIENCE_MS)
SELDOM = "0 0 1 1 *"
HOSTILE = "<img src=x onerror=alert(1)>"


async def some_jobs(ask: ApiClient, count: int, agent: str = "default", **fields: object) -> None:
    for number in range(count):
        document = {"name": f"job-{number:02d}", "schedule": SELDOM, **fields}
        made = await ask("POST", f"{HOME}/agents/{agent}/jobs", document)
        assert made.status == 201, made.body


def rows(tab: Tab) -> Any:
    return tab.page.locator("#list tbody tr")


async def states(ask: ApiClient) -> dict[str, str]:
    jobs = (await ask("GET", "/jobs", include_disabled="true", limit=500)).body["jobs"]
    return {f"{job['agentId']}/{job['name']}": job["disabledReason"] or "active" for job in jobs}


async def test_a_search_while_typing_keeps_the_address_and_the_back_button_works(
    ask: ApiClient, tab: Tab
) -> None:
    await some_jobs(ask, 12, labels={"note": HOSTILE})
    await some_jobs(ask, 3, agent="ops")
    await tab.open("jobs")
    await expect(rows(tab)).to_have_count(15)
    await expect(tab.page.locator("#list")).to_contain_text(HOSTILE)
    await tab.page.keyboard.press("/")
    await tab.page.keyboard.type("ops")
    await expect(rows(tab)).to_have_count(3)
    await expect(tab.page).to_have_url(re.compile(r"\?q=ops$"))
    await expect(tab.page.locator("[data-found]")).to_have_text("3 jobs")
    assert await tab.page.evaluate("document.activeElement.name") == "q", "the field keeps the focus"
    await tab.page.get_by_label("State").select_option("paused")
    await expect(tab.page.get_by_text("No job matches")).to_be_visible()
    await tab.page.go_back()
    await expect(rows(tab)).to_have_count(3)
    await expect(tab.page.get_by_label("Search by name or agent")).to_have_value("ops")
    await tab.page.go_back()
    await expect(rows(tab)).to_have_count(15)
    await tab.page.goto(f"{tab.url}/workspaces/default/jobs?q=ops%2Fjob-01")
    await expect(rows(tab)).to_have_count(1)


async def test_internal_jobs_are_hidden_until_the_switch_shows_them(ask: ApiClient, tab: Tab) -> None:
    await some_jobs(ask, 2)
    await ask("PUT", f"{HOME}/agents/ops", {"heartbeat": True, "target": {"kind": "pull"}})
    await ask("PUT", "/api/workspaces/default", {"alerts": {"url": "http://127.0.0.1:9/"}})
    await tab.open("jobs")
    await expect(rows(tab)).to_have_count(2)
    selection = await tab.page.locator("[data-found]").get_attribute("data-selection")
    counted = await ask("POST", "/jobs/pause", {**json.loads(selection), "dryRun": True})
    assert counted.body["count"] == 2, "what is selected by the filter is what it shows"
    await tab.page.get_by_label("Internal jobs").select_option("show")
    await expect(rows(tab)).to_have_count(4)
    await expect(tab.page).to_have_url(re.compile(r"\?internal=show$"))
    await tab.page.reload()
    await expect(rows(tab).filter(has_text="wakeful-workspace-alerts")).to_have_count(1)
    await tab.page.get_by_role("link", name="Clear").click()
    await expect(rows(tab)).to_have_count(2)


async def test_a_selected_range_is_paused_with_a_note_and_undone(ask: ApiClient, tab: Tab) -> None:
    await some_jobs(ask, 6)
    await tab.open("jobs")
    boxes = tab.page.locator("td.select input")
    await boxes.nth(1).check()
    await boxes.nth(4).click(modifiers=["Shift"])
    await expect(tab.page.locator("[data-selected]")).to_have_text("4 selected")
    await tab.page.locator("[data-bulk=pause]").click()
    dialog = tab.page.get_by_role("dialog", name="Pause 4 jobs")
    await expect(dialog.locator("li")).to_have_text([f"default/job-0{n}" for n in (1, 2, 3, 4)])
    await dialog.get_by_label("Note").fill(HOSTILE)
    await dialog.get_by_role("button", name="Pause 4 jobs").click()
    await expect(tab.page.locator(".toast")).to_contain_text("4 jobs paused")
    await expect(tab.page.locator("#list .state-paused")).to_have_count(4)
    assert [name for name, state in (await states(ask)).items() if state == "paused"] == [
        f"default/job-0{n}" for n in (1, 2, 3, 4)
    ]
    assert (await ask("GET", f"{HOME}/agents/default/jobs/job-02")).body["pauseNote"] == HOSTILE
    await tab.page.get_by_role("button", name="Undo").click()
    await expect(tab.page.locator("#list .state-paused")).to_have_count(0)
    assert set((await states(ask)).values()) == {"active"}


async def test_all_that_match_are_deleted_after_a_typed_confirmation(ask: ApiClient, tab: Tab) -> None:
    await ask.app.jobs.create_many([{"name": f"old-{n:03d}", "schedule": SELDOM} for n in range(130)])
    await some_jobs(ask, 2)
    await tab.open("jobs?q=old")
    await expect(rows(tab)).to_have_count(40)
    await tab.page.get_by_label("Select all jobs on this page").check()
    await expect(tab.page.locator("[data-selected]")).to_have_text("40 selected")
    await tab.page.get_by_role("button", name="Select all 130 that match").click()
    await expect(tab.page.locator("[data-selected]")).to_have_text("All 130 jobs that match are selected")
    await tab.page.locator("[data-bulk=delete]").click()
    dialog = tab.page.get_by_role("dialog", name="Delete 130 jobs")
    await expect(dialog).to_contain_text("and 120 more")
    confirm = dialog.get_by_role("button", name="Delete 130 jobs")
    await expect(confirm).to_be_disabled()
    await dialog.get_by_label('Type "delete 130" to confirm').fill("delete 13")
    await expect(confirm).to_be_disabled()
    await dialog.get_by_label('Type "delete 130" to confirm').fill("delete 130")
    await confirm.click()
    await expect(tab.page.locator(".toast")).to_contain_text("130 jobs deleted")
    await expect(tab.page.get_by_text("No job matches")).to_be_visible()
    assert list(await states(ask)) == ["default/job-00", "default/job-01"]


async def test_a_list_that_shows_another_filter_offers_no_action_on_all_that_match(
    ask: ApiClient, tab: Tab
) -> None:
    await ask.app.jobs.create_many([{"name": f"old-{n:03d}", "schedule": SELDOM} for n in range(60)])
    await some_jobs(ask, 2)
    tab.expected.append("status of 503")
    await tab.open("jobs")
    await tab.page.get_by_label("Select all jobs on this page").check()
    await tab.page.get_by_role("button", name="Select all 62 that match").click()
    await expect(tab.page.locator("[data-selected]")).to_have_text("All 62 jobs that match are selected")
    await tab.page.route("**/jobs?q=**", lambda route: route.fulfill(status=503, body="busy"))
    async with tab.page.expect_response(re.compile(r"\?q=job")):
        await tab.page.get_by_label("Search by name or agent").fill("job")
    await expect(tab.page.locator("[data-selected]")).to_have_text("40 selected")
    await expect(tab.page.locator("[data-select-all]")).to_be_hidden()
    await tab.page.unroute_all()
    await tab.page.get_by_label("Search by name or agent").fill("old")
    await expect(tab.page.locator("[data-found]")).to_have_text("60 jobs")
    await tab.page.get_by_label("Select all jobs on this page").check()
    await expect(tab.page.get_by_role("button", name="Select all 60 that match")).to_be_visible()


async def test_a_live_update_shows_the_filter_that_was_just_chosen(ask: ApiClient, tab: Tab) -> None:
    await some_jobs(ask, 3)
    await some_jobs(ask, 2, agent="ops")
    await tab.open("jobs")
    await tab.page.locator("[data-live-state]", has_text="Live").wait_for()
    late = asyncio.Event()

    async def hold(route: Route) -> None:
        if route.request.headers.get("x-wakeful-after") == "now":
            await late.wait()
        await route.continue_()

    await tab.page.route("**/jobs?q=**", hold)
    async with tab.page.expect_request(re.compile(r"\?q=ops")):
        await tab.page.get_by_label("Search by name or agent").fill("ops")
    await ask("POST", f"{HOME}/agents/ops/jobs", {"name": "new", "schedule": SELDOM})
    await expect(tab.page.locator("[data-found]")).to_have_text("3 jobs")
    await expect(rows(tab)).to_have_count(3)
    late.set()
    await tab.page.unroute_all(behavior="wait")


async def test_failures_of_single_jobs_are_listed(ask: ApiClient, new_tab: NewTab) -> None:
    await some_jobs(ask, 2, agent="ops")
    agent = await ask.new("agent", agent="ops")
    await agent("POST", f"{HOME}/agents/ops/jobs", {"name": "own", "schedule": SELDOM})
    tab = await new_tab(agent)
    await tab.open("jobs")
    await tab.page.get_by_label("Select all jobs on this page").check()
    await tab.page.locator("[data-bulk=delete]").click()
    await tab.page.get_by_role("button", name="Delete 3 jobs").click()
    failed = tab.page.get_by_role("dialog", name="What failed")
    await expect(failed.locator("li")).to_have_count(2)
    await expect(failed).to_contain_text("was created by an admin")
    await failed.get_by_role("button", name="Close").click()
    await expect(rows(tab)).to_have_count(2)


async def test_a_selected_job_that_was_deleted_stops_no_others(ask: ApiClient, tab: Tab) -> None:
    tab.expected += ["404", "net::ERR_FAILED"]
    await tab.page.route("**/events?*", lambda route: route.abort())  # the page does not follow
    await some_jobs(ask, 4)
    await tab.open("jobs")
    await tab.page.get_by_label("Select all jobs on this page").check()
    await ask("DELETE", f"{HOME}/agents/default/jobs/job-01")
    await tab.page.locator("[data-bulk=pause]").click()
    dialog = tab.page.get_by_role("dialog", name="Pause 3 jobs")
    await expect(dialog).to_contain_text("1 job cannot be changed: It was deleted meanwhile.")
    await ask("DELETE", f"{HOME}/agents/default/jobs/job-02")
    await dialog.get_by_role("button", name="Pause 3 jobs").click()
    await expect(tab.page.locator(".toast")).to_contain_text("2 jobs paused, 1 failed")
    assert await states(ask) == {"default/job-00": "paused", "default/job-03": "paused"}


async def test_jobs_that_wait_for_approval_are_not_resumed_with_others(ask: ApiClient, tab: Tab) -> None:
    await some_jobs(ask, 1, enabled=False)
    await ask("PUT", f"{HOME}/agents/ops", {"approval": "required"})
    agent = await ask.new("agent", agent="ops")
    await agent("POST", f"{HOME}/agents/ops/jobs", {"name": "own", "schedule": SELDOM})
    await tab.open("jobs")
    await tab.page.get_by_label("Select all jobs on this page").check()
    await tab.page.locator("[data-bulk=resume]").click()
    await tab.page.get_by_role("button", name="Resume 1 job").click()
    await expect(tab.page.locator(".toast", has_text="1 job resumed")).to_be_visible()
    await expect(tab.page.locator(".toast", has_text="approve each in its menu")).to_be_visible()
    assert await states(ask) == {"default/job-00": "active", "ops/own": "approval"}


async def test_runs_that_have_not_started_can_be_cancelled(ask: ApiClient, tab: Tab) -> None:
    await some_jobs(ask, 3, target={"kind": "pull"})
    await tab.open("jobs")
    await tab.page.get_by_label("Select all jobs on this page").check()
    await tab.page.locator("[data-bulk=run]").click()
    await tab.page.get_by_role("button", name="Run 3 jobs").click()
    await expect(tab.page.locator(".toast")).to_contain_text("3 runs started")
    await tab.page.get_by_role("button", name="Cancel those not started").click()
    await expect(tab.page.locator(".toast").last).to_contain_text("3 cancelled")
    runs = (await ask("GET", "/runs")).body["runs"]
    assert [run["state"] for run in runs] == ["cancelled"] * 3


async def test_the_menu_of_a_row_acts_on_that_job_by_keyboard_alone(ask: ApiClient, tab: Tab) -> None:
    await some_jobs(ask, 2)
    await tab.open("jobs")
    await tab.page.get_by_label("Actions for default/job-01").focus()
    await tab.page.keyboard.press("Enter")
    await tab.page.keyboard.press("Tab")
    await tab.page.keyboard.press("Tab")
    assert await tab.page.evaluate("document.activeElement.textContent") == "Pause"
    await tab.page.keyboard.press("Enter")
    await expect(tab.page.get_by_role("dialog", name="Pause 1 job")).to_be_visible()
    await tab.page.keyboard.type("by keyboard")
    await tab.page.keyboard.press("Enter")
    await expect(tab.page.locator("#list .state-paused")).to_have_count(1)
    assert await states(ask) == {"default/job-00": "active", "default/job-01": "paused"}


async def test_a_dialog_of_a_menu_gives_the_focus_back_to_the_menu(ask: ApiClient, tab: Tab) -> None:
    await some_jobs(ask, 1)
    await tab.open("jobs")
    menu = tab.page.get_by_label("Actions for default/job-00")
    await menu.focus()
    await tab.page.keyboard.press("Enter")
    await tab.page.get_by_role("button", name="Pause", exact=True).press("Enter")
    await expect(tab.page.get_by_role("dialog")).to_be_visible()
    await tab.page.keyboard.press("Escape")
    await expect(menu).to_be_focused()


async def test_the_list_fits_a_phone_and_shows_the_last_outcomes(ask: ApiClient, new_tab: NewTab) -> None:
    await some_jobs(ask, 2, target={"kind": "function", "name": "nothing"})
    await ask("POST", "/jobs/run", {"all": True})
    tab = await new_tab(phone=True, theme="dark")
    await tab.open("jobs")
    await expect(tab.page.locator(".chart-outcome-bars path.stroke-succeeded")).to_have_count(2)
    assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await tab.page.get_by_label("Select default/job-00").check()
    await expect(tab.page.locator("[data-selection-bar]")).to_be_visible()
    assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
