"""Every page in real Chromium: empty and full, both themes, on a desktop and a phone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.conftest import NewTab, Tab
from tests.support.api_client import ApiClient
from tests.support.dashboard_pages import HOSTILE, PLAIN, fill

AUDIT = (Path(__file__).parent / "accessibility.js").read_text()
_WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


async def _check(tab: Tab, path: str) -> None:
    await tab.open(path)
    assert await tab.page.locator("main h1").count() == 1, path
    assert await tab.page.evaluate(_WIDER) <= 0, f"{path} scrolls sideways"
    assert await tab.page.evaluate("window.hacked") is None, path
    assert await tab.page.evaluate(AUDIT) == [], path
    tab.check()


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_every_page_is_accessible_on_a_desktop(new_tab: NewTab, ask: ApiClient, theme: str) -> None:
    tab = await new_tab(theme=theme)
    world = await fill(ask, HOSTILE)
    for path in world.pages:
        await _check(tab, path)


async def test_every_page_is_accessible_on_a_phone(new_tab: NewTab, ask: ApiClient) -> None:
    tab = await new_tab(phone=True, theme="dark")
    world = await fill(ask, f"{HOSTILE} {'long' * 60}")
    for path in world.pages:
        await _check(tab, path)


async def test_every_page_opens_in_an_empty_workspace(tab: Tab) -> None:
    for path in PLAIN:
        await _check(tab, path)


async def test_the_audit_finds_problems(tab: Tab) -> None:
    await tab.page.set_content(
        """<body style="background: white"><h1>Jobs</h1><h3>Runs</h3>
        <p style="color: #bbb">pale</p><input name="nameless"><button></button>
        <i id="twice"></i><i id="twice"></i><table><thead><tr><th>State</th></tr></thead></table>
        <a href="/" tabindex="3">first</a><div aria-describedby="nothing">text</div>"""
    )
    found = " ".join(await tab.page.evaluate(AUDIT))
    for problem in (
        "no lang", "not one main", "skips a level", "contrast", "control without label", "no name",
        "id twice", "without scope", "positive tabindex", "aria-describedby to nothing",
    ):  # fmt: skip
        assert problem in found, problem
    tab.expected.append("Content Security Policy")
