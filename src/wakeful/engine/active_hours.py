"""Whether a run may start at this hour: those of a job with `activeHours` may not at every one. Pure."""

from __future__ import annotations

from typing import Final

from wakeful.hours import within
from wakeful.job import Work
from wakeful.outcome import Skipped

#: One word for why a run was not started, for machines.
OUTSIDE_HOURS: Final = "outside_hours"
#: What comes about by itself. What somebody asks for, they get at any hour.
_OF_ITSELF: Final = ("schedule", "chain", "heartbeat")


def open_at(work: Work, at_ms: int) -> bool:
    """Whether an instant is within the hours of this work, which mostly has none and is open always.

    >>> open_at(Work(), 0), open_at(Work(active_hours="08:00-22:00", hours_tz="UTC"), 0)
    (True, False)
    """
    hours = work.active_hours
    return hours is None or within(hours, work.hours_tz or "UTC", at_ms)


def closed(work: Work, trigger: str, attempt: int, at_ms: int) -> Skipped | None:
    """What becomes of an attempt that would start now, outside the hours; None: it may start.

    What was begun within them is brought to an end: only a first attempt is held up.
    """
    if work.active_hours is None or attempt > 1 or trigger not in _OF_ITSELF or open_at(work, at_ms):
        return None
    said = f"it runs from {work.active_hours.replace('-', ' to ')} ({work.hours_tz or 'UTC'}), and not now"
    return Skipped(said, reason=OUTSIDE_HOURS)
