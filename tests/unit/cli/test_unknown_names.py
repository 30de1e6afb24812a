"""Which names resemble each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.cli.unknown_names import did_you_mean, edit_distance, resembles, suggestions

NAMES = st.from_regex(r"[a-z]{1,9}(-[a-z0-9]{1,9}){0,2}", fullmatch=True)


@pytest.mark.parametrize(
    ("typed", "known"),
    [
        ("wrter", "writer"),
        ("wirter", "writer"),
        ("writters", "writer"),
        ("writerr", "writer"),
        ("dailyreport", "daily-report"),
        ("dialy-report", "daily-report"),
        ("daily-reprot", "daily-report"),
        ("defualt", "default"),
        ("wroker-1", "worker-1"),
    ],
)
def test_a_typing_error_resembles_the_name(typed: str, known: str):
    assert resembles(typed, known)
    assert resembles(known, typed)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("worker-1", "worker-2"),
        ("worker-1", "worker-12"),
        ("worker1", "worker"),
        ("worker-1", "worker"),
        ("v2-writer", "v3-writer"),
        ("node-01-a", "node-02-a"),
        ("sales-eu", "sales-us"),
        ("team-a", "team-b"),
        ("writer", "backup"),
        ("a", "b"),
        ("writer", "writer"),
    ],
)
def test_other_names_do_not_resemble_each_other(one: str, other: str):
    assert not resembles(one, other)
    assert not resembles(other, one)


@given(NAMES, st.integers(0, 99), st.integers(0, 99))
def test_names_that_differ_only_in_digits_never_resemble_each_other(name: str, one: int, other: int):
    assert not resembles(f"{name}-{one}", f"{name}-{other}")
    assert not resembles(f"{name}{one}", f"{name}{other}")
    assert suggestions(f"{name}-{one}", [f"{name}-{other}"]) == []


@given(NAMES, NAMES)
def test_resemblance_is_symmetric(one: str, other: str):
    assert resembles(one, other) == resembles(other, one)
    assert edit_distance(one, other) == edit_distance(other, one)


def test_the_most_similar_names_come_first_and_at_most_three():
    known = ["reporting", "reporter", "reports", "report", "reported", "backup"]
    assert suggestions("reportt", known) == ["report", "reports", "reported"]


def test_a_part_of_a_name_is_suggested_if_no_name_resembles_it():
    assert suggestions("report", ["daily-report", "backup"]) == ["daily-report"]
    assert suggestions("up", ["backup"]) == []
    assert suggestions("worker", ["worker-1"]) == []


def test_the_question_lists_the_names():
    assert did_you_mean(["digest"]) == "did you mean 'digest'?"
    assert did_you_mean(["digest", "digests"]) == "did you mean 'digest' or 'digests'?"
