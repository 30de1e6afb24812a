"""What a person typed is not lost: by the end of the session, a reload, or a change by another person."""

from __future__ import annotations

from typing import Any

from tests.browser.conftest import NewTab, Tab
from tests.support.api_client import JOBS, ApiClient
from tests.support.waiting import eventually
from wakeful.service.auth.access import LOCAL

JOB = {"name": "digest", "schedule": "0 0 29 2 *", "target": {"kind": "echo"}}
EDIT = ("agents", "default", "jobs", "digest", "edit")
STORED = "JSON.stringify([{...localStorage}, {...sessionStorage}])"


async def _end_sessions(ask: ApiClient) -> None:
    """End all sessions of the admin's key, as by time or by another person."""
    principal = await ask.app.services.auth.keys.authenticate(ask.key)
    sessions = ask.app.services.auth.web_sessions
    await sessions.end_all(LOCAL, "default", principal.actor.removeprefix("key:"))


async def _sign_in_again(page: Any, ask: ApiClient) -> None:
    dialog = page.get_by_role("dialog", name="Your session has ended")
    await dialog.get_by_label("API key").fill("wk_wrong")
    await page.keyboard.press("Enter")
    await dialog.get_by_text("this key is not complete").wait_for()
    await dialog.get_by_label("API key").fill(ask.key or "")
    await dialog.get_by_role("button", name="Sign in and continue").click()
    await dialog.wait_for(state="detached")


async def test_a_form_of_an_ended_session_is_sent_after_sign_in(tab: Tab, ask: ApiClient) -> None:
    tab.expected += ["401"]
    await ask("POST", JOBS, JOB)
    await tab.open(*EDIT)
    await tab.page.fill("#f-description", "typed")
    await _end_sessions(ask)
    await tab.page.locator("[data-save]").click()
    await _sign_in_again(tab.page, ask)
    await tab.page.wait_for_url("**/jobs/digest")
    assert (await ask("GET", f"{JOBS}/digest")).body["description"] == "typed"
    assert "wk_" not in await tab.page.evaluate(STORED)


async def test_a_page_of_an_earlier_session_gets_the_token_of_the_new_one(tab: Tab, ask: ApiClient) -> None:
    tab.expected += ["403", "401"]  # the latter if the stream connects again before the sign-in
    await ask("POST", JOBS, JOB)
    await tab.open(*EDIT)
    await tab.page.fill("#f-description", "typed")
    await _end_sessions(ask)
    # As in another tab.
    await tab.page.context.request.post(f"{ask.url}/sign-in", form={"key": ask.key}, max_redirects=0)
    await tab.page.locator("[data-save]").click()
    await tab.page.wait_for_url("**/jobs/digest")
    assert (await ask("GET", f"{JOBS}/digest")).body["description"] == "typed"


async def test_another_person_does_not_send_it(new_tab: NewTab, ask: ApiClient) -> None:
    tab = await new_tab()
    tab.expected += ["401"]
    await ask("POST", JOBS, JOB)
    await tab.open(*EDIT)
    await tab.page.fill("#f-description", "typed")
    await _end_sessions(ask)
    other = await ask.new("admin")
    await tab.page.locator("[data-save]").click()
    tab.page.on("dialog", lambda dialog: dialog.accept())  # the form asks before it is left
    await tab.page.get_by_label("API key").fill(other.key or "")
    await tab.page.get_by_role("button", name="Sign in and continue").click()
    await tab.page.locator(".toast", has_text="Another person is signed in").wait_for()
    assert "typed" not in await tab.page.evaluate(STORED)
    assert (await ask("GET", f"{JOBS}/digest")).body["description"] == ""


