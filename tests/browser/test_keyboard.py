"""The usual tasks without a mouse, and what a screen reader hears of live changes."""

from __future__ import annotations

from typing import Any

from tests.browser.conftest import NewTab, Tab
from tests.support.api_client import JOBS, ApiClient
from tests.support.waiting import eventually

SELDOM = "0 0 29 2 *"
_FOCUSED = """([selector, text]) => {
  const at = document.activeElement;
  return Boolean(at && at.matches(selector) && (at.textContent + (at.ariaLabel ?? "")).includes(text));
}"""


class Keyboard:
    """A person who has no mouse."""

    def __init__(self, tab: Tab) -> None:
        self.tab = tab
        self.page: Any = tab.page

    async def reach(self, selector: str, text: str = "") -> None:
        """Press Tab until an element with this text has the focus."""
        for _ in range(150):
            if await self.page.evaluate(_FOCUSED, [selector, text]):
                return
            await self.page.keyboard.press("Tab")
        raise AssertionError(f"{selector} {text} does not get the focus on {self.page.url}")

    async def press(self, selector: str, text: str = "") -> None:
        """Reach an element and press Enter."""
        await self.reach(selector, text)
        await self.page.keyboard.press("Enter")

    async def write(self, selector: str, text: str) -> None:
        """Reach a field and replace what it has."""
        await self.reach(selector)
        await self.page.keyboard.press("Control+a")
        await self.page.keyboard.type(text)

    async def follow(self, selector: str, text: str, url: str) -> None:
        """Press a link or button, and wait until the page that it opens has loaded."""
        await self.press(selector, text)
        await self.arrive(url)

    async def go(self, text: str, url: str) -> None:
        """Go to a page by the command palette."""
        await self.page.keyboard.press("Control+k")
        await self.page.keyboard.type(text)
        await self.page.keyboard.press("Enter")
        await self.arrive(url)

    async def arrive(self, url: str) -> None:
        """Wait until a page has loaded."""
        await self.page.wait_for_url(url)
        await self.tab.loaded()

    async def sees(self, selector: str, text: str) -> None:
        """Wait until an element shows a text."""
        await self.page.locator(selector, has_text=text).first.wait_for()

    async def hears(self, text: str) -> None:
        """Wait until a screen reader says a text."""
        await self.page.locator("[data-announce][aria-live=polite]", has_text=text).wait_for(state="attached")


async def test_a_job_is_made_run_changed_and_deleted_without_a_mouse(new_tab: NewTab, ask: ApiClient) -> None:
    person = Keyboard(await new_tab(ask.with_key(None)))
    person.tab.expected += ["401"]
    await person.tab.open()
    # 1: sign in
    await person.write("#key", ask.key or "")
    await person.page.keyboard.press("Enter")
    await person.arrive("**/workspaces/default/")
    # 2 and 3: open a form by the palette, and create a job whose schedule is in words
    await person.go("New job", "**/jobs/new")
    await person.write("#f-name", "tidy")
    await person.write("#f-schedule", "every weekday at 9am")
    await person.sees("[data-explain]", "At 09:00, Monday through Friday")
    await person.reach("#f-target")
    await person.page.keyboard.type("Function")
    await person.write("#f-target-function-name", "nothing")
    await person.follow("[data-save]", "", "**/agents/default/jobs/tidy")
    # 4: run it, and see how the run ended
    await person.follow("[data-path$='/run']", "Run now", "**/runs/*")
    await person.sees("#run .state", "Succeeded")
    # 5: open the job again by its name
    await person.go("default/tidy", "**/agents/default/jobs/tidy")
    # 6 and 7: pause it with a note, and resume it; a screen reader says so
    await person.press("button", "Pause")
    await person.sees("dialog h2", "Pause tidy")
    await person.write("dialog input[name=note]", "the disk is full")
    await person.page.keyboard.press("Enter")
    await person.sees("#overview .state-paused", "Paused")
    await person.press("button", "Resume")
    await person.sees("#overview .state-active", "Active")
    # 8: edit it
    await person.follow("a.button", "Edit", "**/jobs/tidy/edit")
    await person.write("#f-schedule", "every 2 hours")
    await person.sees("[data-explain]", "Every 2 hours")
    await person.follow("[data-save]", "", "**/agents/default/jobs/tidy")
    # 9: find it in the list, and open it from there
    await person.go("Jobs", "**/jobs")
    await person.page.keyboard.press("/")
    await person.page.keyboard.type("tid")
    await person.page.keyboard.press("Enter")
    await person.follow("#list a", "tidy", "**/agents/default/jobs/tidy")
    # 10: delete it
    await person.press("#more summary")
    await person.press("#more button", "Delete")
    await person.press("dialog button[value=ok]")
    await person.arrive("**/jobs")
    assert (await ask("GET", f"{JOBS}/tidy")).status == 404
    # 11: sign out
    await person.follow("form[data-sign-out] button", "Sign out", "**/sign-in")


