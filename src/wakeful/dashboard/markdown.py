"""Markdown of agents and people as HTML: answers, messages and outputs.

The text is not trusted. HTML in it stays text, images are links, links lead to http, https and mailto only,
and nothing has a style. Headings are paragraphs, so that a message does not change the outline of the page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from wakeful.values.bounded_cache import MB, bounded_cache, text_size

#: A longer text is shown as it is.
LONGEST: Final = 100_000
#: So is one whose tables may have more cells: those that are missing in a row are filled up.
_CELLS: Final = 10_000
#: A longer text is rendered in a thread: one of 16 KB takes up to half a second.
_SHORT: Final = 500
#: Of the texts that are kept with their HTML, which may be ten times as long. Those of a page fit into half.
_BUDGET: Final = 64 * MB
_thread: Final = ThreadPoolExecutor(1, "markdown")
_SCHEMES: Final = frozenset({"http", "https", "mailto"})
_LINK: Final[Mapping[str, str | int | float]] = {"rel": "noopener noreferrer nofollow"}


def _is_safe(url: str) -> bool:
    try:
        return urlsplit(url.strip()).scheme.lower() in _SCHEMES
    except ValueError:
        return False


def _parser() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": 20})
    made.enable(["table", "strikethrough"]).disable(["image", "html_block", "html_inline"])
    made.validateLink = _is_safe  # type: ignore[method-assign]
    return made


_PARSER: Final = _parser()


@bounded_cache(_BUDGET, lambda value, text: text_size(text, value))
def markdown(text: str) -> Markup:
    """Return a text as HTML.

    >>> markdown("# Hello *you*\\n<b>[a](https://a.example) [b](javascript:alert(1))")
    Markup('<p class="md-heading">Hello <em>you</em></p>\\n<p>&lt;b&gt;<a href="https://a.example"
    rel="noopener noreferrer nofollow">a</a> [b](javascript:alert(1))</p>\\n')
    """
    if len(text) > LONGEST or _count_cells(text) > _CELLS:
        return Markup('<p class="pre-line">{}</p>').format(text)
    try:
        tokens = _PARSER.parse(text)
        _restrict(tokens)
        return Markup(_PARSER.renderer.render(tokens, _PARSER.options, {}))
    except (RecursionError, ValueError):
        return Markup('<p class="pre-line">{}</p>').format(escape(text))


async def prepare_markdown(texts: Iterable[str | None]) -> None:
    """Render the long ones of these texts in a thread, so that `markdown` returns them at once.

    The texts of a page may take half a minute, in which this process would renew no lease.
    """
    long = [text for text in texts if text is not None and len(text) > _SHORT]
    if long:
        await asyncio.get_running_loop().run_in_executor(_thread, lambda: [*map(markdown, long)])


def _count_cells(text: str) -> int:
    """Return how many cells the tables of a text have at most."""
    lines = text.split("\n")
    return len(lines) * max(line.count("|") for line in lines)


def _restrict(tokens: Sequence[Token]) -> None:
    for token in tokens:
        token.attrs = {key: value for key, value in token.attrs.items() if key in ("href", "start")}
        if token.type == "link_open":
            safe = {"href": token.attrs["href"]} if _is_safe(str(token.attrs.get("href", ""))) else {}
            token.attrs = {**safe, **_LINK}
        elif token.type in ("heading_open", "heading_close"):
            token.tag = "p"
            token.attrs = {"class": "md-heading"} if token.type == "heading_open" else {}
        elif token.type == "fence":
            token.info = ""
        if token.children:
            _restrict(token.children)


def is_markdown(text: str) -> bool:
    """Return whether an output is shown as Markdown: it is not JSON, and not a single plain line.

    >>> (
    ...     is_markdown('{"a": 1}'),
    ...     is_markdown("done"),
    ...     is_markdown("# Report\\n- one"),
    ...     is_markdown("**12** new"),
    ... )
    (False, False, True, True)
    """
    start = text.lstrip()[:1]
    return start not in ("", "{", "[") and (
        "\n" in text.strip() or any(mark in text for mark in ("**", "](", "`"))
    )
