"""Time spans of systemd, such as `1h 30min` or `90`."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from wakeful.errors import InvalidArgument

_SECOND: Final = 1000
_DAY: Final = 86_400 * _SECOND
_UNITS: Final = {
    unit: Fraction(length)
    for units, length in (
        ("usec us µs μs", Fraction(1, 1000)),
        ("msec ms", 1),
        ("seconds second sec s", _SECOND),
        ("minutes minute min m", 60 * _SECOND),
        ("hours hour hr h", 3600 * _SECOND),
        ("days day d", _DAY),
        ("weeks week w", 7 * _DAY),
        ("months month M", Fraction("30.44") * _DAY),
        ("years year y", Fraction("365.25") * _DAY),
    )
    for unit in units.split()
}
_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-zµμ]*)\s*")


def read_span(text: str) -> int | None:
    """Return the milliseconds of a time span; a number without a unit is seconds. None is `infinity`.

    >>> read_span("1h 30min"), read_span("90"), read_span("5m30s"), read_span("infinity")
    (5400000, 90000, 330000, None)
    """
    if text.strip() == "infinity":
        return None
    total, at = Fraction(0), 0
    while at < len(text):
        part = _PART.match(text, at)
        unit = _UNITS.get(part[2] or "s") if part is not None else None
        if part is None or unit is None:
            raise InvalidArgument(f"'{text}' is not a time span such as '1h 30min'")
        total, at = total + Fraction(part[1]) * unit, part.end()
    if not text.strip():
        raise InvalidArgument("the time span is empty")
    return round(total)