async def test_drafts_survive_a_reload_and_end_with_the_session(tab: Tab, ask: ApiClient) -> None:
    page = tab.page
    await ask("POST", JOBS, JOB)
    await ask("PUT", "/agents/writer", {"target": {"kind": "echo"}})
    page.on("dialog", lambda dialog: dialog.accept())
    await tab.open("jobs", "new")
    await page.fill("#f-name", "weekly")
    await page.fill("#f-payload", '{"password": "x1"}')
    await page.select_option("#f-target", "webhook")
    await page.fill("#f-target-webhook-url", "https://u:pass@example.com/")
    await page.fill("#f-target-webhook-headers", "X-Key: plain")
    await page.reload()
    await page.get_by_text("What you typed before is here again").wait_for()
    assert await page.input_value("#f-name") == "weekly"
    assert await page.input_value("#f-target") == "webhook"
    assert await page.input_value("#f-payload") == ""
    stored = await page.evaluate(STORED)
    assert not [text for text in ("x1", "pass@", "plain") if text in stored], stored
    await page.get_by_role("button", name="Discard what I typed").click()
    await page.wait_for_function("!document.querySelector('.draft-notice')")
    assert await page.input_value("#f-name") == ""

    await tab.open("agents", "writer", "sessions", "main")
    await page.get_by_label("Message", exact=True).fill("a long message")
    await page.reload()
    await tab.loaded()
    assert await page.get_by_label("Message", exact=True).input_value() == "a long message"

    await tab.open("agents", "default", "jobs", "digest")
    await page.get_by_role("button", name="Pause", exact=True).click()
    await page.get_by_role("dialog").get_by_label("Note").fill("because")
    await page.reload()
    await tab.loaded()
    await page.get_by_role("button", name="Pause", exact=True).click()
    assert await page.get_by_role("dialog").get_by_label("Note").input_value() == "because"
    await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert "because" in await page.evaluate(STORED)
    await page.get_by_role("button", name="Sign out").click()
    await page.wait_for_url("**/sign-in")
    assert "draft:" not in await page.evaluate(STORED)


async def test_who_signs_out_on_the_sign_in_page_leaves_no_draft_in_any_tab(tab: Tab, ask: ApiClient) -> None:
    await ask("POST", JOBS, JOB)
    await tab.open(*EDIT)
    await tab.page.fill("#f-description", "typed")

    async def is_kept() -> bool:
        return "typed" in await tab.page.evaluate(STORED)

    await eventually(is_kept)
    other = await tab.page.context.new_page()
    await other.goto(f"{ask.url}/sign-in")
    await other.get_by_role("button", name="Sign out", exact=True).click()
    await other.get_by_label("API key").wait_for()

    async def is_gone() -> bool:
        return not await is_kept()

    await eventually(is_gone)


async def test_a_draft_of_an_earlier_version_does_not_undo_the_change_of_another(
    tab: Tab, ask: ApiClient
) -> None:
    tab.expected += ["status of 412"]
    path = "/api/workspaces/default"
    page = tab.page
    await ask("PUT", path, {"description": "old", "budget": {"costPerDay": 5}})
    await tab.open("workspace")
    await page.get_by_label("Budget: cost a day").fill("7")
    await ask("PUT", path, {"description": "new", "budget": {"costPerDay": 9}})
    await page.reload()
    await page.get_by_text("What you typed before is here again").wait_for()
    await page.get_by_role("button", name="Save").click()
    row = page.locator(".conflict tr", has_text="Budget: cost a day")
    await row.wait_for()
    assert await row.locator("td").all_inner_texts() == ["7", "9"]
    await page.get_by_role("button", name="Save mine over it").click()
    await page.locator(".conflict").wait_for(state="detached")
    await page.locator("dd", has_text="$7").wait_for()
    stored = (await ask("GET", path)).body
    assert (stored["description"], stored["budget"]) == ("new", {"costPerDay": 7})


async def test_without_scripts_the_form_is_filled_after_sign_in(new_tab: NewTab, ask: ApiClient) -> None:
    tab = await new_tab(java_script_enabled=False)
    await tab.page.goto(f"{ask.url}/workspaces/default/runs")
    await tab.page.get_by_label("Job").fill("digest")
    await _end_sessions(ask)
    await tab.page.get_by_role("button", name="Filter").click()
    await tab.page.get_by_label("API key").fill(ask.key or "")
    await tab.page.get_by_role("button", name="Sign in").click()
    assert await tab.page.get_by_label("Job").input_value() == "digest"
