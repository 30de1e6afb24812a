"""Times without ticks: dates, ranges, dates of every year, weekdays, holidays and cron expressions.

A calendar works in local time: the caller converts instants. Public methods take and return `date`; the
searches in `ticks` use ordinals (`date.toordinal`).

Public holidays are those of the holidays library. Loading it takes half a second, and computing a year of a
region up to some milliseconds. Results are cached. `engine.calendar_loader` does both in a thread before the
event loop needs them.
"""

from __future__ import annotations

import re
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from itertools import chain
from typing import Final, NoReturn

from wakeful.errors import InvalidArgument
from wakeful.schedule.day_rules import CronRule, read_cron, read_weekdays, read_yearly, yearly_bits
from wakeful.values.bounded_cache import MB, bounded_cache, text_size

MAX_ENTRIES: Final = 100
#: The most regions of holidays, and the most excluded windows per day.
MAX_REGIONS: Final = 10
MAX_WINDOWS: Final = 24
HOLIDAYS: Final = "holidays:"
_CRON: Final = "cron:"
_FORMS: Final = (
    "write '2026-12-24', '2026-12-24/2027-01-02', '12-25', '12-24/12-26', 'sat', 'weekends', "
    "'holidays:DE-BY' or 'cron:* 2-4 * * *'"
)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MINUTES: Final = 1440
#: The longest run of days that recurring rules can exclude, unless they exclude every day.
_LONGEST_STRETCH: Final = 800

Stretch = tuple[int, int]
#: The number of cached regions and years: a few megabytes.
_CACHED: Final = 4096


