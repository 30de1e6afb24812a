"""The rate limiter: a burst, an even recovery, keys apart, and a clock that is set back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.service.auth.rate_limits import RateLimiter


def test_a_burst_of_a_minute_is_allowed_and_then_one_at_a_time() -> None:
    limiter = RateLimiter[str](60)
    assert [limiter.take("a", 0) for _ in range(61)] == [0] * 60 + [1]
    assert limiter.take("a", 999) == 1
    assert limiter.take("a", 1_000) == 0
    assert limiter.take("a", 1_000) == 1
    assert limiter.take("b", 1_000) == 0


def test_zero_allows_everything() -> None:
    limiter = RateLimiter[None](0)
    assert {limiter.take(None, 0) for _ in range(1_000)} == {0}


def test_a_clock_that_is_set_back_blocks_nothing() -> None:
    limiter = RateLimiter[None](1)
    assert limiter.take(None, 10**12) == 0
    assert limiter.take(None, 0) == 0


def test_idle_keys_take_no_memory() -> None:
    limiter = RateLimiter[int](60)
    for key in range(100_000):
        limiter.take(key, key * 1_000)
    assert len(limiter._full_ms) <= 10_000


@given(st.integers(1, 600), st.lists(st.integers(0, 10_000), max_size=300))
def test_no_window_has_more_than_twice_the_rate_and_the_wait_is_true(rate: int, gaps: list[int]) -> None:
    limiter = RateLimiter[None](rate)
    now_ms, taken = 0, []
    for gap in gaps:
        now_ms += gap
        wait_s = limiter.take(None, now_ms)
        if wait_s:
            assert limiter.wait_s(None, now_ms + wait_s * 1_000) == 0
            assert limiter.wait_s(None, now_ms + (wait_s - 1) * 1_000) > 0
        else:
            taken.append(now_ms)
    for start in taken:
        assert sum(start <= each < start + 60_000 for each in taken) <= 2 * rate


@pytest.mark.parametrize("rate", [1, 7, 11, 60, 599, 600])
def test_the_whole_allowance_can_be_used_at_once(rate: int) -> None:
    limiter = RateLimiter[None](rate)
    assert [limiter.take(None, 1_795_131_405_334) for _ in range(rate)] == [0] * rate
    assert limiter.take(None, 1_795_131_405_334) > 0
