"""The form of a job in a browser: by keyboard, with errors, conflicts, tests and clock changes."""

from __future__ import annotations

from typing import Any

from tests.browser.conftest import NewTab, Tab
from tests.support.api_client import JOBS, ApiClient
from tests.support.receiver import Receiver
from tests.support.suggestions import suggest
from tests.support.waiting import eventually

SELDOM = "0 0 29 2 *"
#: Chromium logs each response with an error.
REFUSED = "the server responded with a status of 4"


async def opened(tab: Tab, *parts: str) -> Any:
    """Open a form and return its page."""
    await tab.open(*parts)
    return tab.page


async def fill(page: Any, **values: str) -> None:
    for name, value in values.items():
        await page.fill(f"#f-{name}", value)


async def tab_to(page: Any, selector: str) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(120):
        if await page.evaluate("s => document.activeElement?.matches(s)", selector):
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"{selector} does not get the focus")


async def test_a_job_is_created_by_keyboard_and_runs(ask: ApiClient, tab: Tab) -> None:
    page = await opened(tab, "jobs", "new")
    await tab_to(page, "#f-name")
    await page.keyboard.type("by-keyboard")
    await tab_to(page, "#f-schedule")
    await page.keyboard.type("@yearly")
    await page.locator("[data-explain]", has_text="00:00").wait_for()
    await tab_to(page, "#f-target")
    await page.keyboard.type("Function")
    await tab_to(page, "#f-target-function-name")
    await page.keyboard.type("nothing")
    await tab_to(page, "[data-test]")
    await page.keyboard.press("Enter")
    await page.get_by_text("This process has the function 'nothing'").wait_for()
    await tab_to(page, "[data-save]")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/agents/default/jobs/by-keyboard")
    await tab_to(page, "[data-path$='/run']")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/runs/*")

    async def ran() -> bool:
        (run,) = (await ask("GET", f"{JOBS}/by-keyboard/runs")).body["runs"]
        return bool(run["state"] == "succeeded")

    await eventually(ran)


async def test_clock_changes_are_marked_in_both_zones(new_tab: NewTab) -> None:
    tab = await new_tab(timezone_id="America/New_York")
    page = await opened(tab, "jobs", "new")
    await page.click("[data-group=timing] summary")
    await fill(page, schedule="30 2 * * *", tz="Europe/Berlin", startAt="2027-03-27T00:00")
    moved = page.locator(".ticks tr[data-dst=moved]")
    await moved.wait_for()
    assert await moved.locator("td").all_inner_texts() == [
        "Sun 2027-03-28 03:00 +02:00",
        "Sat 2027-03-27 21:00",
        await moved.locator("time").inner_text(),
    ]
    assert "02:30 does not exist on this day" in await page.locator(".ticks tr.note").inner_text()
    assert await page.locator(".ticks th").all_inner_texts() == [
        "Europe/Berlin",
        "America/New_York (yours)",
        "From now",
    ]
    assert "clocks go forward 1 hour on Sunday 28 March 2027" in await page.locator(".change").inner_text()

    await page.select_option("#f-dstGap", "skip")
    await page.get_by_text("02:30 does not exist on this day, and the job does not fire").wait_for()
    assert await moved.count() == 0

    await fill(page, startAt="2027-03-12T00:00")
    await page.get_by_text("Your clocks change (America/New_York).").wait_for()

    await fill(page, startAt="2027-10-30T00:00")
    await page.locator(".ticks tr[data-dst=first]").wait_for()
    await page.select_option("#f-dstOverlap", "second")
    await page.locator(".ticks tr[data-dst=second]").wait_for()


async def test_errors_are_beside_their_fields(ask: ApiClient, tab: Tab) -> None:
    tab.expected = [REFUSED]
    page = await opened(tab, "jobs", "new")
    await fill(page, schedule="every 5", tz="Mars/Here")
    await page.locator("#f-schedule-error", has_text="the unit is missing").wait_for()
    # The first preview may be of the schedule alone.
    await page.locator("#f-tz-error", has_text="unknown time zone 'Mars/Here'").wait_for()
    await fill(page, schedule="@daily", tz="", payload="{oops")
    assert "this is not JSON" in await page.inner_text("#f-payload-error")
    await page.click("[data-save]")
    assert await page.evaluate("document.activeElement.id") == "f-payload"
    await fill(page, payload="", name="Not A Slug")
    await page.click("[data-group=retries] summary")
    await fill(page, timeout="soon", maxAttempts="0")
    await page.click("[data-group=retries] summary")
    await page.click("[data-save]")
    await page.locator("#f-timeout-error", has_text="'soon' is not a number with a unit").wait_for()
    assert "is not a slug" in await page.inner_text("#f-name-error")
    assert "out of range" in await page.inner_text("#f-maxAttempts-error")
    assert await page.get_attribute("#f-timeout", "aria-invalid") == "true"
    assert (await ask("GET", "/jobs")).body["jobs"] == []

    await ask("POST", JOBS, {"name": "taken", "schedule": SELDOM})
    await fill(page, name="taken", timeout="", maxAttempts="")
    await page.click("[data-save]")
    await page.locator("[data-form-error]", has_text="already has a job 'taken'").wait_for()


async def test_another_job_that_got_the_name_meanwhile_is_not_changed(ask: ApiClient, tab: Tab) -> None:
    tab.expected = [REFUSED]
    await ask("POST", JOBS, {"name": "digest", "schedule": SELDOM})
    page = await opened(tab, "agents", "default", "jobs", "digest", "edit")
    await ask("PATCH", f"{JOBS}/digest", {"name": "old-digest"})
    await ask("POST", JOBS, {"name": "digest", "schedule": SELDOM})
    await fill(page, description="mine")
    await page.click("[data-save]")
    await page.locator("dialog .conflict").get_by_text("old-digest").wait_for()
    assert (await ask("GET", f"{JOBS}/digest")).body["description"] == ""
    await page.get_by_role("button", name="Save both changes").click()
    await page.wait_for_url("**/agents/default/jobs/old-digest")
    assert (await ask("GET", f"{JOBS}/digest")).body["description"] == ""
    assert (await ask("GET", f"{JOBS}/old-digest")).body["description"] == "mine"


