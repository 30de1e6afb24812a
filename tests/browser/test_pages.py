"""Every page in real Chromium: empty and full, both themes, on a desktop and a phone."""

from __future__ import annotations

from tests.browser.conftest import AUDIT, NewTab, Tab
from tests.support.api_client import ApiClient
from tests.support.dashboard_pages import HOSTILE, PLAIN, fill


async def _check(tab: Tab, path: str) -> None:
    await tab.open(path)
    assert await tab.page.locator("main h1").count() == 1, path
    await tab.audit()
    tab.check()


async def test_every_page_is_accessible_on_a_desktop(tab: Tab, ask: ApiClient) -> None:
    world = await fill(ask, HOSTILE)
    for path in world.pages:
        await _check(tab, path)


async def test_every_page_is_accessible_on_a_phone(new_tab: NewTab, ask: ApiClient) -> None:
    tab = await new_tab(phone=True)
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