"""Consecutive days, as the ordinals of the first and the last."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """Entries that `parse_exclude` has validated. An empty calendar is false and excludes nothing.

    >>> christmas = Calendar(("2026-12-24/2026-12-26", "holidays:DE", "sun"))
    >>> [christmas.excludes_ordinal(date(2026, 12, day).toordinal()) for day in (25, 28)]
    [True, False]
    """

    entries: tuple[str, ...] = ()
    #: the regions whose holidays are excluded
    regions: tuple[str, ...] = field(init=False, repr=False, compare=False)
    #: the expressions that exclude a part of a day
    windows: tuple[CronRule, ...] = field(init=False, repr=False, compare=False)
    _stretches: tuple[Stretch, ...] = field(init=False, repr=False, compare=False)
    _weekdays: int = field(init=False, repr=False, compare=False)
    _yearly: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _days: tuple[CronRule, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        regions: list[str] = []
        rules: list[CronRule] = []
        stretches: list[Stretch] = []
        weekdays = 0
        yearly: tuple[int, ...] = (0,) * 12
        for entry in self.entries:
            if entry.startswith(HOLIDAYS):
                regions.append(entry[len(HOLIDAYS) :])
            elif entry.startswith(_CRON):
                rules.append(read_cron(entry[len(_CRON) :]))
            elif (found := read_weekdays(entry)) is not None:
                weekdays |= found[1]
            elif (span := read_yearly(entry)) is not None:
                yearly = tuple(a | b for a, b in zip(yearly, yearly_bits(*span), strict=True))
            else:
                stretches.append(_stretch(entry))
        for name, value in (
            ("regions", tuple(regions)),
            ("windows", tuple(rule for rule in rules if not rule.all_day)),
            ("_stretches", tuple(_join_stretches(stretches))),
            ("_weekdays", weekdays),
            ("_yearly", yearly),
            ("_days", tuple(rule for rule in rules if rule.all_day)),
        ):
            object.__setattr__(self, name, value)

    def __bool__(self) -> bool:
        return bool(self.entries)

    def excludes_ordinal(self, day: int) -> bool:
        """Return whether the day with this ordinal is excluded."""
        return self._stretch_around(day) is not None or self._recurs(day)

    def first_kept(self, day: int, step: int) -> int:
        """Return the first day from `day` on that is not excluded, forward (`step` 1) or back (-1).

        If recurring rules exclude every day, return a day after a long stretch.
        """
        for _ in range(_LONGEST_STRETCH):
            around = self._stretch_around(day)
            if around is not None:
                day = around[1] + 1 if step > 0 else around[0] - 1
            elif self._recurs(day):
                day += step
            else:
                break
        return day

    def rule_at(self, day: int, minute: int) -> CronRule | None:
        """Return the expression that excludes this minute of a day that is not excluded as a whole."""
        return next((rule for rule in self.windows if rule.at(minute) and rule.on_day(day)), None)

    def stretches(self, first: int, last: int) -> list[Stretch]:
        """Return the excluded days from `first` to `last`, both included, sorted and merged."""
        years = range(_year(first), _year(last) + 1) if self.regions else range(0)
        holidays = chain.from_iterable(
            find_holidays(region, year) for region in self.regions for year in years
        )
        found = [*self._stretches, *((day, day) for day in holidays)]
        if self._weekdays or self._days or any(self._yearly):
            found += [(day, day) for day in range(first, last + 1) if self._by_rule(day)]
        return _join_stretches(
            (max(low, first), min(high, last)) for low, high in found if low <= last and high >= first
        )

    def spans(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the excluded ranges between two days, in minutes since day 0; ends are exclusive."""
        found = [(low * _MINUTES, (high + 1) * _MINUTES) for low, high in self.stretches(first, last)]
        for rule in self.windows:
            for day in range(first, last + 1):
                if rule.on_day(day):
                    found += [(day * _MINUTES + low, day * _MINUTES + high) for low, high in rule.windows]
        return [(low, high + 1) for low, high in _join_stretches((low, high - 1) for low, high in found)]

    def reach_year(self) -> int | None:
        """Return the last year for which holidays of a region are known; None without regions."""
        return max(map(last_year, self.regions), default=None)

    def to_json(self) -> list[str]:
        """Return the entries, as `parse_exclude` reads them."""
        return list(self.entries)

    def _stretch_around(self, day: int) -> Stretch | None:
        index = bisect_right(self._stretches, day, key=lambda stretch: stretch[0]) - 1
        return self._stretches[index] if index >= 0 and day <= self._stretches[index][1] else None

    def _recurs(self, day: int) -> bool:
        return self._by_rule(day) or any(day in find_holidays(region, _year(day)) for region in self.regions)

    def _by_rule(self, day: int) -> bool:
        if self._weekdays >> (day - 1) % 7 & 1:
            return True
        if any(self._yearly):
            at = date.fromordinal(min(max(day, 1), date.max.toordinal()))
            if self._yearly[at.month - 1] >> at.day & 1:
                return True
        return any(rule.on_day(day) for rule in self._days)


def parse_exclude(entries: Sequence[str]) -> Calendar:
    """Return the calendar of a list of entries, or raise InvalidArgument that names the wrong one.

    >>> parse_exclude(["2026-12-24", "holidays:us-ca", "Saturdays", "cron:*  2-4 * * *"]).to_json()
    ['2026-12-24', 'holidays:US-CA', 'sat', 'cron:* 2-4 * * *']
    """
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        raise InvalidArgument(f"exclude is a list of texts; {_FORMS}")
    if len(entries) > MAX_ENTRIES:
        raise InvalidArgument(
            f"exclude has {len(entries)} entries; at most {MAX_ENTRIES} (a range counts as one)"
        )
    for entry in entries:
        if not isinstance(entry, str):
            raise InvalidArgument(f"exclude: {str(entry)[:64]} is not text; {_FORMS}")
    regions = sum(map(names_holidays, entries))
    if regions > MAX_REGIONS:
        raise InvalidArgument(f"exclude takes holidays from {regions} regions; at most {MAX_REGIONS}")
    return _calendar(tuple(entries)) if entries else NOTHING


def stored_exclude(entries: Sequence[str]) -> Calendar:
    """Return the calendar of entries that `parse_exclude` has validated, without loading holidays."""
    return _load_calendar(tuple(entries)) if entries else NOTHING


def names_holidays(entry: object) -> bool:
    """Return whether an entry excludes the holidays of a region."""
    return isinstance(entry, str) and "".join(entry[:32].split()).lower().startswith(HOLIDAYS)


