"""The run's states, each move that may be made and each that may not; and the key of a tick."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wakeful.errors import FailedPrecondition
from wakeful.run.run import MOVES, RunState, tick_key

LEGAL = {
    ("pending", "running"),
    ("pending", "cancelled"),
    ("pending", "failed"),  # not claimed in time
    ("running", "succeeded"),
    ("running", "failed"),
    ("running", "cancelled"),
    ("running", "retrying"),
    ("running", "skipped"),  # there was nothing to do, or no budget to do it with
    ("retrying", "running"),
    ("retrying", "cancelled"),
    ("retrying", "failed"),
}
TERMINAL = {"succeeded", "failed", "cancelled", "skipped", "missed"}
INITIAL = (RunState.PENDING, RunState.RUNNING, RunState.SKIPPED, RunState.MISSED)
EVERY_PAIR = [(one, other) for one in RunState for other in RunState]


# --- the moves --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("one", "other"), [pair for pair in EVERY_PAIR if pair in LEGAL])
def test_an_allowed_transition(one, other):
    assert one.move(other) is other


@pytest.mark.parametrize(("one", "other"), [pair for pair in EVERY_PAIR if pair not in LEGAL])
def test_a_forbidden_transition(one, other):
    with pytest.raises(FailedPrecondition) as refused:
        one.move(other)
    assert refused.value.code == "failed-precondition"
    assert f"a {one} run cannot become {other}" in refused.value.message


def test_every_state_has_its_transitions():
    assert set(MOVES) == set(RunState)
    assert len(EVERY_PAIR) == 64


def test_a_refused_transition_names_the_possible_actions():
    with pytest.raises(FailedPrecondition, match="it can become cancelled or failed or running"):
        RunState.RETRYING.move(RunState.SUCCEEDED)
    with pytest.raises(FailedPrecondition, match="nothing: it has ended"):
        RunState.SUCCEEDED.move(RunState.RUNNING)


@pytest.mark.parametrize("state", RunState)
def test_a_terminal_run_never_moves_again(state):
    assert state.terminal == (state in TERMINAL)
    assert state.terminal == all((state, other) not in LEGAL for other in RunState)


def test_only_a_running_run_can_become_skipped():
    for state in RunState:
        assert RunState.MISSED not in MOVES[state]
        assert (RunState.SKIPPED in MOVES[state]) == (state is RunState.RUNNING)


def test_a_run_never_goes_back_except_from_one_attempt_to_the_next():
    order = ["pending", "retrying", "running", "succeeded", "failed", "cancelled", "skipped"]
    back = {(one, other) for one, other in LEGAL if order.index(other) <= order.index(one)}
    assert back == {("running", "retrying")}


def test_every_state_can_be_reached_and_every_run_can_end():
    reached = set(INITIAL)
    for _ in RunState:
        reached |= {other for one in reached for other in MOVES[one]}
    assert reached == set(RunState)
    for state in RunState:
        assert state.terminal or any(other.terminal for other in MOVES[state])


@settings(deadline=None)
@given(st.sampled_from(INITIAL), st.lists(st.sampled_from(list(RunState)), max_size=20))
def test_a_run_ends_once_under_any_transitions(state, wishes):
    ends = [state] if state.terminal else []
    for wish in wishes:
        try:
            state = state.move(wish)
        except FailedPrecondition:
            continue
        ends += [state] if state.terminal else []
    assert len(ends) == (1 if state.terminal else 0)


@pytest.mark.parametrize("state", RunState)
def test_a_state_equals_its_text(state):
    assert RunState(str(state)) is state
    assert state == state.name.lower()


# --- the key ----------------------------------------------------------------------------------------------


def test_the_key_of_a_tick_is_the_hash_of_the_job_and_its_second():
    key = tick_key("0197f9b2", 1_741_392_000_000)
    assert key == hashlib.sha256(b"0197f9b2:1741392000").hexdigest()
    assert key == "800ab2967df107eee05df3f0ddfad7e331c39585b22427d7d324ce08d7cd2eab"


@pytest.mark.parametrize(
    ("tick", "text"),
    [
        (1_741_392_000_001, b"j:1741392000.001"),
        (1_741_392_000_040, b"j:1741392000.040"),
        (1_741_392_000_250, b"j:1741392000.250"),
        (1_741_392_000_999, b"j:1741392000.999"),
        (1_741_392_001_000, b"j:1741392001"),
        (0, b"j:0"),
    ],
)
def test_milliseconds_in_the_key_are_a_fraction(tick, text):
    assert tick_key("j", tick) == hashlib.sha256(text).hexdigest()


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "a-b"]), st.integers(0, 10**13)), min_size=2, max_size=20)
)
def test_each_tick_has_exactly_one_key(ticks):
    keys = [tick_key(*tick) for tick in ticks]
    assert len(set(keys)) == len(set(ticks))
    assert keys == [tick_key(*tick) for tick in ticks]
