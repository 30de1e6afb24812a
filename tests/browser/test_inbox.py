"""The inbox in a real browser: decided with one click, live, and accessible."""

from __future__ import annotations

from typing import Any

from tests.browser.conftest import NewTab, Tab
from tests.support.api_client import ApiClient
from tests.support.suggestions import suggest

HOSTILE = "</p><script>window.hacked=1</script>‮gnp<img src=x onerror=window.hacked=1>"
PULL: dict[str, Any] = {"schedule": "0 0 29 2 *", "target": {"kind": "pull"}}


async def _report(ask: ApiClient, name: str) -> None:
    """Make a run that waits for a person."""
    document = {**PULL, "verify": {"kind": "manual"}, "maxAttempts": 1}
    await ask("PUT", f"/agents/writer/jobs/{name}", document)
    run = (await ask("POST", f"/agents/writer/jobs/{name}/run")).body["id"]
    await ask("POST", "/runs/claim", {"worker": "w", "limit": 1, "waitMs": 20_000})
    body = {"attempt": 1, "status": "succeeded", "output": HOSTILE}
    assert (await ask("POST", f"/runs/{run}/complete", body)).status == 200


async def test_what_waits_is_decided_with_one_click(tab: Tab, ask: ApiClient) -> None:
    await ask("PUT", "/agents/writer/jobs/slow", PULL)
    await suggest(ask.app.services.store, "writer", "slow")
    await _report(ask, "first")
    await tab.open("")
    await tab.page.get_by_role("heading", name="Waits for a person").wait_for()
    badge = tab.page.locator('[data-figure="nav-inbox"]')
    await badge.get_by_text("2").wait_for()
    await tab.audit()
    await tab.open("inbox")
    await tab.page.get_by_role("button", name="Confirm").wait_for()
    await tab.audit()
    await tab.page.get_by_role("button", name="Confirm").click()
    await tab.page.get_by_role("button", name="Confirm").wait_for(state="detached")
    await tab.page.get_by_role("button", name="Dismiss").wait_for()
    await _report(ask, "second")
    await tab.page.get_by_role("link", name="job 'second'").wait_for()  # without a reload
    await tab.page.get_by_role("link", name="Suggestions 1").click()
    await tab.page.get_by_role("button", name="Dismiss").click()
    await tab.page.get_by_text("Nothing waits").wait_for()


async def test_a_job_that_changed_since_it_was_shown_is_not_approved(tab: Tab, ask: ApiClient) -> None:
    tab.expected += ["409", "net::ERR_FAILED"]
    page, job = tab.page, "/agents/writer/jobs/digest"
    await ask("PUT", "/agents/writer", {"approval": "required"})
    writer = await ask.new("agent", agent="writer")
    assert (await writer("PUT", job, {**PULL, "message": "harmless"})).status == 201

    async def state() -> str | None:
        found: str | None = (await ask("GET", job)).body["disabledReason"]
        return found

    await page.route("**/events?*", lambda route: route.abort())  # the page does not follow
    for place in (("agents", "writer", "jobs", "digest"), ("jobs",)):
        await tab.open(*place)
        if place == ("jobs",):
            await page.get_by_label("Actions for writer/digest").click()
        approve = page.get_by_role("button", name="Approve")
        await approve.wait_for()
        assert (await writer("PATCH", job, {"message": f"harmful {place}"})).status == 200
        await approve.click()
        if place == ("jobs",):
            await page.get_by_role("dialog").get_by_role("button", name="Approve").click()
        await page.locator(".toast.error").wait_for()
        assert await state() == "approval"
    await page.get_by_label("Actions for writer/digest").click()
    await page.get_by_role("button", name="Approve").click()
    await page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    await page.locator(".toast", has_text="is approved").wait_for()
    assert await state() is None


async def test_a_changed_definition_is_shown_without_a_reload(tab: Tab, ask: ApiClient) -> None:
    job = "/agents/writer/jobs/digest"
    await ask("PUT", job, {**PULL, "message": "before"})
    await tab.open("agents", "writer", "jobs", "digest")
    await tab.page.locator("#definition", has_text="before").wait_for()
    await ask("PATCH", job, {"message": "after", "schedule": "0 5 29 2 *"})
    await tab.page.locator("#definition", has_text="after").wait_for()
    await tab.page.locator("#ticks", has_text="05:00:00").first.wait_for()


async def test_the_inbox_fits_a_phone(new_tab: NewTab, ask: ApiClient) -> None:
    await _report(ask, "first")
    tab = await new_tab(phone=True)
    for path in ("inbox", ""):
        await tab.open(path)
        await tab.audit()
