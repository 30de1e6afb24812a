"""The days on which a job has no ticks: dates, ranges of dates, and public holidays.

A calendar knows days only. Which day an instant falls on is a question of its zone, and the asker's.
Days go in and out as `date`; the searches that `ticks` makes count them as ordinals (`date.toordinal`).
"""

from __future__ import annotations

import re
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import chain
from sys import getsizeof
from typing import Final, NoReturn

from wakeful.bounded_cache import MB, bounded_cache, text_size
from wakeful.errors import InvalidArgument

MAX_ENTRIES: Final = 100
_FORMS: Final = "write '2026-12-24', '2026-12-24/2027-01-02' or 'holidays:DE-BY'"
_HOLIDAYS: Final = "holidays:"
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")

Stretch = tuple[int, int]
"""Days in a row, as the ordinals of the first and the last."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """The excluded days, as they were written. Empty, it is false and excludes nothing.

    >>> christmas = Calendar(("2026-12-24/2026-12-26", "holidays:DE"))
    >>> christmas.excludes(date(2026, 12, 25)), christmas.excludes(date(2026, 12, 28))
    (True, False)
    """

    entries: tuple[str, ...] = ()
    _stretches: tuple[Stretch, ...] = field(init=False, repr=False, compare=False)
    _regions: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        regions = [entry for entry in self.entries if entry.startswith(_HOLIDAYS)]
        stretches = [_stretch(entry) for entry in self.entries if not entry.startswith(_HOLIDAYS)]
        object.__setattr__(self, "_stretches", tuple(_joined(stretches)))
        object.__setattr__(self, "_regions", tuple(_region(entry) for entry in regions))

    def __bool__(self) -> bool:
        return bool(self.entries)

    def excludes(self, day: date) -> bool:
        """Whether there are no ticks on that day."""
        return self.excludes_ordinal(day.toordinal())

    def excludes_ordinal(self, day: int) -> bool:
        """`excludes`, of a day's ordinal."""
        return self._stretch_around(day) is not None or self._is_holiday(day)

    def first_kept(self, day: int, step: int) -> int:
        """The first day from `day` on that is not excluded, going forward (`step` 1) or back (-1)."""
        while True:
            around = self._stretch_around(day)
            if around is not None:
                day = around[1] + 1 if step > 0 else around[0] - 1
            elif self._is_holiday(day):
                day += step
            else:
                return day

    def stretches(self, first: int, last: int) -> list[Stretch]:
        """The excluded days from `first` to `last`, both included, in order and joined where they touch."""
        years = range(_year(first), _year(last) + 1) if self._regions else range(0)
        feasts = chain.from_iterable(_holidays(region, year) for region in self._regions for year in years)
        found = [*self._stretches, *((day, day) for day in feasts)]
        return _joined(
            (max(low, first), min(high, last)) for low, high in found if low <= last and high >= first
        )

    def to_json(self) -> list[str]:
        """The entries, as `parse_exclude` reads them."""
        return list(self.entries)

    def _stretch_around(self, day: int) -> Stretch | None:
        index = bisect_right(self._stretches, day, key=lambda stretch: stretch[0]) - 1
        return self._stretches[index] if index >= 0 and day <= self._stretches[index][1] else None

    def _is_holiday(self, day: int) -> bool:
        return any(day in _holidays(region, _year(day)) for region in self._regions)


def parse_exclude(entries: Sequence[str]) -> Calendar:
    """The calendar that a list of entries spells, or InvalidArgument saying which one is wrong.

    >>> parse_exclude(["2026-12-24", "holidays:us-ca"]).to_json()
    ['2026-12-24', 'holidays:US-CA']
    """
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        raise InvalidArgument(f"exclude is a list of texts; {_FORMS}")
    if len(entries) > MAX_ENTRIES:
        raise InvalidArgument(
            f"exclude has {len(entries)} entries; at most {MAX_ENTRIES} (a range counts as one)"
        )
    for entry in entries:
        if not isinstance(entry, str):
            raise InvalidArgument(f"exclude: {str(entry)[:64]} is no text; {_FORMS}")
    return _calendar(tuple(entries)) if entries else NOTHING


@bounded_cache(4 * MB, lambda calendar, entries: 4 * text_size(*entries))
def _calendar(entries: tuple[str, ...]) -> Calendar:
    """Read once: a platform's thousand jobs keep the same holidays."""
    return Calendar(tuple(dict.fromkeys(_normal(entry) for entry in entries)))


def _normal(entry: str) -> str:
    text = "".join(entry.split())
    return _HOLIDAYS + _region(text) if text.lower().startswith(_HOLIDAYS) else text


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
        _refuse(entry, f"'{text[:32]}' is no date ({error}); {_FORMS}")


def _region(entry: str) -> str:
    """The country, or country and subdivision, in the spelling of the holidays library."""
    from holidays import list_supported_countries  # a tenth of a second, for those who need it

    country, dash, wanted = entry[len(_HOLIDAYS) :].partition("-")
    country = country.upper()
    known = list_supported_countries(include_aliases=True)
    if country not in known:
        _refuse(entry, f"no holidays are known for '{country[:32]}'; give a country, as in 'holidays:DE'")
    if not dash:
        return country
    for subdivision in known[country]:
        if subdivision.replace(" ", "").casefold() == wanted.replace(" ", "").casefold():
            return f"{country}-{subdivision}"
    there = f"there are {', '.join(known[country])}" if known[country] else "it has none"
    _refuse(entry, f"'{wanted[:32]}' is no subdivision of {country} that the holidays differ by; {there}")


@bounded_cache(8 * MB, lambda days, *_: getsizeof(days) + 32 * len(days))
def _holidays(region: str, year: int) -> frozenset[int]:
    """A region's holidays of a year. Shared by all jobs: they are not worked out twice."""
    from holidays import country_holidays

    country, _, subdivision = region.partition("-")
    with warnings.catch_warnings():
        # The library warns of years for which it knows only some of the holidays; those are still days off.
        warnings.simplefilter("ignore")
        days = country_holidays(country, subdiv=subdivision or None, years=year)
    return frozenset(day.toordinal() for day in days)


def _joined(stretches: Iterable[Stretch]) -> list[Stretch]:
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
