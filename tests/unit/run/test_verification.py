"""What a success and a check mean for an attempt; evidence that is missing, too large or not JSON."""

from __future__ import annotations

import json

import pytest

from wakeful.errors import InvalidArgument
from wakeful.job.job import Work
from wakeful.job.policy import DEFAULT_POLICY, Policy
from wakeful.run.outcome import AwaitingVerification, Failed, Handled, Succeeded, Verification, conclude
from wakeful.run.verification import (
    MAX_EVIDENCE,
    MAX_TRIES,
    Verdict,
    collect_evidence,
    conclude_verified,
    judge_success,
    read_evidence,
    verified_outcome,
    write_evidence,
)

HTTP = {"kind": "http", "url": "https://a.example"}
DONE = Succeeded('{"external_id": 1}', '{"tokens":7}', 200)
NAMES = ("external_id", "rows")


def test_a_job_without_verify_and_evidence_keeps_its_success():
    assert judge_success(Work(), DONE) is DONE


@pytest.mark.parametrize(
    ("verify", "expected"),
    [
        (HTTP, Verification('{"kind":"http","url":"https://a.example"}')),
        (
            {"kind": "function", "name": "check"},
            Verification('{"kind":"function","name":"check"}', "function:check"),
        ),
        ({"kind": "manual", "timeoutMs": 5}, Verification('{"kind":"manual","timeoutMs":5}', "", 5)),
        ({"kind": "manual"}, Verification('{"kind":"manual"}', "", 86_400_000)),
    ],
)
def test_a_success_awaits_its_verification(verify, expected):
    outcome = judge_success(Work(verify=verify), DONE)
    assert outcome == AwaitingVerification(expected, DONE.output, DONE.usage, 200, '{"external_id":1}')


def test_missing_evidence_is_a_failed_attempt_without_a_check():
    outcome = judge_success(Work(verify=HTTP, evidence=("result_url",)), DONE)
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.usage, outcome.evidence, outcome.permanent) == (
        "unverified", '{"tokens":7}', '{"external_id":1}', False,
    )  # fmt: skip


def test_the_run_of_an_agent_class_does_not_wait():
    handled = DONE._replace(handled=Handled("default", "ada", "default", 0, 1))
    outcome = judge_success(Work({"kind": "agent"}, verify=HTTP), handled)
    assert outcome == handled._replace(evidence='{"external_id":1}')


def test_a_check_that_could_not_be_made_is_tried_again_a_few_times():
    failed = Failed("no connection")
    assert [verified_outcome(failed, DONE, tries) for tries in range(1, MAX_TRIES)] == [None] * (
        MAX_TRIES - 1
    )
    last = verified_outcome(failed, DONE, MAX_TRIES)
    assert isinstance(last, Failed)
    assert (last.reason, last.error, last.usage) == ("unverified", "verify: no connection", DONE.usage)


def test_a_check_that_says_no_is_not_tried_again():
    outcome = verified_outcome(Verdict(False), DONE, 1)
    assert isinstance(outcome, Failed)
    assert (outcome.error, outcome.permanent) == ("not verified", False)


def test_an_outcome_after_a_verification_does_not_count_its_usage_twice():
    given = ("r1", "j1", 2, Policy(max_attempts=2), DONE, 0, 5, Work(deliver=True), 0, None)
    finished = conclude_verified(*given)
    assert (finished.state, finished.usage, finished.usage_counted) == ("succeeded", DONE.usage, True)
    assert (finished.deliver, finished.attempt) == ((None, None), 2)


def test_a_run_that_awaits_its_verification_has_no_deadline_and_no_consequences():
    outcome = judge_success(Work(verify=HTTP), DONE)
    work = Work(deliver=True, wake_heartbeat=True)
    finished = conclude("r1", "j1", 1, DEFAULT_POLICY, outcome, 0, 5, work)
    assert (finished.state, finished.due_ms, finished.output) == ("running", None, DONE.output)
    assert (finished.deliver, finished.wake_heartbeat, finished.delete_job) == (None, False, False)
    assert finished.verification is not None


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
