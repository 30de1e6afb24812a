"""The cache that is bounded in bytes."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wakeful.document import text as document_text
from wakeful.document.text import policy_from_text, timing_from_text, work_from_text
from wakeful.job.job import Timing
from wakeful.schedule.schedules import CronSchedule
from wakeful.values.bounded_cache import MB, BoundedCache, bounded_cache, bypass, text_size

#: What an entry weighs beside what it is said to.
ENTRY = 256


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3_000), st.booleans())))
def test_the_weight_is_that_of_the_entries_and_never_above_the_budget(steps: list[tuple[int, int, bool]]):
    cache: BoundedCache[int, int] = BoundedCache(8_000)
    latest: dict[int, int] = {}
    for key, weight, write in steps:
        if write:
            cache.put(key, weight, weight)
            latest[key] = weight
        elif (value := cache.get(key)) is not None:
            assert value == latest[key]
        entries = [cache._young, cache._old]
        assert cache.weight == sum(weight for part in entries for _, weight in part.values()) <= 8_000
        assert len(cache) == len(set(cache))


def test_recently_used_values_stay_and_others_are_evicted():
    cache: BoundedCache[int, str] = BoundedCache(10 * (ENTRY + 100))
    cache.put(-1, "used", 100)
    cache.put(-2, "unused", 100)
    for number in range(50):
        cache.put(number, "passing", 100)
        assert cache.get(-1) == "used"
    assert cache.get(-2) is None


def test_a_value_larger_than_half_of_the_budget_is_not_kept():
    cache: BoundedCache[str, int] = BoundedCache(4_000)
    cache.put("large", 1, 2_000)
    assert (cache.get("large"), cache.weight) == (None, 0)


def test_a_dropped_value_is_gone_from_both_generations():
    cache: BoundedCache[int, int] = BoundedCache(2 * (ENTRY + 100))
    cache.put(1, 1, 100)
    cache.put(2, 2, 100)
    for key in (1, 2):
        cache.drop(key)
    assert (len(cache), cache.weight, list(cache)) == (0, 0, [])


def test_a_bypassed_cache_is_read_but_not_filled():
    made: list[str] = []

    @bounded_cache(1 * MB, lambda value, text: text_size(text))
    def shout(text: str) -> str:
        made.append(text)
        return text.upper()

    shout("kept")
    with bypass():
        assert [shout("kept"), shout("dry"), shout("dry")] == ["KEPT", "DRY", "DRY"]
    shout("dry")
    assert made == ["kept", "dry", "dry", "dry"]


def test_none_is_cached_and_an_error_is_not():
    made: list[int] = []

    @bounded_cache(1 * MB, lambda value, number: 0)
    def perhaps(number: int) -> None:
        made.append(number)
        if number:
            raise ZeroDivisionError

    for _ in range(2):
        perhaps(0)
        with pytest.raises(ZeroDivisionError):
            perhaps(1)
    assert made == [0, 1, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "write"),
    [
        (work_from_text, '{{"message":"{0}-{1}"}}'),
        (work_from_text, '{{"message":"ä{0}","target":{{"kind":"pull","a":[1,2,3,4,[5,6],"{1}"]}}}}'),
        (policy_from_text, '{{"maxAttempts":{0}}}'),
        (timing_from_text, '{{"schedule":{{"everyMs":{0}000,"kind":"every"}}}}'),
    ],
)
def test_the_memory_that_texts_take_is_within_the_budget(function: object, write: str):
    """Twice as many texts as fit: what Python holds for them is less than the budget."""
    cache: BoundedCache[tuple[object, ...], object] = function.cache  # type: ignore[attr-defined]
    before = cache._budget
    cache.clear()
    cache._budget = 1 * MB
    tracemalloc.start()
    try:
        start = tracemalloc.get_traced_memory()[0]
        for number in range(1, 4_000):
            function(write.format(number, "x" * (number % 500)))  # type: ignore[operator]
        held = tracemalloc.get_traced_memory()[0] - start
    finally:
        tracemalloc.stop()
        cache._budget = before
        cache.clear()
    assert held < 1.25 * MB


@pytest.mark.slow
def test_the_memory_that_expressions_take_is_within_the_budget():
    from wakeful.cron.evaluator import _shared_cron
    from wakeful.job.job import _ticks

    caches = [_shared_cron.cache, _ticks.cache]  # type: ignore[attr-defined]
    budgets = [cache._budget for cache in caches]
    for cache in caches:
        cache.clear()
        cache._budget = 1 * MB
    tracemalloc.start()
    try:
        start = tracemalloc.get_traced_memory()[0]
        for number in range(1_000):
            fields = ",".join(str(minute) for minute in range(number % 60 + 1))
            timing = Timing(CronSchedule(f"{fields} {number % 24} * * {number % 7}", "Europe/Berlin"))
            timing.ticks(0).upcoming(1_763_000_000_000, 20)
        held = tracemalloc.get_traced_memory()[0] - start
    finally:
        tracemalloc.stop()
        for cache, budget in zip(caches, budgets, strict=True):
            cache._budget = budget
            cache.clear()
    assert held < 2.5 * MB


def test_no_cache_is_bounded_only_by_its_number_of_entries():
    """Caches of what users write are bounded in bytes; lru_cache is for what has few or small keys."""
    assert not hasattr(document_text.work_from_text, "cache_info")
