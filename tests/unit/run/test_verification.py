"""What a success and a check mean for an attempt."""

from __future__ import annotations

import pytest

from wakeful.job.job import Work
from wakeful.job.policy import DEFAULT_POLICY, Policy
from wakeful.run.outcome import AwaitingVerification, Failed, Handled, Succeeded, Verification, conclude
from wakeful.run.verification import MAX_TRIES, Verdict, conclude_verified, judge_success, outcome_of

HTTP = {"kind": "http", "url": "https://a.example"}
DONE = Succeeded('{"external_id": 1}', '{"tokens":7}', 200)


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
    assert [outcome_of(failed, DONE, tries) for tries in range(1, MAX_TRIES)] == [None] * (MAX_TRIES - 1)
    last = outcome_of(failed, DONE, MAX_TRIES)
    assert isinstance(last, Failed)
    assert (last.reason, last.error, last.usage) == ("unverified", "verify: no connection", DONE.usage)


def test_a_check_that_says_no_is_not_tried_again():
    outcome = outcome_of(Verdict(False), DONE, 1)
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
