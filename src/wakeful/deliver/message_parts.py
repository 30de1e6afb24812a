"""Splits a message that is longer than a service accepts. Pure."""

from __future__ import annotations

import unicodedata
from typing import Final

#: The most parts of a message: more of them take longer to send than a delivery may.
MAX_PARTS: Final = 20
#: The end of the last part if the message is longer than all parts.
CUT: Final = "… (cut)"
_JOINER: Final = "\u200d"
#: How far a part is shortened so that it does not end inside a character of several code points.
_LONGEST_CHARACTER: Final = 32
#: Characters that are longer where the service takes markup, which most do.
_SIZES: Final = {"\n": 2, "&": 5, "<": 4, ">": 4}
#: The same for services that take HTML.
_HTML_SIZES: Final = {**_SIZES, "\n": 6, " ": 6, "\t": 6, '"': 6, "'": 6}


def split_message(text: str, limit: int, *, html: bool = False) -> list[str]:
    """Return the parts of a text, each at most `limit` long: whole lines, or else whole words, if possible.

    Lengths are those of escaped text in UTF-16, which services count, or which are longer than what they
    count; with `html`, those of the text as HTML. A text of more than `MAX_PARTS` parts is cut.

    >>> split_message("one\\ntwo three\\nfour", 10)
    ['one', 'two three', 'four']
    """
    parts: list[str] = []
    start = 0
    while (end := _window_end(text, start, limit, html=html)) < len(text):
        if len(parts) == MAX_PARTS - 1:
            end = _window_end(text, start, max(1, limit - len(CUT)), html=html)
            return [*parts, text[start:end].rstrip() + CUT]
        end = _cut(text, start, end)
        part = text[start:end].rstrip()
        if part:
            parts.append(part)
        start = end
        while start < len(text) and text[start] in "\r\n":
            start += 1
    rest = text[start:].rstrip()
    return [*parts, rest] if rest or not parts else parts


def _window_end(text: str, start: int, limit: int, *, html: bool) -> int:
    """Return the end of the longest part that starts here: at least one character."""
    sizes = _HTML_SIZES if html else _SIZES
    size, end = 0, start
    while end < len(text):
        char = text[end]
        size += sizes.get(char, 2 if char > "\uffff" else 1)
        if size > limit and end > start:
            break
        end += 1
    return end


def _cut(text: str, start: int, end: int) -> int:
    """Return where to end a part: after a line, after a word, or between two characters."""
    if text[end] in "\r\n":
        return end
    first = start
    while first < end and text[first].isspace():
        first += 1
    line = text.rfind("\n", first, end)
    if line >= 0:
        return line + 1
    for at in range(end, first, -1):
        if text[at].isspace():
            return at + 1
    for at in range(end, max(start, end - _LONGEST_CHARACTER), -1):
        if not _joins(text, at):
            return at
    return end


def _joins(text: str, at: int) -> bool:
    """Return whether the code points before and after this position are parts of one character."""
    before, after = text[at - 1], text[at]
    return (
        unicodedata.category(after).startswith("M")
        or _JOINER in (before, after)
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # skin tones
        or "\U000e0020" <= after <= "\U000e007f"  # tags of flags
        or all("\U0001f1e6" <= each <= "\U0001f1ff" for each in (before, after))  # flags
    )
