"""Live updates in a real browser: pages change without a reload, also across a server restart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import pytest_asyncio

from tests.browser.conftest import NewTab, Tab
from tests.support.api_client import ApiClient
from tests.support.served_replica import ServedReplica
from tests.support.sqlite_files import fresh_file
from tests.support.waiting import eventually

SELDOM = "0 0 29 2 *"
#: What a browser logs about a server that is not there.
GONE = [
    "ERR_CONNECTION_REFUSED",
    "ERR_INCOMPLETE_CHUNKED_ENCODING",
    "ERR_CONNECTION_RESET",
    "ERR_EMPTY_RESPONSE",
]


async def shown(tab: Tab, selector: str, text: str) -> None:
    """Wait until an element shows a text."""
    await tab.page.locator(selector, has_text=text).first.wait_for(state="visible")


async def test_figures_change_without_a_reload(tab: Tab, ask: ApiClient) -> None:
    await tab.open()
    await shown(tab, "[data-live-state]", "Live")
    badge = tab.page.locator("[data-figure=nav-dead-letters]")
    assert not await badge.is_visible()
    await tab.page.evaluate("window.same = true")
    job = {"name": "broken", "schedule": SELDOM, "target": {"kind": "function", "name": "failing"}}
    assert (await ask("POST", "/agents/default/jobs", job)).status == 201
    await ask("POST", "/agents/default/jobs/broken/run")
    await shown(tab, "[data-figure=nav-dead-letters]", "1")
    assert await tab.page.evaluate("window.same")


def _streams(ask: ApiClient, count: int) -> bool:
    return ask.app.services.auth.connection_limits.open()["events"] == count


@pytest.mark.slow
async def test_a_hidden_tab_has_no_stream(tab: Tab, ask: ApiClient) -> None:
    await tab.page.clock.install()
    await tab.open()
    await shown(tab, "[data-live-state]", "Live")
    assert _streams(ask, 1)
    await tab.page.evaluate(
        "Object.defineProperty(document, 'hidden', {get: () => window.hiding ?? false, configurable: true})"
    )
    for hiding, streams in ((True, 0), (False, 1)):
        await tab.page.evaluate(
            "(hiding) => { window.hiding = hiding; document.dispatchEvent(new Event('visibilitychange')); }",
            hiding,
        )
        await tab.page.clock.run_for(6_000)
        await eventually(partial(_streams, ask, streams))


@pytest_asyncio.fixture(loop_scope="session")
async def replica(tmp_path: Path) -> AsyncIterator[ServedReplica]:
    """Run `wakeful serve` in its own process."""
    made = await ServedReplica(tmp_path / "home", f"sqlite:///{fresh_file(tmp_path / 'served.db')}").started()
    yield made
    made.kill()


@pytest.mark.slow
async def test_updates_continue_across_a_killed_and_restarted_server(
    new_tab: NewTab, replica: ServedReplica, tmp_path: Path
) -> None:
    async with aiohttp.ClientSession() as session:
        tab = await new_tab(ApiClient(replica.url, session, replica.key))
        tab.expected += GONE
        await tab.open()
        await shown(tab, "[data-live-state]", "Live")
        received = await _record_changes(tab.page)
        await replica.request("POST", "/agents/default/jobs", _job("before"))
        await _wait_for_jobs(tab.page, 1)
        replica.kill()
        await shown(tab, "[data-live-state]", "Reconnecting")
        port = urlsplit(replica.url).port or 0
        again = ServedReplica(tmp_path / "home", f"sqlite:///{tmp_path / 'served.db'}", port=port)
        try:
            await again.started()
            # The browser is not connected yet: it must not miss this.
            await again.request("POST", "/agents/default/jobs", _job("after"))
            await shown(tab, "[data-live-state]", "Live")
            await _wait_for_jobs(tab.page, 2)
            assert await received()
        finally:
            again.kill()


def _job(name: str) -> dict[str, Any]:
    return {"name": name, "schedule": SELDOM, "target": {"kind": "pull"}}


async def _record_changes(page: Any) -> Any:
    await page.evaluate(
        """() => {
            window.jobs = new Set();
            document.addEventListener("wakeful:changes", (event) => {
                for (const id of event.detail.changed.jobs) window.jobs.add(id);
            });
        }"""
    )

    async def received() -> bool:
        return bool(await page.evaluate("window.jobs.size"))

    return received


async def _wait_for_jobs(page: Any, number: int) -> None:
    await page.wait_for_function("(number) => window.jobs.size >= number", arg=number)


async def test_a_page_of_something_that_another_deletes_says_so(tab: Tab, ask: ApiClient) -> None:
    tab.expected += ["status of 404"]
    job = "/agents/writer/jobs/digest"
    await ask("PUT", job, {"schedule": "0 0 29 2 *", "target": {"kind": "pull"}})
    await tab.open("agents", "writer", "jobs", "digest")
    await ask("DELETE", job)
    await tab.page.locator(".toast.error", has_text="deleted meanwhile").wait_for()
    assert await tab.page.get_by_role("heading", name="digest", exact=True).count() == 1


async def test_a_page_goes_on_after_a_404_that_was_that_of_a_proxy(tab: Tab, ask: ApiClient) -> None:
    tab.expected += ["status of 404"]
    job = "/agents/writer/jobs/digest"
    await ask("PUT", job, _job("digest"))
    await tab.open("agents", "writer", "jobs", "digest")
    await shown(tab, "[data-live-state]", "Live")
    not_found = {"status": 404, "content_type": "text/html", "body": "<h1>404"}
    await tab.page.route("**/jobs/digest", lambda route: route.fulfill(**not_found), times=1)
    await ask("POST", f"{job}/pause", {})
    gone = tab.page.locator(".toast.error", has_text="deleted meanwhile")
    await gone.wait_for()
    await ask("PATCH", job, {"description": "Changed since."})
    await tab.page.get_by_text("Changed since.").wait_for()
    await gone.wait_for(state="detached")