async def test_a_concurrent_change_is_shown_and_not_overwritten(ask: ApiClient, tab: Tab) -> None:
    tab.expected = [REFUSED]
    await ask("POST", JOBS, {"name": "digest", "schedule": SELDOM})
    page = await opened(tab, "agents", "default", "jobs", "digest", "edit")
    await ask("PATCH", f"{JOBS}/digest", {"maxAttempts": 2})
    await fill(page, description="mine")
    assert await page.inner_text(".save-bar [data-state]") == "1 unsaved change"
    await page.click("[data-save]")
    await page.locator("dialog").get_by_text("changed since you opened this form").wait_for()
    row = page.locator(".conflict tr", has_text="Description")
    assert await row.locator(".changed").all_inner_texts() == ["mine"]
    assert (await ask("GET", f"{JOBS}/digest")).body["description"] == ""
    await page.get_by_role("button", name="Save both changes").click()
    await page.wait_for_url("**/jobs/digest")
    job = (await ask("GET", f"{JOBS}/digest")).body
    assert (job["description"], job["maxAttempts"]) == ("mine", 2)


async def test_the_test_button_sends_a_signed_request(ask: ApiClient, tab: Tab, receiver: Receiver) -> None:
    receiver.answers(200, "<b>thanks</b>")
    page = await opened(tab, "jobs", "new")
    await fill(page, name="digest", payload='{"n": 1.0}')
    await page.select_option("#f-target", "webhook")
    await fill(page, **{"target-webhook-url": receiver.url, "target-webhook-headers": "x-team: news"})
    await page.click("[data-test]")
    result = page.locator(".test-result")
    await result.wait_for()
    text = await result.inner_text()
    assert "The receiver answered 200" in text
    assert "<b>thanks</b>" in text
    assert "x-wakeful-signature" in text
    assert "whsec_" in text
    assert receiver.bodies == [b'{"job":"digest","payload":{"n":1.0}}']
    assert receiver.headers["x-team"] == "news"
    assert (await ask("GET", "/runs")).body["runs"] == []


async def test_a_payload_is_kept_and_the_secret_shown_once(ask: ApiClient, tab: Tab) -> None:
    page = await opened(tab, "jobs", "new")
    await fill(page, name="exact", schedule=SELDOM, payload='{"n": 1.0, "big": 12345678901234567890}')
    await fill(page, labels="team=ops\nurgent=")
    await page.select_option("#f-target", "webhook")
    await fill(page, **{"target-webhook-url": "http://127.0.0.1:9/"})
    await page.click("[data-save]")
    dialog = page.locator("dialog")
    await dialog.get_by_text("whsec_").wait_for()
    await dialog.get_by_role("button", name="I have copied it").click()
    await page.wait_for_url("**/jobs/exact")
    job = (await ask("GET", f"{JOBS}/exact")).body
    assert repr(job["payload"]) == "{'n': 1.0, 'big': 12345678901234567890}"
    assert job["labels"] == {"team": "ops", "urgent": ""}


