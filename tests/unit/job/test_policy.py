"""Policies: the waits between attempts, the even spread of jitter and backoff, and the overlap policy."""

from __future__ import annotations

from collections import Counter
from dataclasses import FrozenInstanceError
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wakeful.job.policy import (
    DAY_MS,
    DEFAULT_POLICY,
    Backoff,
    Overlap,
    OverlapAction,
    Policy,
    overlap_action,
    spread_evenly,
)

SEEDS = [f"run-{number}" for number in range(2_000)]
overlaps = st.sampled_from(get_args(Overlap))
counts = st.integers(0, 200)


# --- backoff ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 2), (2, 4), (3, 8), (4, 16), (5, 30), (6, 30), (7, 30)]
)
def test_the_backoff_doubles_up_to_its_maximum_within_a_quarter(failures, seconds):
    waits = [Backoff().delay_ms(failures, seed) for seed in SEEDS]
    assert min(waits) >= seconds * 750
    assert max(waits) <= seconds * 1250
    assert min(waits) < seconds * 755, "the whole quarter is used, downwards"
    assert max(waits) > seconds * 1245, "and upwards"
    assert sum(waits) / len(waits) == pytest.approx(seconds * 1000, rel=0.01)


def test_the_backoff_of_a_run_is_the_same_on_every_replica():
    assert [Backoff().delay_ms(failures, "run-7") for failures in (1, 2, 3, 4, 5, 6)] == [
        2270,
        3644,
        9605,
        16300,
        29777,
        36973,
    ]


def test_runs_that_fail_together_are_retried_at_different_times():
    for failures in (1, 2, 5):
        assert len({Backoff().delay_ms(failures, seed) for seed in SEEDS}) > 600


def test_each_backoff_of_a_run_has_its_own_offset():
    offsets = {Backoff(1_000_000, 1_000_000).delay_ms(failures, "run-7") for failures in range(1, 21)}
    assert len(offsets) == 20


@pytest.mark.parametrize(
    ("backoff", "failures", "whole"),
    [
        (Backoff(500, 30_000), 1, 500),
        (Backoff(500, 30_000), 3, 2_000),
        (Backoff(500, 30_000), 7, 30_000),
        (Backoff(60_000, 3_600_000), 4, 480_000),
        (Backoff(60_000, 30_000), 1, 30_000),
        (Backoff(0, 30_000), 5, 0),
        (Backoff(2_000, 0), 5, 0),
    ],
)
def test_base_and_longest_are_settable(backoff, failures, whole):
    for seed in SEEDS[:200]:
        assert whole * 0.75 <= backoff.delay_ms(failures, seed) <= whole * 1.25


@settings(deadline=None)
@given(st.integers(0, 10**9), st.integers(0, 10**12), st.integers(1, 10**6), st.text(max_size=20))
def test_the_wait_stays_within_a_quarter_after_any_number_of_failures(base_ms, max_ms, failures, seed):
    whole = max_ms if failures > 64 and base_ms else min(base_ms * 2 ** min(failures - 1, 64), max_ms)
    wait = Backoff(base_ms, max_ms).delay_ms(failures, seed)
    assert whole - whole // 4 <= wait <= whole + whole // 4
    assert wait == Backoff(base_ms, max_ms).delay_ms(failures, seed)


# --- the even spread --------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.text(max_size=30), st.integers(0, 10**12))
def test_a_spread_lies_within_its_limit_and_is_always_the_same(seed, limit_ms):
    offset = spread_evenly(seed, limit_ms)
    assert -limit_ms <= offset <= limit_ms
    assert offset == spread_evenly(seed, limit_ms)


@pytest.mark.parametrize("limit_ms", [0, -1, -1000])
def test_no_room_is_no_spread(limit_ms):
    assert {spread_evenly(seed, limit_ms) for seed in SEEDS[:50]} == {0}


