"""Computes excluded days in a thread, before the event loop needs them.

Loading the holidays library takes half a second, and a search over excluded days up to a tenth. One thread
does both for all requests, and one for the planner, which must not wait behind requests: so the event loop
shares the interpreter with few threads. The results are cached where they are looked up, so that later calls
take microseconds.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from wakeful.document import timing_from_text
from wakeful.job.job import Definition
from wakeful.logs import get_logger
from wakeful.schedule.calendars import HOLIDAYS, Calendar
from wakeful.values.bounded_cache import MB, BoundedCache, text_size

T = TypeVar("T")

#: After this time a timing is loaded again: its next ticks may be in another year.
_MAX_AGE_MS: Final = 7 * 86_400_000
#: One more than is shown with a job.
_TICKS: Final = 6
_STORED: Final = f'"{HOLIDAYS}'
_FIELDS: Final = frozenset({"exclude", "holidays", "calendar", "calendars"})

_thread: Final = ThreadPoolExecutor(1, "calendars")
_planning: Final = ThreadPoolExecutor(1, "calendars-planner")
#: the stored texts of loaded timings, and when they were loaded
_loaded: Final = BoundedCache[str, int](4 * MB)
log = get_logger("wakeful.calendars")


def is_loaded(timing: str | None, now_ms: int) -> bool:
    """Return whether the ticks of this timing (its stored text) can be computed on the event loop."""
    if timing is None or _STORED not in timing:
        return True
    loaded_ms = _loaded.get(timing)
    return loaded_ms is not None and abs(now_ms - loaded_ms) < _MAX_AGE_MS


async def load(timings: Iterable[str | None], now_ms: int) -> None:
    """Compute the next ticks of these timings (their stored texts) that are not loaded."""
    missing = _missing(timings, now_ms)
    if missing:
        await off_loop(lambda: _work_out(missing, now_ms, math.inf))


async def load_some(timings: Iterable[str | None], now_ms: int, seconds: float) -> None:
    """Do the same for the planner: at least one of them, and others for so many seconds."""
    missing = _missing(timings, now_ms)
    if missing:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(_planning, _work_out, missing, now_ms, seconds)


def _missing(timings: Iterable[str | None], now_ms: int) -> list[str]:
    found = dict.fromkeys(timings)
    return [timing for timing in found if timing is not None and not is_loaded(timing, now_ms)]


async def off_loop(work: Callable[[], T]) -> T:
    """Call `work` in the thread for calendars of requests and return its result."""
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(_thread, lambda: context.run(work))


async def compute_ticks(read: Callable[[], Definition], now_ms: int) -> None:
    """Compute the next ticks of the definition that `read` returns, in the thread. Its errors are raised."""

    def work() -> None:
        timing = read().timing
        if timing is not None:
            anchor_ms = now_ms if timing.start_ms is None else timing.start_ms
            timing.ticks(anchor_ms).upcoming(now_ms, _TICKS)

    await off_loop(work)


def has_calendar(timing: str | None) -> bool:
    """Return whether a timing (its stored text) excludes anything."""
    return timing is not None and '"exclude"' in timing


def excludes_something(document: Mapping[str, object]) -> bool:
    """Return whether a job document has a calendar: reading it may take long."""
    if _FIELDS.isdisjoint(document):  # the common case
        return False
    found = (document.get(name) for name in _FIELDS)
    return any(isinstance(value, str | list | tuple | Calendar) and bool(value) for value in found)


def _work_out(timings: Iterable[str], now_ms: int, seconds: float) -> None:
    stop_at = time.monotonic() + seconds
    for timing in timings:
        try:
            timing_from_text(timing).ticks(now_ms).upcoming(now_ms, _TICKS)
        except Exception as error:  # the planner disables and logs such a job
            log.warning("calendar.unreadable", error=str(error))
        _loaded.put(timing, now_ms, text_size(timing))
        if time.monotonic() >= stop_at:
            return
