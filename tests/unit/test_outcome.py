"""Which attempts count towards `max_attempts`, and how long the next one waits."""

from __future__ import annotations

import pytest

from wakeful.outcome import (
    UNCOUNTED,
    AwaitingCallback,
    Failed,
    Finished,
    Skipped,
    Succeeded,
    conclude,
    timed_out,
)
from wakeful.policy import Backoff, Policy

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


def test_a_failure_that_does_not_count_is_tried_again_without_end_after_a_bounded_wait():
    for attempt in (1, 2, 7, 1_000_000):
        ended = _ended(NOT_COUNTED, attempt, 2)
        assert (ended.state, ended.failed_attempts) == ("retrying", 2)
        assert ended.due_ms is not None
        assert UNCOUNTED.base_ms * 3 // 4 <= ended.due_ms <= UNCOUNTED.max_ms * 5 // 4


def test_a_failure_that_is_permanent_ends_the_run_whether_or_not_it_counts():
    assert _ended(NOT_COUNTED._replace(permanent=True), 1, 0).state == "failed"


@pytest.mark.parametrize("outcome", [Succeeded("ok", response_code=204), AwaitingCallback(5, 202), Skipped()])
def test_what_is_no_failure_leaves_the_count_as_it_was(outcome: Succeeded | AwaitingCallback | Skipped):
    ended = conclude("r1", "j1", 4, THRICE, outcome, 0, 0, failed_attempts=2)
    assert ended.failed_attempts == 2
    assert ended.response_code == getattr(outcome, "response_code", None)


def test_the_status_of_a_failed_answer_is_recorded_whether_or_not_it_is_tried_again():
    refused = COUNTED._replace(response_code=503)
    assert [_ended(refused, 1, failed).response_code for failed in (0, 2)] == [503, 503]


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
    assert timed_out(started_ms, Policy(timeout_ms=timeout_ms), now_ms) == expected
