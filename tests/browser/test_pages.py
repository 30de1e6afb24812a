"""Every page in real Chromium: empty and full, both themes, on a desktop and a phone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.conftest import AUDIT, SMALL, NewTab, Tab
from tests.support.api_client import ApiClient
from tests.support.dashboard_pages import HOSTILE, PLAIN, fill

#: Cards whose content is wider than they are.
_CUT = """[...document.querySelectorAll(".card")]
  .filter((card) => card.scrollWidth > card.clientWidth + 1).map((card) => card.id || card.className)"""

_AXE = Path(__file__).parents[2] / ".venv/share/axe-core/package/axe.min.js"
#: Text that turns what follows it round, unless it is isolated.
TURNING = "\u202enur-emos"
#: Texts with the first character of such a name that are not alone in an element that isolates them, and
#: tooltips without marks around it.
_NOT_ISOLATED = """(first) => {
  const found = [];
  const walker = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const { data, parentElement: holder } = walker.currentNode;
    if (!data.includes(first) || holder.matches("script, title, pre, textarea, .code *")) continue;
    const text = data.trim();
    const content = ".markdown *, .bubble-text, .preview > span, .pre-line, .cause";
    const own = text.startsWith(first) || holder.matches(content);
    if (!own || getComputedStyle(holder).unicodeBidi === "normal") found.push(`${holder.tagName}: ${text}`);
  }
  for (const item of document.querySelectorAll("[data-confirm], [title]:not(.preview *)")) {
    const text = item.dataset.confirm ?? item.title;
    if (text.includes(first) && !text.startsWith(first)) found.push(`title: ${text}`);
  }
  if (document.title.includes(first)) found.push(document.title);
  return found;
}"""
#: Cells of numbers in which a number has a line break.
_BROKEN = """[...document.querySelectorAll("td.number")].filter((cell) => {
  const range = document.createRange();
  return [...cell.childNodes].some((node) => {
    if (node.nodeType !== Node.TEXT_NODE || !node.data.trim()) return false;
    range.selectNodeContents(node);
    return new Set([...range.getClientRects()].map((rect) => Math.round(rect.top))).size > 1;
  });
}).map((cell) => cell.textContent)"""


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


async def test_no_page_scrolls_sideways_on_the_smallest_phone(new_tab: NewTab, ask: ApiClient) -> None:
    tab = await new_tab(phone=True)
    await tab.page.set_viewport_size(SMALL)
    world = await fill(ask, f"{HOSTILE} {'long' * 60}")
    await ask("PUT", "/api/workspaces/default", {"budget": {"costPerDay": 1_234_567, "tokensPerDay": 10**12}})
    for path in world.pages:
        await _check(tab, path)
        assert await tab.page.evaluate("innerWidth") == SMALL["width"], path
        assert await tab.page.evaluate(_BROKEN) == [], f"{path} breaks a number"


async def test_names_do_not_turn_the_text_beside_them_round(tab: Tab, ask: ApiClient) -> None:
    world = await fill(ask, TURNING)
    keys = (await ask("GET", "/keys")).body["keys"]
    (key,) = (each["id"] for each in keys if each["name"] == TURNING)
    found = {}
    for path in (*world.pages, f"keys/{key}"):
        await tab.open(path)
        found[path] = await tab.page.evaluate(_NOT_ISOLATED, TURNING[0])
    assert {path: texts for path, texts in found.items() if texts} == {}
    assert "Revoke the key \u2068[U+202E]" in (await tab.page.get_attribute("[data-confirm]", "data-confirm"))


async def test_axe_finds_nothing_serious(new_tab: NewTab, ask: ApiClient) -> None:
    if not _AXE.exists():
        pytest.skip("axe-core is not installed: make test-tools")
    tab = await new_tab(bypass_csp=True)  # only the script of the test is not of the page
    world = await fill(ask, "# Hello\n\nA [link](https://a.example) in a text.")
    await ask("POST", "/agents/writer/jobs/daily-brief/run", {})
    for path in world.pages:
        await tab.open(path)
        await tab.page.evaluate(_AXE.read_text())
        found = await tab.page.evaluate(
            "axe.run(document, {resultTypes: ['violations']}).then(({violations}) => violations.map("
            "({id, impact, nodes}) => [id, impact, nodes.map((each) => each.html).slice(0, 3)]))"
        )
        assert [each for each in found if each[1] in ("serious", "critical")] == [], path


async def test_the_rows_of_a_list_are_short_on_a_phone(new_tab: NewTab, ask: ApiClient) -> None:
    tab = await new_tab(phone=True)
    world = await fill(ask)
    for path in ("jobs", "runs"):
        await tab.open(path)
        heights = await tab.page.evaluate(
            "[...document.querySelectorAll('main tbody tr')].map((e) => e.offsetHeight)"
        )
        assert len(heights) > 2
        assert max(heights) <= 130, (path, heights, world)


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
    agent = {"description": "x" * 80, "heartbeat": {"every": "30m"}, "budget": {"tokensPerDay": 10**9}}
    await ask("PUT", f"/agents/{job['name']}", {**agent, "tz": job["tz"]})
    await ask("POST", f"/agents/{job['name']}/jobs/heartbeat/run", {})
    await ask("POST", "/keys", {"name": "a key", "role": "agent", "agent": job["name"]})
    for width in (390, 780, 900, 1030, 1100, 1200):
        await tab.page.set_viewport_size({"width": width, "height": 800})
        for path in ("", "jobs", "runs", "agents", "keys", f"agents/default/jobs/{job['name']}"):
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
