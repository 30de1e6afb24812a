"""Every page in real Chromium: empty and full, both themes, on a desktop and a phone."""

from __future__ import annotations

from tests.browser.conftest import AUDIT, NewTab, Tab
from tests.support.api_client import ApiClient
from tests.support.dashboard_pages import HOSTILE, PLAIN, fill

#: Cards whose content is wider than they are.
_CUT = """[...document.querySelectorAll(".card")]
  .filter((card) => card.scrollWidth > card.clientWidth + 1).map((card) => card.id || card.className)"""


async def _check(tab: Tab, path: str) -> None:
    await tab.open(path)
    assert await tab.page.locator("main h1").count() == 1, path
    await tab.audit()
    assert await tab.page.evaluate(_CUT) == [], f"{path} has a card that is too narrow"
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


async def test_long_names_and_schedules_fit_into_the_lists_at_every_width(tab: Tab, ask: ApiClient) -> None:
    job = {
        "name": "a-very-long-name-that-was-generated-from-the-title-of-a-ticket",
        "schedule": "*/7 8-18 * * 1-5",
        "tz": "America/Argentina/ComodRivadavia",
        "labels": {"team": "x" * 60, "environment": "production-europe-west"},
        "target": {"kind": "echo"},
    }
    assert (await ask("POST", "/agents/default/jobs", job)).status == 201
    assert (await ask("POST", f"/agents/default/jobs/{job['name']}/run", {})).status < 300
    for width in (390, 780, 900, 1030, 1200):
        await tab.page.set_viewport_size({"width": width, "height": 800})
        for path in ("", "jobs", "runs"):
            await _check(tab, path)


async def test_a_tick_in_years_fits_into_the_list_of_jobs_at_every_width(tab: Tab, ask: ApiClient) -> None:
    for number, zone in enumerate(("UTC", "America/Argentina/ComodRivadavia", "Australia/Lord_Howe")):
        job = {
            "name": f"the-name-of-a-job-{number}",
            "schedule": "0 0 29 2 *",
            "tz": zone,
            "labels": {"team": "x" * 60},
            "target": {"kind": "function", "name": "failing"},
        }
        assert (await ask("POST", "/agents/default/jobs", job)).status == 201
        assert (await ask("POST", f"/agents/default/jobs/{job['name']}/run", {})).status < 300
    for width in (769, 780, 897, 1057, 1153, 1265):
        await tab.page.set_viewport_size({"width": width, "height": 800})
        await _check(tab, "jobs")


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
