"""The life of a job in the browser: it runs, is stopped, replayed, paused, restored; also on a phone."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from playwright.async_api import Route

from tests.browser.conftest import NewTab, Tab
from tests.support.api_client import ApiClient

SELDOM = "0 0 29 2 *"
JOBS = "/agents/default/jobs"
#: Clicks on a button, and again when the page is being left.
CLICK_TWICE = """async (name) => {
    const buttons = [...document.querySelectorAll("main button")];
    const button = buttons.find((each) => each.textContent.trim() === name);
    const left = new Promise((resolve) => navigation.addEventListener("navigate", resolve, { once: true }));
    button.click();
    await left;
    button.click();
}"""
HOSTILE = "</pre><script>window.hacked = 1</script>\"'><img src=x onerror='window.hacked = 1'>"


async def given(ask: ApiClient, name: str, target: dict[str, Any], **fields: Any) -> dict[str, Any]:
    reply = await ask("POST", JOBS, {"name": name, "schedule": SELDOM, "target": target, **fields})
    assert reply.status == 201, reply
    found: dict[str, Any] = reply.body
    return found


async def live(tab: Tab) -> None:
    """Wait until the page receives events."""
    await tab.page.locator("[data-live-state]", has_text="Live").wait_for()


async def see(tab: Tab, text: str, within: str = "main") -> None:
    """Wait until a text is visible."""
    await tab.page.locator(within).get_by_text(text).first.wait_for()


async def click(tab: Tab, name: str) -> None:
    await tab.page.locator("main").get_by_role("button", name=name, exact=True).click()


async def confirm(tab: Tab, name: str | None = None) -> None:
    dialog = tab.page.locator("dialog[open]")
    button = (
        dialog.locator("button[value=ok]")
        if name is None
        else dialog.get_by_role("button", name=name, exact=True)
    )
    await button.click()


async def test_a_job_runs_and_its_run_is_shown(tab: Tab, ask: ApiClient) -> None:
    await given(ask, "digest", {"kind": "function", "name": "nothing"})
    await tab.open("agents", "default", "jobs", "digest")
    await see(tab, "No runs yet.")
    await click(tab, "Run now")
    await tab.page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}$"))
    await see(tab, "Attempt 1")
    await see(tab, "Succeeded")
    await tab.page.locator("summary", has_text="Request").first.click()
    await see(tab, '"name": "nothing"')
    await tab.page.locator("main").get_by_role("link", name="digest").first.click()
    await see(tab, "Succeeded", "#runs")


async def test_a_second_click_before_the_next_page_is_there_does_nothing(tab: Tab, ask: ApiClient) -> None:
    await given(ask, "digest", {"kind": "function", "name": "nothing"})
    late = asyncio.Event()

    async def hold(route: Route) -> None:
        await late.wait()
        await route.continue_()

    await tab.page.route(re.compile(r":\d+/workspaces/default/runs/[0-9a-f-]{36}$"), hold)
    for number, name in enumerate(("Run now", "Wake"), start=1):
        late.clear()
        await tab.open("agents", "default", *(("jobs", "digest") if name == "Run now" else ()))
        await tab.page.evaluate(CLICK_TWICE, name)
        late.set()
        await tab.page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}$"))
        assert len((await ask("GET", "/runs")).body["runs"]) == number
    await tab.page.unroute_all(behavior="wait")


async def test_a_payload_is_sent_as_it_was_written(tab: Tab, ask: ApiClient) -> None:
    await given(ask, "task", {"kind": "pull"})
    await tab.open("agents", "default", "jobs", "task")
    await tab.page.get_by_label("More actions").click()
    await click(tab, "Run with a payload")
    large = 2**60 + 1  # JavaScript has no such number
    await tab.page.locator("dialog[open]").get_by_label("Payload").fill(f'{{"id": {large}, "share": 1.0}}')
    await confirm(tab, "Run")
    await tab.page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}$"))
    payload = (await ask("GET", f"/runs/{tab.page.url.rpartition('/')[2]}")).body["payload"]
    assert payload == {"id": large, "share": 1.0}


async def test_a_run_is_followed_live_and_stopped(tab: Tab, ask: ApiClient) -> None:
    await given(ask, "task", {"kind": "pull"})
    run = (await ask("POST", f"{JOBS}/task/run")).body["id"]
    await tab.open("runs", run)
    await see(tab, "waits for an executor")
    await live(tab)
    await tab.page.evaluate("window.same = true")
    (claimed,) = (await ask("POST", "/runs/claim", {"worker": "w1"})).body["runs"]
    assert claimed["id"] == run
    await see(tab, "on executor w1")
    await click(tab, "Stop")
    assert await tab.page.evaluate("window.same")
    await confirm(tab)
    await see(tab, "stopped on request")
    assert (await ask("GET", f"/runs/{run}")).body["state"] == "cancelled"


async def test_a_claimed_run_is_completed_in_a_dialog(tab: Tab, ask: ApiClient) -> None:
    await given(ask, "task", {"kind": "pull"}, maxAttempts=1)
    run = (await ask("POST", f"{JOBS}/task/run")).body["id"]
    await ask("POST", "/runs/claim", {"worker": "w1"})
    await tab.open("runs", run)
    await click(tab, "Complete")
    dialog = tab.page.locator("dialog[open]")
    await dialog.get_by_label("Outcome").select_option("failed")
    await dialog.get_by_label("Error, if it failed").fill(HOSTILE)
    await dialog.get_by_role("button", name="Complete").click()
    await see(tab, "It is a dead letter until it is replayed or discarded.")
    assert await tab.page.evaluate("window.hacked") is None


async def test_a_dead_letter_is_replayed(tab: Tab, ask: ApiClient) -> None:
    await given(ask, "broken", {"kind": "function", "name": "failing"})
    run = (await ask("POST", f"{JOBS}/broken/run")).body["id"]
    await tab.open("runs", run)
    await see(tab, "it never works")
    await click(tab, "Replay")
    await tab.page.wait_for_url(lambda url: "/runs/" in url and run not in url)
    await see(tab, "Replay of run")
    await tab.page.locator("main").get_by_role("link", name=run[-8:]).first.click()
    await see(tab, "What followed")


async def test_new_runs_do_not_move_the_list(tab: Tab, ask: ApiClient) -> None:
    await given(ask, "digest", {"kind": "function", "name": "nothing"})
    first = (await ask("POST", f"{JOBS}/digest/run")).body["id"]
    await tab.open("runs")
    await tab.page.locator(f"tr[data-key='{first}']").wait_for()
    await live(tab)
    second = (await ask("POST", f"{JOBS}/digest/run")).body["id"]
    button = tab.page.get_by_role("button", name="1 new run")
    await button.wait_for()
    assert await tab.page.locator(f"tr[data-key='{second}']").count() == 0
    await button.click()
    await tab.page.locator(f"tr[data-key='{second}']").wait_for()


async def test_a_job_is_paused_with_a_note_and_resumed(tab: Tab, ask: ApiClient) -> None:
    await given(ask, "digest", {"kind": "echo"})
    await tab.open("agents", "default", "jobs", "digest")
    await click(tab, "Pause")
    dialog = tab.page.locator("dialog[open]")
    await dialog.get_by_label("Until").fill("whenever")
    await dialog.get_by_role("button", name="Pause").click()
    await dialog.get_by_role("alert").get_by_text("until").wait_for()
    tab.expected.append("422")
    await dialog.get_by_label("Until").fill("in 2h")
    await dialog.get_by_label("Note").fill(HOSTILE)
    await tab.page.keyboard.press("Enter")
    await see(tab, "The job is paused")
    assert await tab.page.evaluate("window.hacked") is None
    await click(tab, "Resume")
    await see(tab, "Active")


async def test_an_earlier_revision_is_restored(tab: Tab, ask: ApiClient) -> None:
    await given(ask, "digest", {"kind": "echo"}, message="one")
    await ask("PATCH", f"{JOBS}/digest", {"message": HOSTILE})
    await tab.open("agents", "default", "jobs", "digest")
    await click(tab, "Restore")
    await confirm(tab)
    await tab.page.locator(".revisions > li").nth(2).wait_for()
    assert (await ask("GET", f"{JOBS}/digest")).body["message"] == "one"


async def test_a_new_secret_and_a_trigger_url_are_shown_once(tab: Tab, ask: ApiClient) -> None:
    await given(ask, "digest", {"kind": "webhook", "url": "http://127.0.0.1:9/"})
    await tab.open("agents", "default", "jobs", "digest")
    for action, button, prefix in (
        ("Rotate the secret", "Rotate", "whsec_"),
        ("Create a trigger URL", "Create", f"{tab.url}/hooks/"),
    ):
        await tab.page.get_by_label("More actions").click()
        await click(tab, action)
        await confirm(tab, button)
        shown = tab.page.locator("dialog[open] pre")
        await shown.wait_for()
        text = await shown.inner_text()
        assert text.startswith(prefix)
        async with tab.page.expect_navigation():
            await tab.page.keyboard.press("Escape")
        assert text not in await tab.page.content()


async def test_a_page_of_a_job_that_is_open_shows_new_runs(tab: Tab, ask: ApiClient) -> None:
    await given(ask, "digest", {"kind": "function", "name": "nothing"})
    await tab.open("agents", "default", "jobs", "digest")
    await live(tab)
    await tab.page.locator("#snippets summary").click()
    await ask("POST", f"{JOBS}/digest/run")
    await see(tab, "Succeeded", "#runs")
    assert await tab.page.locator("#snippets").get_attribute("open") is not None


async def test_pages_fit_a_phone_in_both_themes_with_hostile_texts(new_tab: NewTab, ask: ApiClient) -> None:
    long = "x" * 300
    await given(
        ask, "digest", {"kind": "echo"}, payload={"a": HOSTILE, "b": long}, description=HOSTILE + long
    )
    await ask("PATCH", f"{JOBS}/digest", {"payload": {"a": long + HOSTILE}})
    run = (await ask("POST", f"{JOBS}/digest/run")).body["id"]
    await given(ask, "broken", {"kind": "function", "name": "failing"})
    failed = (await ask("POST", f"{JOBS}/broken/run")).body["id"]
    tab = await new_tab(phone=True)
    for parts in (("runs",), ("runs", run), ("runs", failed), ("agents", "default", "jobs", "digest")):
        await tab.open(*parts)
        for details in await tab.page.locator("main details").all():
            await details.evaluate("(element) => { element.open = true; }")
        await tab.audit()


async def test_a_click_after_a_lost_response_does_not_do_it_again(tab: Tab, ask: ApiClient) -> None:
    tab.expected += ["net::ERR_FAILED"]
    job = await given(ask, "digest", {"kind": "function", "name": "nothing"})
    await tab.open("agents", "default", "jobs", "digest")
    keys = []

    async def lose(route: Route) -> None:
        keys.append(route.request.headers["idempotency-key"])
        assert (await route.fetch()).status == 201
        await route.abort()

    await tab.page.route("**/run", lose, times=1)
    await click(tab, "Run now")
    await tab.page.locator(".toast.error", has_text="cannot be reached").wait_for()
    await click(tab, "Run now")
    await tab.page.wait_for_url("**/runs/*")
    (run,) = (await ask("GET", f"{JOBS}/digest/runs")).body["runs"]
    assert tab.page.url.endswith(run["id"])
    await tab.open("agents", "default", "jobs", "digest")
    await click(tab, "Run now")  # what was answered is done again
    await tab.page.wait_for_url(lambda url: "/runs/" in url and not url.endswith(run["id"]))
    assert len((await ask("GET", f"{JOBS}/{job['id']}/runs")).body["runs"]) == 2


async def test_a_job_that_changed_since_it_was_shown_is_not_resumed(tab: Tab, ask: ApiClient) -> None:
    tab.expected += ["status of 412", "net::ERR_FAILED"]
    await given(ask, "digest", {"kind": "pull"})
    await ask("POST", f"{JOBS}/digest/pause", {})
    await tab.page.route("**/events?*", lambda route: route.abort())  # the page does not follow
    await tab.open("agents", "default", "jobs", "digest")
    await ask("PATCH", f"{JOBS}/digest", {"message": "another"})
    await click(tab, "Resume")
    await tab.page.locator(".toast.error", has_text="has changed").wait_for()
    assert (await ask("GET", f"{JOBS}/digest")).body["enabled"] is False
    await tab.page.reload()
    await tab.loaded()
    await click(tab, "Resume")
    await see(tab, "Active")
    assert (await ask("GET", f"{JOBS}/digest")).body["enabled"] is True
