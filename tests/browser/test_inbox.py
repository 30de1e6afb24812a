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


async def test_the_inbox_fits_a_phone(new_tab: NewTab, ask: ApiClient) -> None:
    await _report(ask, "first")
    tab = await new_tab(phone=True)
    for path in ("inbox", ""):
        await tab.open(path)
        await tab.audit()