@bounded_cache(4 * MB, lambda calendar, entries: 4 * text_size(*entries))
def _calendar(entries: tuple[str, ...]) -> Calendar:
    calendar = Calendar(tuple(dict.fromkeys(_normal(entry) for entry in entries)))
    windows = sum(len(rule.windows) for rule in calendar.windows)
    if windows > MAX_WINDOWS:
        raise InvalidArgument(
            f"exclude: its cron expressions exclude {windows} separate windows per day; at most {MAX_WINDOWS}"
        )
    return calendar


@bounded_cache(4 * MB, lambda calendar, entries: 4 * text_size(*entries))
def _load_calendar(entries: tuple[str, ...]) -> Calendar:
    return Calendar(entries)


def _normal(entry: str) -> str:
    text = "".join(entry.split())
    try:
        if text.lower().startswith(HOLIDAYS):
            return HOLIDAYS + find_region(text[len(HOLIDAYS) :])
        if text.lower().startswith(_CRON):
            return _CRON + read_cron(entry.partition(":")[2]).expression.text
        weekdays = read_weekdays(text)
        if weekdays is None and read_yearly(text) is None:
            _stretch(text)
        return weekdays[0] if weekdays else text
    except InvalidArgument as error:
        if error.message.startswith("exclude"):
            raise
        _refuse(entry, error.message)


def _stretch(entry: str) -> Stretch:
    first, slash, last = entry.partition("/")
    low = _day(first, entry)
    high = _day(last, entry) if slash else low
    if high < low:
        _refuse(entry, f"the range ends before it begins; write '{last}/{first}'")
    return low, high


def _day(text: str, entry: str) -> int:
    try:
        if not _DATE.fullmatch(text):
            raise ValueError("a date is YYYY-MM-DD")
        return date.fromisoformat(text).toordinal()
    except ValueError as error:
        _refuse(entry, f"'{text[:32]}' is not a date ({error}); {_FORMS}")


def _join_stretches(stretches: Iterable[Stretch]) -> list[Stretch]:
    joined: list[Stretch] = []
    for low, high in sorted(stretches):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return joined


def _year(day: int) -> int:
    return date.fromordinal(min(max(day, 1), date.max.toordinal())).year


def _refuse(entry: str, why: str) -> NoReturn:
    raise InvalidArgument(f"exclude: '{entry[:64]}': {why}")


NOTHING: Final = Calendar()
"""The calendar that excludes no day."""


def find_region(text: str) -> str:
    """Return the country, or country and subdivision, as the library names it, or raise InvalidArgument.

    >>> find_region("us-ca")
    'US-CA'
    """
    from holidays import list_supported_countries

    country, dash, wanted = text.partition("-")
    country = country.upper()
    known = list_supported_countries(include_aliases=True)
    if country not in known:
        raise InvalidArgument(
            f"no holidays are known for '{country[:32]}'; give a country, as in 'holidays:DE'"
        )
    if not dash:
        return country
    for subdivision in known[country]:
        if subdivision.replace(" ", "").casefold() == wanted.replace(" ", "").casefold():
            return f"{country}-{subdivision}"
    choice = f"use one of {', '.join(known[country])}" if known[country] else "it has none"
    raise InvalidArgument(
        f"'{wanted[:32]}' is not a subdivision of {country} with its own holidays; {choice}"
    )


@lru_cache(maxsize=_CACHED)
def last_year(region: str) -> int:
    """Return the last year for which the library knows the holidays of a region."""
    from holidays import country_holidays

    country, _, subdivision = region.partition("-")
    return country_holidays(country, subdiv=subdivision or None).end_year


@lru_cache(maxsize=_CACHED)
def find_holidays(region: str, year: int) -> frozenset[int]:
    """Return the holidays of a region and year as ordinals of days. All jobs share them."""
    from holidays import country_holidays

    country, _, subdivision = region.partition("-")
    with warnings.catch_warnings():
        # The library warns of years for which it knows only some of the holidays.
        warnings.simplefilter("ignore")
        days = country_holidays(country, subdiv=subdivision or None, years=year)
    return frozenset(day.toordinal() for day in days)
