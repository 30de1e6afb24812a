"""A time zone as a table: when its offset from UTC changes, and to what.

`zoneinfo` does not expose its transitions. The evaluator needs all of them, so they are read here from the
same files, once per zone. After the end of a file's table its rule (`CET-1CEST,M3.5.0,M10.5.0/3`) extends
the table, to a century after the requested time.

Times are whole seconds: UTC seconds since 1970, and *wall* seconds, which are UTC seconds plus the offset.
"""

from __future__ import annotations

import difflib
import importlib.resources
import re
import struct
import zoneinfo
from bisect import bisect_right
from datetime import date, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Final

from wakeful.errors import InvalidSchedule, Unavailable

FAR_PAST: Final = -(10**12)
FAR_FUTURE: Final = 10**12
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_LONGEST: Final = 64  # twice the longest zone name; a longer text is not a file name
_KEY: Final = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")
_RULE: Final = re.compile(
    r"(?:<[^>]+>|[A-Za-z]+)(?P<std>[-+]?[\d:]+)"
    r"(?:(?:<[^>]+>|[A-Za-z]+)(?P<dst>[-+]?[\d:]+)?,(?P<start>[^,]+),(?P<end>[^,]+))?"
)
_LAST_RULE_SECOND: Final = (date(9998, 1, 1).toordinal() - _EPOCH_DAY) * 86400


class Zone:
    """One IANA zone: `offsets[i]` applies from the UTC second `starts[i]`. The table only grows."""

    __slots__ = ("_growing", "_rule", "known_until", "name", "offsets", "starts", "tzinfo")

    def __init__(self, name: str) -> None:
        self.name = name
        self.tzinfo = zoneinfo.ZoneInfo(name)
        self.starts, self.offsets, footer = _read(_find(name))
        self._rule = _Rule(footer) if "," in footer else None
        self._growing = Lock()
        #: the table is complete up to here
        self.known_until = max(self.starts[-1], _wall_second(1900, 1, 1)) if self._rule else FAR_FUTURE

    def reach(self, utc: int) -> None:
        """Extend the table up to `utc`."""
        if self._rule is None:
            return
        with self._growing:
            while self.known_until < min(utc, _LAST_RULE_SECOND):
                year = _utc_year(self.known_until)
                for start, offset in self._rule.changes(year):
                    if start > self.starts[-1] and offset != self.offsets[-1]:
                        self.offsets.append(
                            offset
                        )  # before its start, so that a concurrent reader finds both
                        self.starts.append(start)
                self.known_until = _wall_second(year + 1, 1, 1)

    def offset_at(self, utc: int) -> int:
        """Return the offset from UTC, in seconds, at a UTC second."""
        if utc > self.known_until:
            self.reach(utc)
        return self.offsets[bisect_right(self.starts, utc) - 1]

    def to_utc(self, wall: datetime) -> datetime:
        """Return the instant of a naive wall time: the first of two; in a gap, the first instant after it."""
        if wall.tzinfo is not None:
            raise ValueError("a wall time must be naive")
        first = wall.replace(tzinfo=self.tzinfo, fold=0)
        before = first.utcoffset() or timedelta()
        after = first.replace(fold=1).utcoffset() or timedelta()
        utc = first.astimezone(zoneinfo.ZoneInfo("UTC"))
        if after <= before:
            return utc
        # In a gap: the transition is between the two interpretations of this wall time.
        second = int((wall - after - datetime(1970, 1, 1)).total_seconds())
        self.reach(second + 2 * 86400)
        return datetime.fromtimestamp(
            self.starts[bisect_right(self.starts, second)], zoneinfo.ZoneInfo("UTC")
        )


@lru_cache(maxsize=1024)
def zone(name: str) -> Zone:
    """Return the zone of an IANA name, read once and shared. Raise InvalidSchedule if it is unknown."""
    if len(name) > _LONGEST or not _KEY.fullmatch(name):
        raise _unknown_zone(name)
    try:
        return Zone(name)
    except (zoneinfo.ZoneInfoNotFoundError, FileNotFoundError, IsADirectoryError, ValueError) as error:
        raise _unknown_zone(name) from error
    except OSError as error:
        raise Unavailable(f"the time zone database cannot be read: {error}") from error


def _unknown_zone(name: str) -> InvalidSchedule:
    meant = similar_zone(name[:64]) or "Europe/Berlin"
    return InvalidSchedule(f"unknown time zone '{name[:64]}'; give an IANA name such as '{meant}' or 'UTC'")


def is_abbreviation(word: str) -> bool:
    """Return whether people write this word for a zone, although it is no name of one, or of another one.

    >>> is_abbreviation("PST"), is_abbreviation("EST"), is_abbreviation("MON")
    (True, True, False)
    """
    return word.upper() in _ABBREVIATIONS


#: Abbreviations with the zone that most people mean by them. `EST` and `MST` are also names of zones that
#: have no summer time.
_ABBREVIATIONS: Final = {
    "PST": "America/Los_Angeles", "PDT": "America/Los_Angeles", "PT": "America/Los_Angeles",
    "MDT": "America/Denver", "MT": "America/Denver", "CST": "America/Chicago", "CDT": "America/Chicago",
    "CT": "America/Chicago", "MST": "America/Denver",
    "EST": "America/New_York", "EDT": "America/New_York", "ET": "America/New_York", "BST": "Europe/London",
    "CEST": "Europe/Berlin", "EEST": "Europe/Athens", "MSK": "Europe/Moscow", "IST": "Asia/Kolkata",
    "SGT": "Asia/Singapore", "JST": "Asia/Tokyo", "KST": "Asia/Seoul", "AEST": "Australia/Sydney",
    "AEDT": "Australia/Sydney", "NZST": "Pacific/Auckland", "NZDT": "Pacific/Auckland",
}  # fmt: skip


