"""Evidence: what is read, what is missing, and what is too large or not JSON."""

from __future__ import annotations

import json

import pytest

from wakeful.errors import InvalidArgument
from wakeful.run.evidence import MAX_EVIDENCE, collect_evidence, read_evidence, write_evidence

NAMES = ("external_id", "rows")


@pytest.mark.parametrize(
    ("output", "reported", "text"),
    [
        ('{"external_id": 1, "rows": 2, "other": 3}', None, '{"external_id":1,"rows":2}'),
        (' {"external_id": 1, "rows": false}', None, '{"external_id":1,"rows":false}'),
        ('{"external_id": 1, "summary": "s"}', '{"rows":2}', '{"external_id":1,"summary":"s","rows":2}'),
        ('{"external_id": 1}', '{"external_id":"x","rows":0}', '{"external_id":"x","rows":0}'),
        ("done", '{"external_id":1,"rows":2,"more":3}', '{"external_id":1,"rows":2,"more":3}'),
    ],
)
def test_what_was_reported_counts_and_else_the_fields_of_the_output(output, reported, text):
    assert collect_evidence(NAMES, output, reported) == (text, None)


@pytest.mark.parametrize("empty", ["null", '""', "[]", "{}"])
def test_a_field_that_is_null_or_empty_is_missing(empty):
    found = collect_evidence(NAMES, f'{{"external_id": {empty}, "rows": 1}}', None)
    assert found == ('{"rows":1}', "the evidence 'external_id' is missing")


@pytest.mark.parametrize(
    "output", [None, "", "done", "[1]", '"external_id"', '{"external_id": 1, "ro', "{" * 9_999]
)
def test_output_that_is_no_json_object_has_no_evidence(output):
    found = collect_evidence(NAMES, output, None)
    assert found == (None, "the evidence 'external_id', 'rows' are missing")


def test_why_reported_evidence_could_not_be_read_is_said():
    found = collect_evidence(("external_id",), "done", None, "the file is empty")
    assert found.problem == "the evidence 'external_id' is missing: the file is empty"
    assert collect_evidence((), "done", None, "the file is empty") == (None, None)


def test_fields_of_the_output_that_are_too_large_are_missing():
    large = json.dumps({"external_id": "x" * MAX_EVIDENCE})
    found = collect_evidence(("external_id",), large, '{"rows":1}')
    assert found.text == '{"rows":1}'
    assert "'external_id' is missing: it has" in (found.problem or "")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "it is not valid JSON"),
        ("{", "it is not valid JSON"),
        (b"\xff", "it is not valid JSON"),
        ("[1]", "it is not an object"),
        ('{"a": NaN}', "nan is not a number in JSON"),
        ('{"a": "\\ud800"}', "surrogate"),
        (json.dumps({"a": "x" * MAX_EVIDENCE}), "at most 16384"),
    ],
)
def test_evidence_that_is_no_small_json_object_is_refused(text, error):
    with pytest.raises(InvalidArgument, match=error):
        read_evidence(text)


def test_evidence_of_exactly_the_largest_size_is_accepted():
    assert len(write_evidence({"a": "x" * (MAX_EVIDENCE - 8)})) == MAX_EVIDENCE
