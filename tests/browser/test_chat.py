"""A conversation with a real agent in a real browser: send, the answer appears live, stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest_asyncio

from tests.browser.conftest import NewTab, Tab
from tests.support.api_client import ApiClient
from tests.support.dashboard_pages import HOSTILE
from wakeful import Launch


@dataclass
class Talker:
    """An agent that answers when the test permits it."""

    said: list[str] = field(default_factory=list)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    answer: str = ""

    async def __call__(self, run: Launch) -> str:
        assert isinstance(run.payload, dict)
        self.said.append(str(run.payload["message"]))
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.stopped.set()
            raise
        return self.answer or f"You said: {self.said[-1]}"


@pytest_asyncio.fixture(loop_scope="session")
async def talker(ask: ApiClient) -> AsyncIterator[Talker]:
    """Run the agent `writer`."""
    made = Talker()
    ask.app.function("talker")(made)
    target = {"kind": "function", "name": "talker"}
    reply = await ask("PUT", "/agents/writer", {"target": target, "queue": {"debounceMs": 0}})
    assert reply.status == 201, reply
    yield made
    made.may_answer.set()


async def test_an_answer_appears_without_a_reload(tab: Tab, talker: Talker) -> None:
    page = tab.page
    await tab.open("agents", "writer", "sessions", "main")
    await page.evaluate("window.same = true")
    field = page.get_by_label("Message", exact=True)
    await field.fill("first line")
    await field.press("Shift+Enter")
    await field.press_sequentially("second line")
    await field.press("Enter")
    await page.locator(".bubble.user", has_text="first line").wait_for()
    assert await field.input_value() == ""
    await page.locator(".bubble.note", has_text="Answering").wait_for()
    assert talker.said == ["first line\nsecond line"]
    talker.may_answer.set()
    answer = page.locator(".bubble.assistant", has_text="You said: first line")
    await answer.wait_for()
    await page.locator(".bubble.note").wait_for(state="detached")
    assert await page.locator(".bubble.user").count() == 1, "the message is shown once"
    assert await page.evaluate("window.same")
    assert await answer.get_by_role("link", name="run").count() == 1


async def test_a_turn_is_stopped(tab: Tab, talker: Talker, ask: ApiClient) -> None:
    page = tab.page
    await tab.open("agents", "writer", "sessions", "main")
    await page.get_by_label("Message", exact=True).fill("a long task")
    await page.get_by_role("button", name="Send").click()
    await page.locator(".bubble.note", has_text="Answering").wait_for()
    await page.get_by_role("button", name="Stop", exact=True).click()
    await page.locator(".bubble.note", has_text="Stopped").wait_for()
    await talker.stopped.wait()
    assert (await ask("GET", "/agents/writer/sessions/main")).body["turns"] == []


async def test_messages_wait_and_stop_all_drops_them(tab: Tab, talker: Talker, ask: ApiClient) -> None:
    page = tab.page
    await tab.open("agents", "writer", "sessions", "main")
    field = page.get_by_label("Message", exact=True)
    await field.fill("the first")
    await field.press("Enter")
    await page.locator(".bubble.note", has_text="Answering").wait_for()
    await field.fill("the second")
    await field.press("Enter")
    await page.locator("#chat [data-key].waiting", has_text="the second").wait_for()
    await page.get_by_role("button", name="Stop all").click()
    await page.locator(".bubble.note", has_text="Stopped").wait_for()
    await page.locator(".bubble.waiting").wait_for(state="detached")
    assert talker.said == ["the first"]
    assert (await ask("GET", "/agents/writer/sessions/main")).body["messages"] == 0


async def test_a_refused_message_is_not_lost(tab: Tab, talker: Talker, ask: ApiClient) -> None:
    tab.expected += ["status of 409"]
    await ask("PUT", "/agents/writer", {"active": False})
    await tab.open("agents", "writer", "sessions", "main")
    await tab.page.get_by_label("Message", exact=True).fill("anyone there?")
    await tab.page.get_by_role("button", name="Send").click()
    await tab.page.locator(".toast.error", has_text="is not active").wait_for()
    assert await tab.page.get_by_label("Message", exact=True).input_value() == "anyone there?"
    assert await tab.page.locator(".bubble").count() == 0


async def test_messages_that_could_not_be_sent_go_back_into_the_field_before_what_was_typed_since(
    tab: Tab, talker: Talker
) -> None:
    tab.expected += ["net::ERR_FAILED"]
    page, sent, fails = tab.page, [], asyncio.Event()

    async def fail(route: Any) -> None:
        sent.append(route.request.post_data_json["message"])
        await fails.wait()
        await route.abort()

    await tab.open("agents", "writer", "sessions", "main")
    await page.route("**/agents/writer/messages", fail)
    field = page.get_by_label("Message", exact=True)
    for message in ("first", "second"):
        await field.fill(message)
        await field.press("Enter")
    await field.fill("third")
    assert sent == ["first"], "one after the other, so that they arrive in their order"
    fails.set()
    await page.locator(".toast.error", has_text="cannot be reached").wait_for()
    assert await field.input_value() == "first\nsecond\nthird"
    assert await page.locator(".bubble").count() == 0


async def test_the_reader_stays_where_they_scrolled(new_tab: NewTab, talker: Talker, ask: ApiClient) -> None:
    talker.may_answer.set()
    talker.answer = "\n".join(f"line {number}" for number in range(40)) + HOSTILE
    tab = await new_tab(phone=True, theme="dark")
    page = tab.page
    await tab.open("agents", "writer", "sessions", "main")
    field = page.get_by_label("Message", exact=True)
    await field.fill("tell me")
    await page.get_by_role("button", name="Send").click()
    await page.locator(".bubble.assistant").wait_for()
    at_end = "(e) => e.scrollHeight - e.scrollTop - e.clientHeight < 60"
    scroll = page.locator(".chat-scroll")
    assert await scroll.evaluate(at_end)
    # The page knows it when it gets the event.
    await scroll.evaluate(
        "(e) => new Promise((done) => { e.addEventListener('scroll', done, {once: true}); e.scrollTop = 0; })"
    )
    await ask("POST", "/agents/writer/messages", {"message": "from elsewhere", "session": "main"})
    await page.locator(".bubble.assistant").nth(1).wait_for(state="attached")
    assert await scroll.evaluate("(e) => e.scrollTop") == 0
    assert await page.evaluate("window.hacked") is None
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_a_conversation_is_opened_and_deleted(tab: Tab, talker: Talker, ask: ApiClient) -> None:
    talker.may_answer.set()
    page = tab.page
    await tab.open("agents", "writer")
    await page.get_by_label("Name of a conversation").fill("telegram:7")
    await page.get_by_role("button", name="Open chat").click()
    await page.get_by_text("Write the first one below.").wait_for()
    await page.get_by_label("Message", exact=True).fill("hello")
    await page.keyboard.press("Enter")
    await page.locator(".bubble.assistant", has_text="You said: hello").wait_for()
    await page.reload()
    await page.get_by_role("button", name="Delete").click()
    await page.locator("dialog[open] button[value=ok]").click()
    await page.wait_for_url("**/agents/writer")
    assert (await ask("GET", "/agents/writer/sessions/telegram:7")).status == 404


async def test_a_message_is_sent_once_though_its_response_was_lost(
    tab: Tab, talker: Talker, ask: ApiClient
) -> None:
    tab.expected += ["net::ERR_FAILED"]
    talker.may_answer.set()

    async def lose(route: Any) -> None:
        await route.fetch()
        await route.abort()

    await tab.open("agents", "writer", "sessions", "main")
    await tab.page.route("**/agents/writer/messages", lose, times=1)
    field = tab.page.get_by_label("Message", exact=True)
    await field.fill("buy one")
    await field.press("Enter")
    await tab.page.locator(".toast.error", has_text="cannot be reached").wait_for()
    assert await field.input_value() == "buy one"
    async with tab.page.expect_response("**/agents/writer/messages") as again:
        await field.press("Enter")
    assert (await (await again.value).all_headers())["idempotency-replayed"] == "true"
    await tab.page.locator(".bubble.assistant", has_text="You said: buy one").wait_for()
    assert talker.said == ["buy one"]


async def test_a_table_in_an_answer_breaks_no_word(new_tab: NewTab, talker: Talker, ask: ApiClient) -> None:
    talker.may_answer.set()
    talker.answer = (
        "| region | revenue | remark |\n|---|---:|---|\n| Europe | $48,120.50 | a long remark about it |"
    )
    tab = await new_tab(phone=True)
    await ask("POST", "/agents/writer/messages", {"message": "the figures", "session": "main"})
    await tab.open("agents", "writer", "sessions", "main")
    cell = tab.page.locator(".bubble td", has_text="$48,120.50")
    await cell.wait_for()
    lines = "const range = document.createRange(); range.selectNodeContents(cell);"
    assert await cell.evaluate(f"(cell) => {{ {lines} return range.getClientRects().length; }}") == 1
    assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
