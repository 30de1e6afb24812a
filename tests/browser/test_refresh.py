"""A refresh of a page keeps what a person has focused, opened or typed."""

from __future__ import annotations

from tests.browser.conftest import Tab
from tests.support.api_client import JOBS, ApiClient

JOB = {"name": "digest", "schedule": "0 0 29 2 *", "target": {"kind": "function", "name": "nothing"}}

#: Morphs a part of the page from one markup to another; returns whether the element with `.mine` is still the
#: same one, at its place, with the focus, and which markup results.
MORPH = """async ([before, after]) => {
    const assets = document.querySelector("script[type=module]").src.replace("app.js", "");
    const { morphChildren } = await import(assets + "morph.js");
    const parse = (text) => new DOMParser().parseFromString(text, "text/html").body;
    const part = document.createElement("div");
    part.append(...parse(before).childNodes);
    document.querySelector("main").append(part);
    const mine = part.querySelector(".mine");
    mine.focus();
    let moved = false;
    mine.addEventListener("blur", () => (moved = true));
    morphChildren(part, parse(after));
    const kept = mine.isConnected && part.querySelector(".mine") === mine && !moved;
    const result = [kept, part.innerHTML];
    part.remove();
    return result;
}"""
MINE = '<div class="block"><p>text</p><button class="mine">x</button></div>'


#: What happens to the page around the element that stays.
STAYS = {
    "an element appears before it": (MINE, f'<div class="notice">new</div>{MINE}'),
    "an element before it is gone": (f'<div class="notice">old</div>{MINE}', MINE),
    "text around it changes": (f"text {MINE} end", f'<div class="notice bad">new</div>\n{MINE} other'),
    "a row before it is gone": (
        '<p data-key="a">a</p><p data-key="b"><button class="mine">x</button></p><p data-key="c">c</p>',
        '<p data-key="b"><button class="mine">x</button></p><p data-key="c">c</p><p data-key="d">d</p>',
    ),
    "the look changes": (
        '<p class="state good">a</p><button class="mine small">x</button>',
        '<p class="state bad">b</p><button class="mine large">y</button>',
    ),
}
CHANGES = (
    ('<i></i><b class="mine"></b><u></u>', '<u></u><b class="mine"></b><i></i>'),
    ('<p id="a"></p><p class="mine" id="b"></p>', '<p class="mine" id="b"></p>x<p id="a"></p>'),
    ('<p class="mine"></p>', ""),
    ('<p class="mine"></p>', '<div id="a"><p></p></div> <p id="b"></p>'),
    ('<p id="a" class="mine"></p><i></i>', '<b></b>t<i class="z"></i><div id="a"></div>'),
)


async def test_an_element_that_stays_is_the_same_and_keeps_the_focus(tab: Tab) -> None:
    await tab.open()
    for what, (before, after) in STAYS.items():
        assert await tab.page.evaluate(MORPH, [before, after]) == [True, after], what
    for before, after in CHANGES:
        assert (await tab.page.evaluate(MORPH, [before, after]))[1] == after


async def test_an_open_dialog_and_its_text_stay_while_the_page_changes(tab: Tab, ask: ApiClient) -> None:
    await ask("POST", JOBS, JOB)
    await tab.open("agents", "default", "jobs", "digest")
    await tab.page.locator("[data-live-state]", has_text="Live").wait_for()
    await tab.page.get_by_role("button", name="Pause", exact=True).click()
    note = tab.page.locator("dialog[open]").get_by_label("Note")
    await note.fill("the receiver is being repaired")
    await ask("POST", f"{JOBS}/digest/run")
    await tab.page.locator("#runs", has_text="Succeeded").wait_for()
    assert await note.input_value() == "the receiver is being repaired"
    await tab.page.keyboard.press("Enter")
    await tab.page.get_by_text("The job is paused").first.wait_for()
    assert "repaired" in str((await ask("GET", f"{JOBS}/digest")).body)


async def test_a_menu_and_details_stay_open_when_a_notice_appears(tab: Tab, ask: ApiClient) -> None:
    await ask("POST", JOBS, JOB)
    await ask("POST", f"{JOBS}/digest/run")
    await tab.open("agents", "default", "jobs", "digest")
    await tab.page.locator("[data-live-state]", has_text="Live").wait_for()
    await tab.page.locator("#runs", has_text="Succeeded").wait_for()
    await tab.page.locator("#days-table > summary").click()
    await tab.page.get_by_label("More actions").click()
    await ask("POST", f"{JOBS}/digest/pause", {"note": "for a test"})
    await tab.page.get_by_text("The job is paused").first.wait_for()
    for opened in ("#days-table", "#more"):
        assert await tab.page.locator(opened).get_attribute("open") is not None, opened
