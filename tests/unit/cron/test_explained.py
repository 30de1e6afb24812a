"""What `explain` says of an expression is read back as an expression with the same ticks."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.effort import cases
from tests.unit.cron.expressions import expression, expression_with_seconds, expression_with_years
from tests.unit.cron.test_explain import SENTENCES
from wakeful.cron import Cron
from wakeful.cron.explain import explain
from wakeful.cron.explained import parse_explanation
from wakeful.cron.expression import parse
from wakeful.errors import InvalidSchedule

#: The week of a clock change in Berlin.
BEFORE = datetime(2026, 10, 22, tzinfo=UTC)
SHAPES = (expression, expression_with_seconds, expression_with_years)


@pytest.mark.parametrize("expr", SENTENCES)
def test_each_sentence_is_an_expression_again(expr: str):
    check(expr)


@settings(max_examples=cases(300, 3_000))
@given(st.randoms(use_true_random=False), st.sampled_from(SHAPES))
def test_any_sentence_is_an_expression_with_the_same_ticks(random: Random, shape):
    expr = shape(random)
    try:
        parse(expr)
    except InvalidSchedule:
        return
    check(expr)


def check(expr: str) -> None:
    sentence = explain(parse(expr), "Europe/Berlin")
    found = parse_explanation(sentence)
    assert found is not None, sentence
    assert found[1] == "Europe/Berlin"
    # `0,15,30,45` and `*/15` have one sentence; only the latter follows real time when clocks change.
    same = parse(found[0]).follows_real_time == parse(expr).follows_real_time
    for tz in ("UTC", "Europe/Berlin") if same else ("UTC",):
        assert Cron(found[0], tz).upcoming(BEFORE, 50) == Cron(expr, tz).upcoming(BEFORE, 50), sentence


_SENTENCES = [explain(parse(expr), "UTC") for expr in SENTENCES]


@settings(max_examples=cases(300, 3_000))
@given(st.data())
def test_other_text_is_no_sentence_and_takes_no_long_time(data: st.DataObject):
    words = data.draw(st.lists(st.sampled_from(_SENTENCES), min_size=1, max_size=4).map(", ".join)).split()
    drawn = data.draw(st.lists(st.sampled_from(words), min_size=1, max_size=90))
    text = " ".join(drawn) + " (UTC)"
    began = time.process_time()
    found = parse_explanation(text)
    assert time.process_time() - began < 2
    if found is not None:
        assert explain(parse(found[0]), found[1]) == text


def test_a_sentence_that_is_almost_one_is_refused():
    for text in (
        "At 09:00, 10:30 and 11:00, every day (UTC)",  # no product of hours and minutes
        "At 09:00, every day",
        "Every 7 minutes (UTC)",
        "At 09:00, on the 40th (UTC)",
        "At 25:00, every day (UTC)",
    ):
        assert parse_explanation(text) is None, text
