"""The command palette: by keyboard alone, on every page, within what the role may do."""

from __future__ import annotations

import re

from playwright.async_api import expect

from tests.browser.conftest import PATIENCE_MS, NewTab, Tab
from tests.support.api_client import HOME, ApiClient

expect.set_options(timeout=PATIENCE_MS)
_NOTHING = {"kind": "function", "name": "nothing"}


async def some_jobs(ask: ApiClient) -> None:
    for agent, name in (("default", "digest"), ("ops", "backup")):
        document = {"name": name, "schedule": "0 0 1 1 *", "target": _NOTHING}
        assert (await ask("POST", f"{HOME}/agents/{agent}/jobs", document)).status == 201


async def test_the_palette_goes_to_jobs_agents_runs_and_pages(ask: ApiClient, tab: Tab) -> None:
    await some_jobs(ask)
    run = (await ask("POST", f"{HOME}/agents/ops/jobs/backup/run")).body["id"]
    for typed, option, address in (
        ("back", "ops/backup", r"/agents/ops/jobs/backup$"),
        ("ops", "ops", r"/agents/ops$"),
        (run[:13], run, rf"/runs/{run}$"),
        ("dead", "Dead letters", r"/dead-letters$"),
    ):
        await tab.open()
        await tab.page.keyboard.press("Control+k")
        field = tab.page.get_by_role("combobox", name="Search and commands")
        await expect(field).to_be_focused()
        await field.press_sequentially(typed)
        label = tab.page.locator(".palette-label", has_text=re.compile(f"^{re.escape(option)}$"))
        await expect(label).to_be_visible()
        wanted = tab.page.get_by_role("option").filter(has=label)
        for _ in range(10):
            if await wanted.get_attribute("aria-selected") == "true":
                break
            await tab.page.keyboard.press("ArrowDown")
        assert await field.get_attribute("aria-activedescendant") == await wanted.get_attribute("id")
        await tab.page.keyboard.press("Enter")
        await expect(tab.page).to_have_url(re.compile(address))
    tab.expected.append("404")  # a page of another part may not exist


async def test_the_palette_runs_pauses_and_resumes_a_job(ask: ApiClient, tab: Tab) -> None:
    await some_jobs(ask)
    await tab.open()
    await tab.page.keyboard.press("/")
    await tab.page.keyboard.type("run dig")
    await expect(tab.page.get_by_role("option")).to_have_count(1)
    await tab.page.keyboard.press("Enter")
    await expect(tab.page.locator(".toast")).to_contain_text("default/digest started")
    (run,) = (await ask("GET", "/runs")).body["runs"]
    assert (run["job"], run["trigger"]) == ("digest", "user")

    await tab.page.keyboard.press("Control+k")
    await tab.page.keyboard.type("pause ops/back")
    await expect(tab.page.get_by_role("option")).to_have_count(1)
    await tab.page.keyboard.press("Enter")
    await tab.page.get_by_role("dialog", name="Pause 1 job").get_by_label("Note").fill("from the palette")
    await tab.page.keyboard.press("Enter")
    await expect(tab.page.locator(".toast", has_text="1 job paused")).to_be_visible()
    job = (await ask("GET", f"{HOME}/agents/ops/jobs/backup")).body
    assert (job["disabledReason"], job["pauseNote"]) == ("paused", "from the palette")

    await tab.page.keyboard.press("Control+k")
    await tab.page.keyboard.type("resume ")
    await expect(tab.page.get_by_role("option")).to_have_text(re.compile("Resume ops/backup"))
    await tab.page.keyboard.press("Escape")
    await expect(tab.page.get_by_role("combobox")).to_have_count(0)


async def test_enter_runs_the_job_of_that_name_and_none_of_several_others(ask: ApiClient, tab: Tab) -> None:
    await some_jobs(ask)
    for number in range(9):
        document = {"name": f"old-backup-{number}", "schedule": "0 0 1 1 *", "target": _NOTHING}
        assert (await ask("POST", f"{HOME}/agents/archive/jobs", document)).status == 201
    await tab.open()
    for typed in ("run back", "run backup"):
        await tab.page.keyboard.press("Control+k")
        await tab.page.get_by_role("combobox").fill(typed)
        await tab.page.keyboard.press("Enter")  # before the results are shown
        if typed == "run back":
            await expect(tab.page.get_by_role("option")).to_have_count(8)
            assert (await ask("GET", "/runs")).body["runs"] == []
            await tab.page.keyboard.press("Escape")
    await expect(tab.page.locator(".toast")).to_contain_text("ops/backup started")
    assert [run["job"] for run in (await ask("GET", "/runs")).body["runs"]] == ["backup"]


async def test_after_a_failed_search_no_other_job_is_run(ask: ApiClient, tab: Tab) -> None:
    await some_jobs(ask)
    tab.expected.append("status of 503")
    await tab.open()
    await tab.page.keyboard.press("Control+k")
    await tab.page.keyboard.type("run dig")
    await expect(tab.page.get_by_role("option")).to_have_count(1)
    await tab.page.route("**/search?**", lambda route: route.fulfill(status=503, json={"detail": "busy"}))
    await tab.page.get_by_role("combobox").fill("run backup")
    await tab.page.keyboard.press("Enter")
    await expect(tab.page.locator(".toast")).to_contain_text("busy")
    await expect(tab.page.locator(".palette-none")).to_be_visible()
    assert (await ask("GET", "/runs")).body["runs"] == []


async def test_a_member_is_not_offered_what_it_may_not_do(ask: ApiClient, new_tab: NewTab) -> None:
    await some_jobs(ask)
    tab = await new_tab(await ask.new("member"), phone=True)
    await tab.open()
    await tab.page.get_by_role("button", name="Search").click()
    labels = tab.page.locator(".palette-label")
    await expect(labels.filter(has_text="Toggle theme")).to_be_visible()
    shown = await labels.all_inner_texts()
    assert "New job" not in shown
    assert "Keys" not in shown
    await tab.page.keyboard.type("pause dig")
    await expect(tab.page.get_by_text("Nothing found")).to_be_visible()
    assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_the_shortcuts_are_listed_and_the_focus_returns(tab: Tab) -> None:
    await tab.open()
    await tab.page.get_by_role("button", name="Light or dark").focus()
    await tab.page.keyboard.press("?")
    await expect(tab.page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    await tab.page.keyboard.press("Escape")
    await expect(tab.page.get_by_role("button", name="Light or dark")).to_be_focused()


async def test_the_palette_opens_a_job_that_waits_for_approval(ask: ApiClient, tab: Tab) -> None:
    await ask("PUT", "/agents/ops", {"approval": "required"})
    agent = await ask.new("agent", agent="ops")
    document = {"schedule": "0 0 1 1 *", "target": {"kind": "pull"}}
    assert (await agent("PUT", "/agents/ops/jobs/backup", document)).status == 201
    await tab.open()
    await tab.page.keyboard.press("/")
    await tab.page.keyboard.type("resume back")
    await expect(tab.page.get_by_role("option")).to_have_count(1)
    await tab.page.keyboard.press("Enter")
    await tab.page.get_by_role("button", name="Approve").wait_for()
    assert (await ask("GET", "/agents/ops/jobs/backup")).body["disabledReason"] == "approval"
