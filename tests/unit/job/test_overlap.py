"""What the overlap policy does with a run that would start beside others of its job."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.job.overlap import OverlapAction, overlap_action
from wakeful.job.policy import Overlap

overlaps = st.sampled_from(get_args(Overlap))
counts = st.integers(0, 200)


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