async def test_failures_keys_and_the_theme_without_a_mouse(tab: Tab, ask: ApiClient) -> None:
    job = {"name": "broken", "schedule": SELDOM, "target": {"kind": "function", "name": "failing"}}
    await ask("POST", JOBS, job)
    await ask("POST", f"{JOBS}/broken/run")

    async def failed() -> bool:
        return bool((await ask("GET", "/incidents")).body["incidents"])

    await eventually(failed)
    person = Keyboard(tab)
    await tab.open()
    # 12: acknowledge an incident
    await person.go("Incidents", "**/incidents")
    await person.follow("#list a, main a", "never works", "**/incidents/*")
    await person.write("#note", "it is known")
    await person.press("form[data-form=acknowledge] button", "Acknowledge")
    await person.sees("main dd", "it is known")
    # 13: filter runs, and replay a dead letter
    await person.go("Runs", "**/runs")
    await person.reach("select[name=state]")
    await person.page.keyboard.type("Failed")
    await person.arrive("**/runs?*state=failed*")
    await person.follow("main a[href*='/runs/0']", "", "**/runs/0*")
    dead = tab.page.url
    await person.press("button", "Replay")
    await tab.page.wait_for_url(lambda url: "/runs/0" in url and url != dead)
    await tab.loaded()
    # 14: create a key
    await person.go("Keys", "**/keys")
    await person.press("button", "New key")
    await person.write("dialog input[name=name]", "laptop")
    await person.page.keyboard.press("Enter")
    await person.sees("dialog", "wk_")
    async with tab.page.expect_navigation():
        await tab.page.keyboard.press("Escape")
    await tab.loaded()
    # 15: change the theme; the shortcuts are listed, and closing the list gives the focus back
    await person.reach("[data-theme-toggle]")
    before = await tab.page.evaluate("document.documentElement.dataset.theme ?? ''")
    await tab.page.keyboard.press("Enter")
    assert await tab.page.evaluate("document.documentElement.dataset.theme") != before
    await tab.page.keyboard.press("?")
    await person.sees("dialog.shortcuts", "Search and commands")
    await tab.page.keyboard.press("Escape")
    assert await tab.page.evaluate(_FOCUSED, ["[data-theme-toggle]", ""])


async def test_a_screen_reader_hears_what_changes(tab: Tab, ask: ApiClient) -> None:
    await ask("POST", JOBS, {"name": "tidy", "schedule": SELDOM, "target": {"kind": "pull"}})
    run = (await ask("POST", f"{JOBS}/tidy/run")).body["id"]
    person = Keyboard(tab)
    await tab.open("agents", "default", "jobs", "tidy")
    await person.sees("[data-live-state]", "Live")
    assert await tab.page.locator("[data-announce]").text_content() == "", "it says nothing by itself"
    await ask("POST", f"{JOBS}/tidy/pause")
    await person.hears("tidy: paused")
    await ask("POST", f"{JOBS}/tidy/resume")
    await person.hears("tidy: active")
    await tab.open("runs", run)
    await person.sees("[data-live-state]", "Live")
    await ask("POST", f"/runs/{run}/cancel")
    await person.hears("Run of tidy: cancelled")