def test_every_offset_is_as_likely_as_every_other():
    drawn = Counter(spread_evenly(seed, 3) for seed in SEEDS)
    assert set(drawn) == {-3, -2, -1, 0, 1, 2, 3}
    expected = len(SEEDS) / 7
    chi_square = sum((count - expected) ** 2 / expected for count in drawn.values())
    assert chi_square < 22.5, "six degrees of freedom: one draw in a thousand is further off"


def test_a_wide_spread_is_even_too():
    drawn = Counter((spread_evenly(seed, 3_600_000) + 3_600_000) * 20 // 7_200_001 for seed in SEEDS)
    assert set(drawn) == set(range(20))
    expected = len(SEEDS) / 20
    chi_square = sum((count - expected) ** 2 / expected for count in drawn.values())
    assert chi_square < 43.8, "nineteen degrees of freedom: one draw in a thousand is further off"


# --- the policy itself ------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_documentation():
    assert Policy() == DEFAULT_POLICY
    assert (DEFAULT_POLICY.overlap, DEFAULT_POLICY.max_queued) == ("skip", 100)
    assert (DEFAULT_POLICY.catchup, DEFAULT_POLICY.catchup_window_ms) == ("none", DAY_MS)
    assert (DEFAULT_POLICY.misfire_grace_ms, DEFAULT_POLICY.jitter_ms) == (60_000, 0)
    assert (DEFAULT_POLICY.max_attempts, DEFAULT_POLICY.backoff) == (5, Backoff(2_000, 30_000))
    assert (DEFAULT_POLICY.on_lost, DEFAULT_POLICY.lost_limit) == ("retry", 3)
    assert DEFAULT_POLICY.claim_timeout_ms == 3_600_000
    assert DEFAULT_POLICY.max_runs is None
    assert DEFAULT_POLICY.timeout_ms is None, "the target knows: ten minutes, or thirty seconds"
    assert DEFAULT_POLICY.disable_after is None
    assert DEFAULT_POLICY.delete_after_run is False


def test_a_policy_is_a_value():
    assert Policy(overlap="queue", backoff=Backoff(1, 2)) == Policy(overlap="queue", backoff=Backoff(1, 2))
    assert hash(Policy(max_runs=3)) == hash(Policy(max_runs=3))
    assert Policy(max_runs=3) != Policy(max_runs=4)
    with pytest.raises(FrozenInstanceError):
        Policy().overlap = "allow"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("overlap", "action"),
    [
        ("allow", OverlapAction.START),
        ("skip", OverlapAction.SKIP),
        ("queue", OverlapAction.QUEUE),
        ("queue_one", OverlapAction.SUPERSEDE),
        ("replace", OverlapAction.REPLACE),
    ],
)
@pytest.mark.parametrize(("running", "waiting"), [(True, 0), (False, 1), (True, 3)])
def test_a_run_beside_others_follows_its_policy(
    overlap: Overlap, action: OverlapAction, running: bool, waiting: int
):
    assert overlap_action(overlap, 100, running=running, waiting=waiting) is action


@given(overlaps, st.integers(1, 100))
def test_a_run_without_others_starts_under_every_policy(overlap: Overlap, max_queued: int):
    assert overlap_action(overlap, max_queued, running=False, waiting=0) is OverlapAction.START


@given(st.booleans(), counts, st.integers(1, 100))
def test_a_queue_takes_runs_until_it_is_full(running: bool, waiting: int, max_queued: int):
    action = overlap_action("queue", max_queued, running=running, waiting=waiting)

    assert (action is OverlapAction.QUEUE_FULL) == (waiting >= max_queued)


@given(overlaps, st.booleans(), counts, st.integers(1, 100))
def test_only_a_full_queue_depends_on_its_limit(
    overlap: Overlap, running: bool, waiting: int, max_queued: int
):
    unlimited = overlap_action(overlap, 10_000, running=running, waiting=waiting)
    limited = overlap_action(overlap, max_queued, running=running, waiting=waiting)

    assert limited is unlimited or (overlap, limited) == ("queue", OverlapAction.QUEUE_FULL)
