"""Which attempts count towards `max_attempts`, and how long the next one waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wakeful.job.job import NO_WORK, Work
from wakeful.job.policy import Backoff, Policy
from wakeful.run.outcome import (
    UNCOUNTED,
    AwaitingCallback,
    Failed,
    Finished,
    Outcome,
    Skipped,
    Succeeded,
    conclude,
    find_timeout,
)

THRICE = Policy(max_attempts=3, backoff=Backoff(1_000, 60_000))
COUNTED = Failed("refused")
NOT_COUNTED = Failed("no function 'work'", reason="not_registered", counted=False)


def _ended(outcome: Failed, attempt: int, failed_attempts: int) -> Finished:
    return conclude("r1", "j1", attempt, THRICE, outcome, 0, 0, failed_attempts=failed_attempts)


def test_failed_attempts_are_counted_and_not_launches():
    states = [(_ended(COUNTED, 9, failed).state, failed + 1) for failed in range(3)]
    assert states == [("retrying", 1), ("retrying", 2), ("failed", 3)]
    assert [_ended(COUNTED, 9, failed).failed_attempts for failed in range(3)] == [1, 2, 3]


def test_the_backoff_follows_the_failed_attempts_and_not_the_launches():
    first, second = _ended(COUNTED, 40, 0).due_ms, _ended(COUNTED, 41, 1).due_ms
    assert first is not None
    assert second is not None
    assert 750 <= first <= 1_250
    assert 1_500 <= second <= 2_500


def test_an_uncounted_failure_is_retried_without_end_after_a_bounded_wait():
    for attempt in (1, 2, 7, 1_000_000):
        ended = _ended(NOT_COUNTED, attempt, 2)
        assert (ended.state, ended.failed_attempts) == ("retrying", 2)
        assert ended.due_ms is not None
        assert UNCOUNTED.base_ms * 3 // 4 <= ended.due_ms <= UNCOUNTED.max_ms * 5 // 4


def test_a_failure_that_is_permanent_ends_the_run_whether_or_not_it_counts():
    assert _ended(NOT_COUNTED._replace(permanent=True), 1, 0).state == "failed"


@pytest.mark.parametrize("outcome", [Succeeded("ok", response_code=204), AwaitingCallback(5, 202), Skipped()])
def test_a_success_does_not_change_the_count(outcome: Succeeded | AwaitingCallback | Skipped):
    ended = conclude("r1", "j1", 4, THRICE, outcome, 0, 0, failed_attempts=2)
    assert ended.failed_attempts == 2
    assert ended.response_code == getattr(outcome, "response_code", None)


def test_the_status_of_a_failed_answer_is_recorded_whether_or_not_it_is_tried_again():
    refused = COUNTED._replace(response_code=503)
    assert [_ended(refused, 1, failed).response_code for failed in (0, 2)] == [503, 503]


def _conclude(outcome: Outcome, policy: Policy = THRICE, work: Work = NO_WORK, failed: int = 0) -> Finished:
    return conclude("r1", "j1", 4, policy, outcome, 1_000, 2_000, work, failed_attempts=failed)


ROW = Finished("r1", "j1", 4, "", 1_000, 2_000)
GONE = Failed("no", permanent=True, pause_job=True, reason="gone")


def test_a_success_is_written_with_what_the_job_wants_done_after_it():
    outcome = Succeeded("said", '{"tokens":1}', 201)
    plain = ROW._replace(state="succeeded", output="said", usage='{"tokens":1}', response_code=201)
    assert _conclude(outcome) == plain
    assert _conclude(outcome, Policy(delete_after_run=True)) == plain._replace(delete_job=True)
    work = Work(deliver=True, channel="slack", to="ada", wake_heartbeat=True)
    assert _conclude(outcome, work=work) == plain._replace(deliver=("slack", "ada"), wake_heartbeat=True)


def test_no_attempt_has_failed_unless_the_caller_says_so():
    assert Finished("r1", None, 1, "succeeded", 0, 0).failed_attempts == 0
    assert conclude("r1", None, 1, THRICE, Succeeded(), 0, 0).failed_attempts == 0


def test_a_skipped_run_says_why_and_asks_for_the_end_of_a_job_that_runs_once():
    skipped = ROW._replace(state="skipped", output="no news", reason="precheck", failed_attempts=1)
    assert _conclude(Skipped("no news"), failed=1) == skipped
    once = Policy(delete_after_run=True, disable_after=1)
    assert _conclude(Skipped("no news", "budget"), once, failed=1) == skipped._replace(
        reason="budget", delete_job=True
    )


def test_a_run_with_a_callback_stays_running_until_its_deadline():
    assert _conclude(AwaitingCallback(500, 202), failed=2) == ROW._replace(
        state="running", due_ms=2_500, response_code=202, failed_attempts=2
    )


def test_a_failure_is_retried_with_its_reason_and_what_it_used():
    retrying = _conclude(Failed("refused", usage='{"tokens":1}', response_code=503))
    assert retrying == ROW._replace(
        state="retrying", due_ms=retrying.due_ms, error="refused", reason="failed", usage='{"tokens":1}',
        failed_attempts=1, response_code=503,
    )  # fmt: skip
    assert _conclude(Failed("slow", reason="timeout")).reason == "timeout"


@pytest.mark.parametrize(("retry_after_ms", "later"), [(0, False), (1, False), (90_000, True)])
def test_the_delay_that_the_target_requests_holds_if_it_is_longer(retry_after_ms: int, later: bool):
    backoff_ms = THRICE.backoff.delay_ms(1, "r1")
    due_ms = _conclude(Failed("busy", retry_after_ms=retry_after_ms)).due_ms
    assert due_ms == 2_000 + (retry_after_ms if later else backoff_ms)


def test_the_delay_after_a_failure_that_does_not_count_follows_the_attempt():
    assert _conclude(NOT_COUNTED).due_ms == 2_000 + UNCOUNTED.delay_ms(4, "r1")
    assert (UNCOUNTED.base_ms, UNCOUNTED.max_ms) == (500, 60_000)


@pytest.mark.parametrize(
    ("outcome", "policy", "reason", "disable"),
    [
        (Failed("no"), Policy(max_attempts=1), None, None),
        (Failed("no", permanent=True), Policy(), "permanent", None),
        (Failed("no", permanent=True, reason="refused"), Policy(), "refused", None),
        (GONE, Policy(), "gone", "gone"),
        (Failed("no", permanent=True, pause_job=True), Policy(), "permanent", "failed"),
        (Failed("no"), Policy(max_attempts=1, delete_after_run=True), None, "failed"),
        (
            Failed("no", permanent=True, pause_job=True, reason="gone"),
            Policy(delete_after_run=True),
            "gone",
            "gone",
        ),
    ],
)
def test_the_last_failure_ends_the_run_and_may_disable_the_job(
    outcome: Failed, policy: Policy, reason: str | None, disable: str | None
):
    outcome = outcome._replace(usage='{"tokens":1}', response_code=410)
    assert _conclude(outcome, replace(policy, disable_after=7)) == ROW._replace(
        state="failed", error="no", reason=reason, usage='{"tokens":1}', disable_job=disable, disable_after=7,
        failed_attempts=1, response_code=410,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("started_ms", "timeout_ms", "now_ms", "expected"),
    [
        (1_000, None, 10**12, None),
        (None, 500, 10**12, None),
        (1_000, 500, 1_499, None),
        (1_000, 500, 1_500, Failed("timed out after 0.5 s", reason="timeout")),
        (1_000, 2_000, 3_001, Failed("timed out after 2 s", reason="timeout")),
    ],
)
def test_an_attempt_times_out_when_its_job_sets_a_limit_and_it_is_reached(
    started_ms: int | None, timeout_ms: int | None, now_ms: int, expected: Failed | None
):
    assert find_timeout(started_ms, Policy(timeout_ms=timeout_ms), now_ms) == expected
