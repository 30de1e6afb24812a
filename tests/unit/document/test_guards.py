"""`verify` and `evidence` in a document: what is read, and what is refused."""

from __future__ import annotations

import pytest

from wakeful.document.guards import evidence, timeout_ms, verify
from wakeful.errors import InvalidArgument


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("manual", {"kind": "manual"}),
        ({"kind": "manual", "timeout": "4h"}, {"kind": "manual", "timeoutMs": 14_400_000}),
        ({"kind": "function", "name": "check"}, {"kind": "function", "name": "check"}),
        (
            {"kind": "http", "url": "https://a.example", "status": 204, "newer_than": "1m", "contains": "ok"},
            {
                "kind": "http",
                "url": "https://a.example",
                "status": 204,
                "contains": "ok",
                "newerThanMs": 60_000,
            },
        ),
        (
            {"kind": "command", "argv": ["test", "-s", "/a"]},
            {"kind": "command", "argv": ["test", "-s", "/a"]},
        ),
    ],
)
def test_a_check_is_read(value, read):
    assert verify(value) == read
    assert verify(read) == read


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("person", "is not an object"),
        ({}, "is not an object"),
        ({"url": "https://a.example"}, "it has no kind; it is 'webhook'"),
        ({"kind": "pull"}, "the kind 'pull' is not known"),
        ({"kind": "http"}, "needs a url"),
        ({"kind": "http", "url": 1}, "needs a url"),
        ({"kind": "http", "url": "https://a.example", "status": 99}, "status: 99 is out of range"),
        ({"kind": "http", "url": "https://a.example", "contains": ""}, "contains: it is empty"),
        ({"kind": "http", "url": "https://a.example", "newerThanMs": 0}, "newerThanMs: 0 is out of range"),
        ({"kind": "http", "url": "https://a.example", "method": "POST"}, "has no field 'method'"),
        ({"kind": "function", "name": "f", "timeout": "11m"}, "timeoutMs: 660000 is out of range"),
        ({"kind": "manual", "timeout": "31d"}, "out of range"),
        ({"kind": "manual", "name": "ada"}, "has no field 'name'"),
    ],
)
def test_a_check_that_can_never_run_is_refused(value, error):
    with pytest.raises(InvalidArgument, match=error):
        verify(value)


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("external_id", ("external_id",)),
        (["a", "b", "a"], ("a", "b")),
        ([], ()),
        (("a.b", "c-d"), ("a.b", "c-d")),
    ],
)
def test_evidence_is_read(value, read):
    assert evidence(value) == read


@pytest.mark.parametrize(
    "value", [1, {"a": 1}, [1], [""], ["a b"], ["a\n"], ["x" * 65], [str(n) for n in range(17)]]
)
def test_evidence_that_names_no_fields_is_refused(value):
    with pytest.raises(InvalidArgument):
        evidence(value)


def test_the_default_timeouts():
    assert timeout_ms({"kind": "webhook"}) == 30_000
    assert timeout_ms({"kind": "manual"}) == 24 * 3_600_000
    assert timeout_ms({"kind": "http", "timeoutMs": 5}) == 5
