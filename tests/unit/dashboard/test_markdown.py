"""Markdown of people and agents cannot do more than format text."""

from __future__ import annotations

import asyncio
import tracemalloc
from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st

from wakeful.dashboard.markdown import LONGEST, markdown, prepare_markdown

TAGS = {
    "p", "em", "strong", "a", "code", "pre", "ul", "ol", "li", "blockquote", "hr", "br", "s",
    "table", "thead", "tbody", "tr", "th", "td",
}  # fmt: skip
ATTRIBUTES = {"href", "rel", "class", "start"}
_PARTS = st.sampled_from(
    [
        "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "</div>", "<!--",
        "<a href=javascript:x>",
        "[a](", "![a](", "javascript:alert(1)", "JaVaScRiPt&colon;x", "data:text/html,<b>", "https://a.example/",
        "//a.example", "mailto:a@b.example", ")", "]", "[x]: ", "<https://a.example>", "<javascript:x>",
        "`", "```", "~~~js onload=x\n", "|a|b|\n|:-:|--:|\n|1|2|", "# ", "> ", "- ", "1. ", "***", "~~", "\n",
        "\n\n", "\\", "&lt;", "&#x6A;avascript:", "\x00", "\u202e", '"', "'", " onclick=x ", "\t",
    ]
)  # fmt: skip


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        for name, value in attrs:
            assert name in ATTRIBUTES, name
            if name == "href":
                assert (value or "").lower().startswith(("http:", "https:", "mailto:")), value
                assert dict(attrs)["rel"] == "noopener noreferrer nofollow"
        if tag not in ("hr", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("hr", "br"):
            assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


@settings(max_examples=1_500, deadline=None)
@given(st.lists(st.one_of(_PARTS, st.text(max_size=8)), max_size=14).map("".join))
def test_no_text_makes_more_than_formatted_text_and_safe_links(text: str) -> None:
    reader = _Reader()
    reader.feed(str(markdown(text)))
    reader.close()
    assert reader.open == [], "all elements are closed"


def test_a_deep_or_long_text_is_shown_as_it_is() -> None:
    for text in ("> " * 5_000 + "x", "[" * 5_000, "*" * 20_001, "<b>" * LONGEST):
        assert "<b>" not in markdown(text)


def test_a_short_text_does_not_become_a_large_table():
    """It took a second of the server's time, for each message of a page."""
    columns = 500
    wide = f"|{'a|' * columns}\n|{'-|' * columns}\n" + "x\n" * 1000
    assert len(markdown(wide)) < 2 * len(wide)
    assert "<table>" in markdown("|a|b|\n|-|-|\n" + "|1|2|\n" * 500)


async def test_others_go_on_while_the_texts_of_a_page_are_rendered() -> None:
    texts = ["[" * 10_000 + str(number) for number in range(3)]
    preparing = asyncio.create_task(prepare_markdown([*texts, None, "short"]))
    turns = 0
    while not preparing.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 10
    assert all(markdown(text) is markdown(text) for text in texts)


def test_what_is_kept_is_bounded_in_bytes() -> None:
    tracemalloc.start()
    try:
        for number in range(600):
            markdown(f"{number} {'x' * LONGEST}")
        assert tracemalloc.get_traced_memory()[0] < 70_000_000
    finally:
        tracemalloc.stop()
