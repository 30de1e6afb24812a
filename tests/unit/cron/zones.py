"""The zones that are tried, and every jump of their clocks in ten years."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

# What each of them is here for.
ZONES = (
    "America/New_York",
    "Europe/Berlin",
    "Europe/London",
    "Europe/Riga",
    "Australia/Lord_Howe",  # moves by half an hour
    "Pacific/Chatham",  # a quarter to the hour, and changes at a quarter to
    "America/Santiago",  # changes at midnight
    "America/Havana",  # changes at midnight, back into the same day
    "Africa/Casablanca",  # back for Ramadan, whose dates wander
    "Asia/Beirut",  # changes at midnight, back into the day before
    "Asia/Kathmandu",  # a quarter to the hour, and never changes
    "Pacific/Apia",  # left out a whole day in 2011
    "Antarctica/Troll",  # moves by two hours
    "UTC",
)

STRANGER_ZONES = (
    "Africa/Cairo",  # gave summer time up, and took it up again
    "America/Caracas",  # half an hour forwards, once
    "America/Scoresbysund",  # changed its zone and its summer time at one stroke
    "Antarctica/Casey",  # jumps of three hours, both ways
    "Asia/Gaza",  # four changes a year
    "Asia/Pyongyang",  # half an hour back, and forwards again
    "Asia/Tehran",  # changes at midnight, on a half hour
    "Europe/Dublin",  # its winter time is the one that is "saved"
    "Europe/Volgograd",  # changed its zone
    "Pacific/Norfolk",  # took summer time up
)


@dataclass(frozen=True)
class Transition:
    """One jump of one clock: `at` is the first instant of the new offset."""

    zone: str
    at: datetime
    before: timedelta
    after: timedelta

    @property
    def is_gap(self) -> bool:
        return self.after > self.before

    @property
    def first_wall(self) -> datetime:
        """The first wall time that is missing, or that is shown twice."""
        return (self.at + min(self.before, self.after)).replace(tzinfo=None)

    @property
    def last_wall(self) -> datetime:
        """The first wall time past them."""
        return (self.at + max(self.before, self.after)).replace(tzinfo=None)

    def __str__(self) -> str:
        return f"{self.zone} {self.at:%Y-%m-%d}"


def offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta()


#: No zone here changes its offset twice within this time.
_STEP = timedelta(days=5)
_MINUTE = timedelta(minutes=1)


def _change(since: datetime, zone: ZoneInfo) -> datetime:
    """Return the minute in which the offset changes."""
    before = offset(since, zone)
    minutes = range(_STEP // _MINUTE + 1)
    changed = bisect_left(minutes, True, key=lambda each: offset(since + each * _MINUTE, zone) != before)
    return since + changed * _MINUTE


@cache
def transitions(zone_name: str, first_year: int = 2015, last_year: int = 2025) -> tuple[Transition, ...]:
    """Every change of a zone's offset from the start of one year to the end of the other."""
    zone = ZoneInfo(zone_name)
    found: list[Transition] = []
    instant, end = datetime(first_year, 1, 1, tzinfo=UTC), datetime(last_year + 1, 1, 1, tzinfo=UTC)
    before = offset(instant, zone)
    while instant < end:
        later = instant + _STEP
        after = offset(later, zone)
        if before != after:
            found.append(Transition(zone_name, _change(instant, zone), before, after))
        instant, before = later, after
    return tuple(found)


def every_transition() -> list[Transition]:
    """Those of ten years in every zone, the day that Apia left out, and a year that only a rule foresees.

    Tables of transitions end, at the latest, in 2037 (but for Morocco's); what comes later follows from a
    rule at their end.
    """
    zones = (*ZONES, *STRANGER_ZONES)
    found = [transition for zone in zones for transition in transitions(zone)]
    found += transitions("Pacific/Apia", 2011, 2011)
    return found + [transition for zone in zones for transition in transitions(zone, 2045, 2045)]


def each_kind_of_transition() -> list[Transition]:
    """Of the transitions that a zone repeats at the same wall time and by the same step, the last two."""
    kinds: dict[tuple[object, ...], list[Transition]] = {}
    for each in every_transition():
        wall = each.first_wall
        kinds.setdefault((each.zone, each.before, each.after, wall.time(), wall.isoweekday()), []).append(
            each
        )
    return [each for found in kinds.values() for each in found[-2:]]
