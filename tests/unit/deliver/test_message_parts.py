"""Parts of long messages: none is too long, nothing is lost, and lines, words and characters stay whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.deliver.message_parts import CUT, MAX_PARTS, split_message

_TEXT = st.text(st.sampled_from("ab \n\r\té👍🏽\u200d\u0301🇩🇪"), max_size=200)


def _utf16(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


@given(_TEXT, st.integers(min_value=12, max_value=40))
def test_parts_fit_and_contain_everything_in_order(text: str, limit: int):
    parts = split_message(text, limit)
    assert all(_utf16(part) <= limit for part in parts)
    assert len(parts) == 1 or all(part.strip() for part in parts)
    if len(parts) < MAX_PARTS:
        assert "".join("".join(parts).split()) == "".join(text.split())
    else:
        assert len(parts) == MAX_PARTS


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("short", ["short"]),
        ("", [""]),
        ("one line\nanother\n", ["one line", "another"]),
        ("one\ntwo\nthree", ["one\ntwo", "three"]),
        ("0123456789\nnext", ["0123456789", "next"]),
        ("0123456789ab", ["0123456789", "ab"]),
        ("    indented\n    line", ["    indent", "ed", "    line"]),
        ("first\n  indented", ["first", "  indented"]),
        ("012345678👍", ["012345678", "👍"]),
        ("0123456👩\u200d💻", ["0123456", "👩\u200d💻"]),
        ("012345678e\u0301", ["012345678", "e\u0301"]),
        ("01234567🇩🇪", ["01234567", "🇩🇪"]),
    ],
)
def test_parts_end_at_lines_words_and_characters(text: str, parts: list[str]):
    assert split_message(text, 10) == parts


def test_a_message_of_too_many_parts_is_cut():
    parts = split_message("x" * 160 * 100, 160)
    assert len(parts) == MAX_PARTS
    assert parts[-1].endswith(CUT)
    assert all(len(part) <= 160 for part in parts)
