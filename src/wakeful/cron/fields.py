"""The fields of a cron expression: their ranges, and how they are parsed.

A field is a list of items. Most items are spans of plain values; the day fields also have days that
depend on the month (`L`, `15W`, `5L`, `MON#2`), and can be every n-th day or week (`*%2`, `MON%2`). Every
error names the field, the text and what is expected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NoReturn

from wakeful.errors import InvalidSchedule

WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")


@dataclass(frozen=True, slots=True)
class Span:
    """`first` to `last` in steps; a single value is a span of one. `first > last` wraps (weekdays only)."""

    first: int
    last: int
    step: int = 1


@dataclass(frozen=True, slots=True)
class LastDay:
    """`L`, the last day of the month, or `L-3`, three days before it."""

    back: int = 0


@dataclass(frozen=True, slots=True)
class LastWeekday:
    """`LW`: the last Monday-to-Friday day of the month."""


@dataclass(frozen=True, slots=True)
class NearestWeekday:
    """`15W`: the Monday-to-Friday day nearest to the 15th, never leaving the month."""

    day: int


@dataclass(frozen=True, slots=True)
class LastOf:
    """`5L`: the last Friday of the month."""

    weekday: int


@dataclass(frozen=True, slots=True)
class NthOf:
    """`MON#2`: the second Monday of the month."""

    weekday: int
    nth: int


@dataclass(frozen=True, slots=True)
class Cycle:
    """`%2` behind a day field: every second day, or week from Monday, since 1970. `%2+1`: the others."""

    #: days: 1 or 7
    unit: int
    length: int
    offset: int = 0

    def matching_days(self, first: int, size: int) -> int:
        """Return which of `size` days match, as bits; `first` counts from 1970-01-01.

        >>> bin(Cycle(1, 3).matching_days(3, 7)), bin(Cycle(7, 2).matching_days(4, 14))
        ('0b1001001', '0b11111110000000')
        """
        step, block, bits = self.unit * self.length, (1 << self.unit) - 1, 0
        for at in range((self.first_day(first) - first) - step, size, step):
            bits |= block << at if at >= 0 else block >> -at
        return bits & (1 << size) - 1

    def first_day(self, day: int) -> int:
        """Return the first day of the first matching day or week that starts on this day or later."""
        start = self.offset * self.unit - (3 if self.unit == 7 else 0)  # 1970-01-01 was a Thursday
        return day + (start - day) % (self.unit * self.length)


Special = LastDay | LastWeekday | NearestWeekday | LastOf | NthOf
Item = Span | Special


@dataclass(frozen=True, slots=True)
class CronFieldKind:
    """The kind of a field: its name, range and special values."""

    name: str
    first: int
    last: int
    names: tuple[str, ...] = ()
    wraps: bool = False
    day: bool = False

    def read(self, text: str) -> CronField:
        """Parse a field. Raise InvalidSchedule if it is invalid."""
        if "?" in text and (not self.day or text != "?"):
            where = "stands alone there" if self.day else "belongs in the two day fields only; use '*'"
            self.refuse(text, f"'?' {where}")
        days, percent, every = text.partition("%") if self.day else (text, "", "")
        cycle = self._cycle(text, every) if percent else None
        items = tuple(self._item(part, text) for part in days.split(","))
        bits = 0
        for item in items:
            if isinstance(item, Span):
                bits |= self._bits(item)
        specials = tuple(item for item in items if not isinstance(item, Span))
        if cycle and (specials or (self is DAY_OF_MONTH and days != "*")):
            before = "'*'" if self is DAY_OF_MONTH else "'*' or weekdays, as in 'MON,THU%2'"
            self.refuse(text, f"before '%' comes {before}")
        return CronField(self, text.upper(), items, specials, bits, text[0] in "*?", cycle)

    def refuse(self, text: str, why: str) -> NoReturn:
        """Raise InvalidSchedule with the field's name and text."""
        raise InvalidSchedule(f"{self.name}: '{text}': {why}")

    def _cycle(self, text: str, every: str) -> Cycle:
        length, plus, offset = every.partition("+")
        unit, most = (1, 366) if self is DAY_OF_MONTH else (7, 52)
        if not _is_number(length) or not 2 <= int(length) <= most:
            self.refuse(
                text, f"after '%' comes 2 to {most}: '%2' is every second {'week' if unit == 7 else 'day'}"
            )
        if plus and not (_is_number(offset) and int(offset) < int(length)):
            self.refuse(text, f"after '+' comes 0 to {int(length) - 1}: which of {length} it is")
        return Cycle(unit, int(length), int(offset or 0))

    def _item(self, part: str, whole: str) -> Item:
        if not part:
            self.refuse(whole, "an item of the list is empty; write the values between single commas")
        special = self._special(part) if self.day else None
        return special or self._span(part)

    def _span(self, part: str) -> Span:
        body, slash, step_text = part.partition("/")
        step = 1
        if slash:
            if not _is_number(step_text) or int(step_text) == 0:
                self.refuse(part, "a step is a whole number of 1 or more, as in '*/15'")
            step = int(step_text)  # a step past the end leaves the first value, as in Debian's cron
        if body in ("*", "?"):
            return Span(self.first, 6 if self is DAY_OF_WEEK else self.last, step)
        low_text, dash, high_text = body.partition("-")
        low = self._value(low_text, part)
        if not dash:
            return Span(low, self.last if slash else low, step)
        high = self._value(high_text, part)
        if low > high and not self.wraps:
            both = f"{low_text}-{self.last},{self.first}-{high_text}"
            self.refuse(part, f"the range runs backwards; to wrap around the end write '{both}'")
        return Span(low, high, step)

    def _value(self, text: str, part: str) -> int:
        if _is_number(text):
            value = int(text)
            if not self.first <= value <= self.last:
                self.refuse(
                    part,
                    f"{value} is out of range; {self.name} goes from {self.range_text}{self._hint(value)}",
                )
            return value
        if text.upper() in self.names:
            return self.names.index(text.upper()) + self.first
        expected = f"a number from {self.range_text}"
        if self.names:
            expected += f" or a name from {self.names[0]} to {self.names[-1]}"
            for name in self.names:
                if text.upper().startswith(name):
                    expected += f" (write {name})"
        self.refuse(
            part, f"{text!r} is not {expected}" if text else f"a value is missing; expected {expected}"
        )

    def _hint(self, value: int) -> str:
        if self is DAY_OF_WEEK and value >= YEAR.first:
            return " (a year goes last of seven fields: second minute hour day month weekday year)"
        return ""

    @property
    def range_text(self) -> str:
        """The range of the field, for error messages."""
        return f"{self.first} to {self.last}"

    def _special(self, part: str) -> Special | None:
        if self is DAY_OF_MONTH:
            return self._special_day(part)
        if part in "Ll":
            self.refuse(part, "'L' needs its weekday here: '5L' is the last Friday of the month")
        weekday_text, hash_, nth_text = part.partition("#")
        if hash_:
            if nth_text not in ("1", "2", "3", "4", "5"):
                self.refuse(part, "after '#' comes 1 to 5: 'MON#2' is the second Monday of the month")
            return NthOf(self._value(weekday_text, part) % 7, int(nth_text))
        if part[-1] in "Ll":
            return LastOf(self._value(part[:-1], part) % 7)
        return None

    def _special_day(self, part: str) -> Special | None:
        upper = part.upper()
        if upper == "LW":
            return LastWeekday()
        if upper == "L":
            return LastDay()
        if upper.startswith("L-"):
            back = part[2:]
            if not _is_number(back) or not 1 <= int(back) <= 30:
                self.refuse(
                    part, "after 'L-' comes 1 to 30: 'L-3' is three days before the last of the month"
                )
            return LastDay(int(back))
        if upper.endswith("W"):
            if not _is_number(part[:-1]):
                self.refuse(part, "before 'W' comes one day: '15W' is the weekday nearest to the 15th")
            return NearestWeekday(self._value(part[:-1], part))
        return None

    def _bits(self, span: Span) -> int:
        if self is DAY_OF_WEEK:
            first, last = span.first, span.last
            if first > last:
                first, last = (0, last) if first == 7 else (first, last + 7)
            return sum({1 << value % 7 for value in range(first, last + 1, span.step)})
        return sum(1 << value - self.offset for value in range(span.first, span.last + 1, span.step))

    @property
    def offset(self) -> int:
        """The value of bit 0 in the field's set."""
        return self.first if self is YEAR else 0


@dataclass(frozen=True, slots=True)
class CronField:
    """A parsed field: its items in order, and its plain values as a bit set."""

    kind: CronFieldKind
    text: str
    items: tuple[Item, ...]
    specials: tuple[Special, ...]
    bits: int
    starred: bool
    #: the days or weeks to which it is limited
    cycle: Cycle | None = None

    @property
    def any(self) -> bool:
        """Whether the field matches everything: `*` or `?`."""
        return self.text in ("*", "?")

    def values(self) -> list[int]:
        """Return the plain values, ascending."""
        bits, offset = self.bits, self.kind.offset
        return [value + offset for value in range(bits.bit_length()) if bits >> value & 1]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


SECOND: Final = CronFieldKind("second", 0, 59)
MINUTE: Final = CronFieldKind("minute", 0, 59)
HOUR: Final = CronFieldKind("hour", 0, 23)
DAY_OF_MONTH: Final = CronFieldKind("day-of-month", 1, 31, day=True)
MONTH: Final = CronFieldKind("month", 1, 12, MONTHS)
DAY_OF_WEEK: Final = CronFieldKind("day-of-week", 0, 7, WEEKDAYS, wraps=True, day=True)
YEAR: Final = CronFieldKind("year", 1970, 2199)
