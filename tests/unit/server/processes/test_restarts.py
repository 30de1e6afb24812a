"""When an ended process is started again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wakeful.server.processes.child import LONGEST_DELAY_S, MAX_FAILED_STARTS, STABLE_S, Restarts


def test_starts_that_never_become_ready_are_given_up():
    history = Restarts()
    for _ in range(MAX_FAILED_STARTS):
        assert not history.exhausted
        history = history.after_end(None)
    assert history.exhausted


def test_a_database_that_is_unavailable_does_not_end_the_server():
    history = Restarts()
    for _ in range(100):
        history = history.after_end(None, counts=False)
    assert not history.exhausted
    assert history.delay_s == LONGEST_DELAY_S


def test_a_process_that_was_ready_starts_its_count_again():
    history = Restarts().after_end(None).after_end(None).after_end(1.0)
    assert history.failed_starts == 0
    assert history.delay_s > 0, "it ends again and again"
    assert history.after_end(STABLE_S).delay_s == 0


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e6)), max_size=50))
def test_the_pause_is_bounded(ends: list[float | None]):
    history = Restarts()
    for ready_for_s in ends:
        history = history.after_end(ready_for_s)
        assert 0 <= history.delay_s <= LONGEST_DELAY_S
