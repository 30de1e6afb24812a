"""Real Chromium and a real server: a test drives the dashboard as a person does.

All tests of this folder share one event loop and one browser; each has its own server and browser context. A
test fails if the page logs an error, raises one, or sends a request to another host.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.api_client import ApiClient, served
from tests.support.receiver import Receiver, serving
from tests.support.sqlite_files import fresh_file
from tests.support.tools import tool
from wakeful import EngineConfig, Permanent, Wakeful

if find_spec("playwright") is None:
    pytest.skip("the package playwright is not installed", allow_module_level=True)

QUICK = EngineConfig(tick_ms=100, heartbeat_ms=200)
#: How long the browser waits for an element, in ms. A busy machine needs more than the default.
PATIENCE_MS = 60_000
DESKTOP = {"width": 1280, "height": 860}
PHONE = {"width": 390, "height": 844}
SMALL = {"width": 320, "height": 640}
AUDIT = (Path(__file__).parent / "accessibility.js").read_text()
_THEME = "(theme) => document.documentElement.setAttribute('data-theme', theme)"
_WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all tests of this folder in one event loop."""
    for item in items:
        if item.nodeid.startswith("tests/browser/"):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Any]:
    """Run the browser."""
    from playwright.async_api import async_playwright  # every worker imports this file

    program = tool("chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def app(tmp_path: Path) -> AsyncIterator[Wakeful]:
    """Return a running scheduler on SQLite, with some functions."""
    made = Wakeful(
        f"sqlite:///{fresh_file(tmp_path / 'wakeful.db')}",
        config=QUICK,
        secret_key="a key for tests",
        allow_private_targets=True,
    )

    @made.function()
    async def nothing() -> str:
        return "done"

    @made.function()
    async def failing() -> None:
        raise Permanent("it never works")

    async with made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def ask(app: Wakeful) -> AsyncIterator[ApiClient]:
    """Return an HTTP client of the server with an admin key: `await ask("GET", "/jobs")`."""
    async with served(app) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="session")
async def receiver() -> AsyncIterator[Receiver]:
    """Run a webhook receiver."""
    async with serving(Receiver()) as running:
        yield running


@dataclass
class Tab:
    """A browser tab that is signed in, and what went wrong in it."""

    page: Any
    url: str
    problems: list[str] = field(default_factory=list)
    #: texts of console errors that a test expects
    expected: list[str] = field(default_factory=list)

    async def open(self, *parts: str, workspace: str = "default") -> None:
        """Open a page of the workspace, with its scripts: `await tab.open("jobs", "new")`."""
        await self.page.goto(f"{self.url}/workspaces/{workspace}/{'/'.join(parts)}")
        await self.loaded()

    async def loaded(self) -> None:
        """Wait until the page and all its scripts have loaded."""
        await self.page.wait_for_load_state()
        await self.page.locator("[data-module]:not([data-loaded])").first.wait_for(state="detached")

    async def follow(self, name: str) -> None:
        """Click on a link, and wait until the page that it opens has loaded."""
        async with self.page.expect_navigation():
            await self.page.get_by_role("link", name=name).click()
        await self.loaded()

    async def audit(self) -> None:
        """Fail if the open page is not accessible in both themes, scrolls sideways or ran text as code."""
        where = self.page.url
        assert await self.page.evaluate(_WIDER) <= 0, f"{where} scrolls sideways"
        assert await self.page.evaluate("window.hacked") is None, where
        for theme in ("light", "dark"):
            await self.page.evaluate(_THEME, theme)
            assert await self.page.evaluate(AUDIT) == [], (where, theme)

    async def screenshot(self, path: str) -> None:
        """Write a picture of the whole page."""
        await self.page.screenshot(path=path, full_page=True)

    def check(self) -> None:
        """Fail if something went wrong that the test does not expect."""
        found = [each for each in self.problems if not any(text in each for text in self.expected)]
        assert not found, found


class NewTab:
    """Opens tabs; each has its own browser context."""

    def __init__(self, browser: Any, client: ApiClient) -> None:
        self._browser = browser
        self._client = client
        self.tabs: list[Tab] = []
        self._contexts: list[Any] = []

    async def __call__(
        self, client: ApiClient | None = None, *, phone: bool = False, theme: str = "light", **given: Any
    ) -> Tab:
        """Return a tab that is signed in with the key of a client (the admin's if none is given)."""
        used = client or self._client
        context = await self._browser.new_context(
            viewport=PHONE if phone else DESKTOP,
            is_mobile=phone,
            has_touch=phone,
            color_scheme=theme,
            **given,
        )
        context.set_default_timeout(PATIENCE_MS)
        if used.key is not None:
            reply = await context.request.post(f"{used.url}/sign-in", form={"key": used.key}, max_redirects=0)
            assert reply.status == 303, await reply.text()
        self._contexts.append(context)
        page = await context.new_page()
        tab = Tab(page, used.url)
        page.on("console", lambda message: self._note(tab, message))
        page.on("pageerror", lambda error: tab.problems.append(f"error: {error}"))
        page.on("request", lambda request: self._check_host(tab, request.url))
        self.tabs.append(tab)
        return tab

    @staticmethod
    def _note(tab: Tab, message: Any) -> None:
        if message.type in ("error", "warning"):
            tab.problems.append(f"console {message.type}: {message.text}")

    @staticmethod
    def _check_host(tab: Tab, url: str) -> None:
        if not url.startswith((tab.url, "data:", "blob:", "about:")):
            tab.problems.append(f"request to another host: {url}")

    async def close(self) -> None:
        """Close all tabs. Closing has no timeout of its own, and the browser may never answer."""
        async with asyncio.timeout(PATIENCE_MS / 1000):
            for context in self._contexts:
                await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def new_tab(chromium: Any, ask: ApiClient) -> AsyncIterator[NewTab]:
    """Return a function that opens tabs."""
    tabs = NewTab(chromium, ask)
    yield tabs
    await tabs.close()
    for tab in tabs.tabs:
        tab.check()


@pytest_asyncio.fixture(loop_scope="session")
async def tab(new_tab: NewTab) -> Tab:
    """Return a tab of an admin, in the light theme, as wide as a desktop."""
    return await new_tab()