def similar_zone(name: str) -> str | None:
    """Return the name of a zone that was probably meant: of an abbreviation, a city or a misspelled name."""
    if name.upper() in _ABBREVIATIONS:
        return _ABBREVIATIONS[name.upper()]
    cities = _cities()
    city = name.rpartition("/")[2].replace(" ", "_").lower()
    found = difflib.get_close_matches(city, cities, n=1, cutoff=0.8)
    return cities[found[0]] if found else None


@lru_cache(maxsize=1)
def _cities() -> dict[str, str]:
    """Return the names of all zones by the city in them."""
    return {
        name.rpartition("/")[2].lower(): name
        for name in sorted(zoneinfo.available_timezones())
        if name.partition("/")[0] in _REGIONS
    }


_REGIONS: Final = {
    "Africa",
    "America",
    "Antarctica",
    "Asia",
    "Atlantic",
    "Australia",
    "Europe",
    "Indian",
    "Pacific",
}


def _find(name: str) -> bytes:
    for folder in zoneinfo.TZPATH:
        path = Path(folder, name)
        if path.is_file():
            return path.read_bytes()
    return importlib.resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


def _read(data: bytes) -> tuple[list[int], list[int], str]:
    """Return the transitions of a TZif file (RFC 9636) that change the offset, and its footer."""
    head = struct.Struct(">4sc15x6L")
    magic, version, *counts = head.unpack_from(data)
    if magic != b"TZif":
        raise ValueError("not a TZif file")
    if version < b"2":
        return *_table(data, head.size, counts, 4), ""
    isutcnt, isstdcnt, leapcnt, timecnt, typecnt, charcnt = counts
    second = head.size + timecnt * 5 + typecnt * 6 + charcnt + leapcnt * 8 + isstdcnt + isutcnt
    _, _, *counts = head.unpack_from(data, second)
    footer = data[data.rindex(b"\n", 0, len(data) - 1) + 1 :].decode("ascii").strip()
    return *_table(data, second + head.size, counts, 8), footer


def _table(data: bytes, at: int, counts: list[int], width: int) -> tuple[list[int], list[int]]:
    _, _, _, timecnt, typecnt, _ = counts
    times = struct.unpack_from(f">{timecnt}{'q' if width == 8 else 'l'}", data, at)
    kinds = data[at + timecnt * width : at + timecnt * (width + 1)]
    types = at + timecnt * (width + 1)
    offset_of = [struct.unpack_from(">l", data, types + 6 * index)[0] for index in range(typecnt)]
    starts, offsets = [FAR_PAST], [offset_of[0]]
    for start, kind in zip(times, kinds, strict=True):
        if offset_of[kind] != offsets[-1] and start > FAR_PAST:
            starts.append(start)
            offsets.append(offset_of[kind])
    return starts, offsets


class _Rule:
    """The POSIX rule at the end of a TZif file: two changes per year, without end."""

    def __init__(self, text: str) -> None:
        found = _RULE.fullmatch(text)
        if found is None or found["start"] is None:
            raise ValueError(f"unreadable zone rule: {text}")
        self.standard = -_seconds(found["std"])
        self.summer = -_seconds(found["dst"]) if found["dst"] else self.standard + 3600
        self.start, self.end = found["start"], found["end"]

    def changes(self, year: int) -> list[tuple[int, int]]:
        """Return the year's two changes as (UTC second, new offset), in order."""
        to_summer = _rule_second(self.start, year) - self.standard
        to_standard = _rule_second(self.end, year) - self.summer
        return sorted([(to_summer, self.summer), (to_standard, self.standard)])


def _rule_second(rule: str, year: int) -> int:
    """Return the wall second of a rule's date (`M3.5.0`, `J60`, `59`) and time (default `/2`) in a year."""
    day, _, at = rule.partition("/")
    seconds = _seconds(at) if at else 7200
    january = _wall_second(year, 1, 1)
    if day.startswith("M"):
        month, week, weekday = map(int, day[1:].split("."))
        first = date(year, month, 1)
        offset = (weekday - first.isoweekday()) % 7 + 7 * (week - 1)
        length = (date(year + month // 12, month % 12 + 1, 1) - first).days
        return _wall_second(year, month, 1) + (offset if offset < length else offset - 7) * 86400 + seconds
    number = int(day.lstrip("J"))
    if day.startswith("J"):  # 1 to 365, 29 February never counted
        leap = date(year, 12, 31).timetuple().tm_yday == 366
        number += -1 + (leap and number >= 60)
    return january + number * 86400 + seconds


def _seconds(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    parts = [int(part) for part in text.lstrip("+-").split(":")] + [0, 0]
    return sign * (parts[0] * 3600 + parts[1] * 60 + parts[2])


def _wall_second(year: int, month: int, day: int) -> int:
    return (date(year, month, day).toordinal() - _EPOCH_DAY) * 86400


def _utc_year(utc: int) -> int:
    return date.fromordinal(max(1, min(utc // 86400 + _EPOCH_DAY, date.max.toordinal()))).year
