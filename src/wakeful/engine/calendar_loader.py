"""Works out excluded days off the event loop, before they are needed on it.

Loading the holidays library takes half a second, and a search over excluded days up to a tenth. One thread
does both, so that the event loop shares the interpreter with no more than that. What it has worked out is
cached where it is looked up: afterwards the same question takes microseconds.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from wakeful.bounded_cache import MB, BoundedCache, text_size
from wakeful.calendars import HOLIDAYS, Calendar
from wakeful.document import timing_from_text
from wakeful.job import Definition
from wakeful.logs import get_logger

T = TypeVar("T")

#: A timing is worked out again after so long: its ticks lie in other years by then.
_LASTS_MS: Final = 7 * 86_400_000
#: One more than are shown with a job.
_TICKS: Final = 6
_STORED: Final = f'"{HOLIDAYS}'
_FIELDS: Final = ("exclude", "holidays", "calendar", "calendars")

_thread: Final = ThreadPoolExecutor(1, "calendars")
#: the timings that have been worked out, as they are stored, and when
_loaded: Final = BoundedCache[str, int](4 * MB)
log = get_logger("wakeful.calendars")


def is_loaded(timing: str | None, now_ms: int) -> bool:
    """Whether the ticks of this timing, as it is stored, can be asked for on the event loop."""
    if timing is None or _STORED not in timing:
        return True
    loaded_ms = _loaded.get(timing)
    return loaded_ms is not None and abs(now_ms - loaded_ms) < _LASTS_MS


async def load(timings: Iterable[str | None], now_ms: int) -> None:
    """Work out the next ticks of these timings, as they are stored, unless that has been done."""
    missing = [timing for timing in timings if timing is not None and not is_loaded(timing, now_ms)]
    if missing:
        await off_loop(lambda: _work_out(dict.fromkeys(missing), now_ms))


async def off_loop(work: Callable[[], T]) -> T:
    """What `work` returns, worked out in the thread for calendars."""
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(_thread, lambda: context.run(work))


async def work_out(read: Callable[[], Definition], now_ms: int) -> None:
    """Work out the next ticks of what `read` returns, off the event loop; what it raises is raised."""

    def work() -> None:
        timing = read().timing
        if timing is not None:
            anchor_ms = now_ms if timing.start_ms is None else timing.start_ms
            timing.ticks(anchor_ms).upcoming(now_ms, _TICKS)

    await off_loop(work)


def has_calendar(timing: str | None) -> bool:
    """Whether a timing, as it is stored, excludes anything."""
    return timing is not None and '"exclude"' in timing


def excludes_something(document: Mapping[str, object]) -> bool:
    """Whether a job document has a calendar: reading it may take long."""
    found = (document.get(name) for name in _FIELDS)
    return any(isinstance(value, str | list | tuple | Calendar) and bool(value) for value in found)


def _work_out(timings: Iterable[str], now_ms: int) -> None:
    for timing in timings:
        try:
            timing_from_text(timing).ticks(now_ms).upcoming(now_ms, _TICKS)
        except Exception as error:  # the planner sets such a job aside, and says so
            log.warning("calendar.unreadable", error=str(error))
        _loaded.put(timing, now_ms, text_size(timing))
