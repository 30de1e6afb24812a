"""The cause of a failure: the same for each failure of one kind, and another for each kind."""

from __future__ import annotations

import string
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wakeful.run.failure_cause import MAX_CAUSE, failure_cause

HEX = "0123456789abcdef"
VARIABLE = st.one_of(
    st.integers(0, 10**12).map(str),
    st.uuids().map(str),
    st.datetimes().map(lambda at: at.isoformat()),
    st.ip_addresses(v=4).map(str),
    st.tuples(st.ip_addresses(v=4), st.integers(1, 65535)).map(lambda each: f"{each[0]}:{each[1]}"),
    st.integers(0, 2**64).map(hex),
    st.text(string.ascii_letters, min_size=1, max_size=9).map(lambda text: f"'{text}'"),
    st.text(string.ascii_letters, min_size=1, max_size=9).map(lambda text: f"https://{text}.example/x?y"),
    st.text(HEX, min_size=6, max_size=40).map(lambda text: f"7{text}"),
)
TEXTS = [
    "could not read order {} of customer {}",
    "worker {} lost the connection to {}",
    "no space left for {}",
    "{} is not a valid date",
]


@given(st.sampled_from(TEXTS), st.lists(VARIABLE, min_size=4, max_size=4))
@example(TEXTS[0], ["1", "2", "3.5", "4e9"])
def test_the_same_failure_with_other_ids_numbers_and_addresses_has_the_same_cause(
    text: str, values: list[str]
) -> None:
    first, again = text.format(*values[:2]), text.format(*values[2:])
    assert failure_cause(None, None, first) == failure_cause(None, None, again)


@given(st.lists(st.sampled_from(TEXTS), min_size=2, max_size=2, unique=True), VARIABLE, VARIABLE)
def test_other_texts_are_other_causes(texts: list[str], one: str, two: str) -> None:
    first, second = (failure_cause(None, None, text.format(one, two)) for text in texts)
    assert first != second


@given(st.none() | st.text(max_size=20), st.none() | st.integers(100, 599), st.none() | st.text())
def test_every_failure_has_a_short_cause(reason: str | None, code: int | None, error: str | None) -> None:
    cause = failure_cause(reason, code, error)
    assert 0 <= len(cause) <= MAX_CAUSE
    assert "\n" not in cause or reason


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (("http", 500, "HTTP 500 Internal Server Error: trace 81"), "http 500"),
        (("http", 503, "HTTP 503 Service Unavailable"), "http 503"),
        (("gone", 410, "HTTP 410 Gone"), "http 410"),
        (("timeout", None, "timed out after 30 s"), "timeout"),
        (("timeout", 202, "not completed in time"), "timeout"),
        (("lost", None, "worker host:81:0a1b is lost"), "lost"),
        (("address_refused", None, "10.0.0.1 is a private address"), "address_refused"),
        (("unverified", None, "no evidence"), "unverified"),
        (("exit", None, "exit 2: usage: x"), "exit 2"),
        (("exit", None, "exit 3: usage: x"), "exit 3"),
        (("killed", None, "killed by SIGKILL"), "killed by SIGKILL"),
        ((None, None, "ValueError: 17 is odd"), "ValueError"),
        ((None, None, "asyncpg.exceptions.UniqueViolationError: key 9"), "UniqueViolationError"),
        (("permanent", None, "it never works"), "it never works"),
        (("permanent", None, "KeyError: 'x'"), "KeyError"),
        ((None, None, "the API said status: 429 for request 8f2e"), "the API said status: 429 for request #"),
        ((None, None, "cannot read /var/tmp/run-81/out.txt"), "cannot read #"),
        ((None, None, "first line 1\nsecond line"), "first line #"),
        ((None, None, None), "failed"),
        (("failed", None, ""), "failed"),
        (("network", None, ""), "network"),
    ],
)
def test_causes(failure: tuple[str | None, int | None, str | None], cause: str) -> None:
    assert failure_cause(*failure) == cause


@pytest.mark.parametrize(
    "part", ["a", "_a", "Aa.", "A", "a.", "a-", "a+", "/-", "/a", "a/", "//", "'", "@", "a@", ":", "1", "#,"]
)
@pytest.mark.parametrize("start", ["", "A", "Aa", "/", "#"])
def test_no_error_takes_long(start: str, part: str) -> None:
    text = f"{start}{part * (16_384 // len(part))}!"
    began = time.thread_time()
    failure_cause(None, None, text)
    failure_cause("network", None, text)
    assert time.thread_time() - began < 1.0
