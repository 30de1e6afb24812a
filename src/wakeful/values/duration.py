"""Durations as text and as whole milliseconds.

A duration is a list of amounts with units, the largest first, each unit once: `1h30m`, `20 minutes`,
`1.5h`. Months and years are not units: their length varies. Use a cron expression for them.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final, NoReturn

from wakeful.errors import InvalidArgument

MILLISECOND: Final = 1
SECOND: Final = 1000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
WEEK: Final = 7 * DAY
LONGEST: Final = 36525 * DAY
"""A hundred years: no search looks further ahead."""

_UNITS: Final = {
    spelling: length
    for spellings, length in (
        ("ms msec msecs millisecond milliseconds", MILLISECOND),
        ("s sec secs second seconds", SECOND),
        ("m min mins minute minutes", MINUTE),
        ("h hr hrs hour hours", HOUR),
        ("d day days", DAY),
        ("w week weeks", WEEK),
    )
    for spelling in spellings.split()
}
_WITHOUT_LENGTH: Final = {"mo", "mon", "month", "months", "y", "yr", "yrs", "year", "years"}
_PART: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?) ?([a-z]+)(?:(?:, ?| )?(?:and )?(?=[0-9]))?")
_NAMES: Final = (
    (DAY, "d", "day"),
    (HOUR, "h", "hour"),
    (MINUTE, "m", "minute"),
    (SECOND, "s", "second"),
    (MILLISECOND, "ms", "millisecond"),
)


def parse_duration(text: str) -> int:
    """Return the milliseconds of a duration, or raise InvalidArgument with a suggestion.

    >>> parse_duration("1h30m"), parse_duration("20 minutes"), parse_duration("500ms")
    (5400000, 1200000, 500)
    >>> parse_duration("15")
    Traceback (most recent call last):
    wakeful.errors.InvalidArgument: '15' is not a duration: the unit is missing; write '15m' or '15s'
    """
    normal = " ".join(text.lower().split())
    if not normal:
        _refuse(text, "it is empty; write '15m' or '1h30m'")
    if re.fullmatch(r"[0-9.]+", normal):
        _refuse(text, f"the unit is missing; write '{normal[:20]}m' or '{normal[:20]}s'")
    if normal.startswith("-"):
        _refuse(text, "it is negative; a duration is zero or more")
    total, smallest, at = Fraction(0), LONGEST, 0
    while at < len(normal):
        part = _PART.match(normal, at)
        if part is None:
            _refuse(
                text,
                f"'{normal[at : at + 20]}' is not a number with a unit; write '15m', '1h30m' or '90 seconds'",
            )
        length = _length(part[2], text)
        if length >= smallest:
            _refuse(text, "give each unit once, the largest first, as in '1h30m'")
        total, smallest, at = total + Fraction(part[1]) * length, length, part.end()
    if total > LONGEST:
        _refuse(text, "it is longer than 100 years (36525 days)")
    if total.denominator != 1:
        _refuse(text, "it is not a whole number of milliseconds")
    return int(total)


def format_duration(ms: int) -> str:
    """Return the shortest text that `parse_duration` reads; in weeks only if they are whole.

    >>> format_duration(5_400_000), format_duration(1_209_600_000), format_duration(0)
    ('1h30m', '2w', '0s')
    """
    if ms and ms % WEEK == 0:
        return f"{ms // WEEK}w"
    text = "".join(f"{amount}{short}" for amount, short, _ in _amounts(abs(ms)))
    return ("-" if ms < 0 else "") + (text or "0s")


def spell_duration(ms: int) -> str:
    """Return a duration in words.

    >>> spell_duration(5_400_000), spell_duration(86_400_000)
    ('1 hour 30 minutes', '1 day')
    """
    words = [f"{amount} {name}{'' if amount == 1 else 's'}" for amount, _, name in _amounts(ms)]
    return " ".join(words) or "0 seconds"


def _amounts(ms: int) -> list[tuple[int, str, str]]:
    found = []
    for length, short, name in _NAMES:
        amount, ms = divmod(ms, length)
        if amount:
            found.append((amount, short, name))
    return found


def _length(unit: str, text: str) -> int:
    if unit in _WITHOUT_LENGTH:
        _refuse(text, f"'{unit}' has no fixed length; give days or weeks, or a cron expression")
    if unit not in _UNITS:
        _refuse(text, f"unknown unit '{unit[:20]}'; use ms, s, m, h, d or w")
    return _UNITS[unit]


def _refuse(text: str, why: str) -> NoReturn:
    raise InvalidArgument(f"'{text[:64]}' is not a duration: {why}")