async def test_only_changed_fields_are_sent(ask: ApiClient, tab: Tab) -> None:
    await ask(
        "POST",
        JOBS,
        {"name": "digest", "schedule": "every 90s", "timeout": "1m", "deliver": True, "payload": [1.0]},
    )
    page = await opened(tab, "agents", "default", "jobs", "digest", "edit")
    await fill(page, timeout="", message="new")
    await page.uncheck("#f-deliver")
    async with page.expect_request(lambda request: request.method == "PATCH") as sent:
        await page.click("[data-save]")
    assert (await sent.value).post_data_json == {"message": "new", "timeout": None, "deliver": None}
    await page.wait_for_url("**/jobs/digest")
    job = (await ask("GET", f"{JOBS}/digest")).body
    assert (job["timeoutMs"], job["deliver"], job["message"]) == (None, False, "new")


async def test_leaving_with_unsaved_changes_asks_first(tab: Tab) -> None:
    page = await opened(tab, "jobs", "new")
    asked: list[str] = []

    async def dismiss(dialog: Any) -> None:
        asked.append(dialog.type)
        await dialog.accept()

    page.on("dialog", dismiss)
    await page.locator("#f-name").press_sequentially("half")
    await page.get_by_role("link", name="Cancel").click()
    await page.wait_for_url("**/jobs")
    assert asked == ["beforeunload"]
    await opened(tab, "jobs", "new")
    await page.get_by_role("link", name="Cancel").click()
    await page.wait_for_url("**/jobs")
    assert asked == ["beforeunload"]


async def test_a_crowded_minute_is_avoided_with_a_button(ask: ApiClient, tab: Tab) -> None:
    for number in range(35):
        await ask("POST", JOBS, {"name": f"job-{number}", "schedule": "0 9 * * *"})
    await ask("GET", "/peaks")
    page = await opened(tab, "jobs", "new")
    await fill(page, schedule="0 9 * * *")
    notice = page.locator("[data-peak] .notice")
    await notice.wait_for()
    await notice.get_by_role("button", name="Add a jitter of 5m").click()
    await notice.wait_for(state="detached")
    assert await page.input_value("#f-jitter") == "5m"
    await fill(page, jitter="")
    await notice.get_by_role("button", name="Use").click()
    await notice.wait_for(state="detached")
    assert await page.input_value("#f-schedule") != "0 9 * * *"


async def test_the_texts_follow_the_form(tab: Tab) -> None:
    page = await opened(tab, "jobs", "new")
    await fill(page, name="tidy", schedule="every 15m", message="it's <i>done</i>")
    await page.click("[data-snippets] summary")
    yaml = page.locator("#snippet-yaml pre", has_text="every 15m")
    await yaml.wait_for()
    assert "it's <i>done</i>" in await yaml.inner_text()
    await fill(page, schedule="every 20m")
    await page.locator("#snippet-yaml pre", has_text="every 20m").wait_for()
    await page.focus("#tab-yaml")
    await page.keyboard.press("ArrowLeft")
    assert "client.jobs.create(" in await page.inner_text("#snippet-python pre")
    assert not await yaml.is_visible()


async def test_the_form_is_accessible_and_fits(ask: ApiClient, new_tab: NewTab) -> None:
    wide = {"kind": "webhook", "url": f"http://127.0.0.1:9/{'x' * 300}"}
    await ask(
        "POST",
        JOBS,
        {"name": "digest", "schedule": "30 2 * * *", "tz": "Europe/Berlin", "target": wide, "timeout": "5s"},
    )
    for phone in (True, False):
        tab = await new_tab(phone=phone)
        page = await opened(tab, "agents", "default", "jobs", "digest", "edit")
        await page.locator(".ticks tbody tr").first.wait_for()
        await page.evaluate("document.querySelectorAll('main details').forEach((each) => (each.open = true))")
        await page.locator("#snippet-yaml pre", has_text="digest").wait_for()
        await tab.audit()


async def test_members_read_the_form_only(ask: ApiClient, new_tab: NewTab) -> None:
    await ask("POST", JOBS, {"name": "digest", "schedule": SELDOM})
    tab = await new_tab(await ask.new("member"))
    page = await opened(tab, "agents", "default", "jobs", "digest", "edit")
    assert await page.is_disabled("#f-schedule")
    assert await page.locator("[data-save]").count() == 0
    await page.locator(".ticks tbody tr").first.wait_for()


async def test_a_suggestion_is_in_the_form_and_not_saved(ask: ApiClient, tab: Tab) -> None:
    await ask("POST", JOBS, {"name": "digest", "schedule": SELDOM})
    chosen = await suggest(ask.app.store, "default", "digest")
    change = (await ask("GET", f"/suggestions/{chosen}")).body["change"]
    page = await opened(tab, "agents", "default", "jobs", "digest", f"edit?suggestion={chosen}")
    assert await page.inner_text(".save-bar [data-state]") == "1 unsaved change"
    await page.click("[data-save]")
    await page.wait_for_url("**/jobs/digest")
    job = (await ask("GET", f"{JOBS}/digest")).body
    assert {name: job[name] for name in change} == change
