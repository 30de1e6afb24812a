"""A cron expression in words, with exactly the meaning of the expression.

The sentence is built from the sets of values, so `0,15,30,45` and `*/15` read the same; the spelling
decides only between two sentences that are both true. "Every 15 minutes" is used only if the steps divide
the hour evenly; values without a short form are listed. DST changes are not described.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date, timedelta
from itertools import pairwise
from typing import Final

from wakeful.cron.expression import Expression
from wakeful.cron.fields import CronField, LastDay, LastOf, LastWeekday, NearestWeekday, NthOf, Special

MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
NTH: Final = ("first", "second", "third", "fourth", "fifth")
_EPOCH: Final = date(1970, 1, 1)
#: A cycle of days or weeks is counted from its first one from this day on.
_COUNTED_FROM: Final = (date(2026, 1, 1) - _EPOCH).days
_FEW_TIMES: Final = 6  # more are described as a rule, if there is one
_FEW_WINDOWS: Final = 3
_LONG: Final = 3  # from this many neighbours on: "first through last"


def explain(expression: Expression, tz: str) -> str:
    """Return one sentence that says when the expression fires in `tz`.

    >>> from wakeful.cron.expression import parse
    >>> explain(parse("0 9 * * MON-FRI"), "Europe/Berlin")
    'At 09:00, Monday through Friday (Europe/Berlin)'
    >>> explain(parse("*/5 9-17 13 JUN FRI"), "UTC")
    'Every 5 minutes from 09:00 through 17:59, on the 13th or on Fridays, in June (UTC)'
    """
    time, days = _time(expression), _days(expression)
    if not days and "every" not in time.lower():
        days = "every day"
    return f"{', '.join(part for part in (time, days, _season(expression)) if part)} ({tz})"


# The time of day


def _time(expression: Expression) -> str:
    if len(expression.seconds.values()) > 1:
        return _by_second(expression)
    if len(expression.minutes.values()) > 1:
        return _by_minute(expression)
    return _by_hour(expression)


def _by_hour(expression: Expression) -> str:
    """Describe one instant in each of some hours."""
    hours = expression.hours.values()
    (minute,), (second,) = expression.minutes.values(), expression.seconds.values()
    few = len(hours) <= _FEW_TIMES
    past, even = _past(minute, second), _even_step(hours, 24)
    if even == 1:
        return f"At {past} past every hour" if past else "Every hour, on the hour"
    if even and (expression.hours.starred or not few):
        return f"Every {even} hours, {f'at {past} past' if past else 'on'} the hour"
    runs, step = find_runs(hours), _step(hours)
    if _are_windows(runs):
        step = 1
    elif step and not few:
        runs = [(hours[0], hours[-1])]
    else:
        return _list_times(expression)
    offset = minute * 60 + second
    spans = [(first * 3600 + offset, last * 3600 + offset) for first, last in runs]
    return _every(step, "hour") + _from_through(spans, to_the_second=second > 0)


def _by_minute(expression: Expression) -> str:
    """Describe one second in each of several minutes."""
    minutes, hours = expression.minutes.values(), expression.hours.values()
    few = len(minutes) * len(hours) <= _FEW_TIMES
    even = _even_step(minutes, 60)
    runs = find_runs(_minutes_of_day(expression))
    if even and (expression.minutes.starred or not few):
        time = _every(even, "minute") + _in_hours(hours)
    elif _are_windows(runs):
        time = "Every minute" + _from_through([(first * 60, last * 60) for first, last in runs])
    elif few:
        return _list_times(expression)
    else:
        time = f"At minutes {_ranges_text(minutes)} past {_hours(hours)}"
    (second,) = expression.seconds.values()
    return f"{time}, at second {second}" if second else time


def _by_second(expression: Expression) -> str:
    """Describe several seconds in each of some minutes."""
    seconds, in_day = expression.seconds.values(), _minutes_of_day(expression)
    even = _even_step(seconds, 60)
    if len(seconds) * len(in_day) <= _FEW_TIMES and not (even and expression.seconds.starred):
        return _list_times(expression)
    runs = find_runs(seconds)
    if not even and len(runs) == 1 and len(in_day) <= _FEW_WINDOWS:
        spans = [(at * 60 + first, at * 60 + last) for at in in_day for first, last in runs]
        return f"Every second{_from_through(spans, to_the_second=True)}"
    limit = _in_minutes(expression)
    if limit is not None:
        return (
            _every(even, "second") if even else f"At seconds {_ranges_text(seconds)} of every minute"
        ) + limit
    minutes = _some(expression.minutes.values(), 60, "minute", "minute 0")
    when = f"{_every(even, 'second')} during" if even else f"At seconds {_ranges_text(seconds)} of"
    return f"{when} {minutes} of {_hours(expression.hours.values())}"


def _in_minutes(expression: Expression) -> str | None:
    """Return the minutes of the day as a limit of "every", if they are whole hours or few windows."""
    runs = find_runs(_minutes_of_day(expression))
    if len(runs) > _FEW_WINDOWS:
        return _in_hours(expression.hours.values()) if len(expression.minutes.values()) == 60 else None
    if runs == [(0, 1439)]:
        return ""
    return _from_through([(first * 60, last * 60 + 59) for first, last in runs], to_the_second=True)


def _list_times(expression: Expression) -> str:
    seconds = expression.seconds.values()
    times = (at * 60 + second for at in _minutes_of_day(expression) for second in seconds)
    return f"At {_and(_clock(time, seconds != [0]) for time in times)}"


def _hours(hours: Sequence[int]) -> str:
    """Return some hours as a noun, to follow "past" or "of"."""
    if len(find_runs(hours)) <= _FEW_WINDOWS:
        return f"every hour{_in_hours(hours)}"
    return _some(hours, 24, "hour", "00:00")


def _in_hours(hours: Sequence[int]) -> str:
    """Return some hours as a limit of "every"; empty for all hours."""
    runs = find_runs(hours)
    if runs == [(0, 23)]:
        return ""
    if len(runs) <= _FEW_WINDOWS:
        return _from_through([(first * 3600, last * 3600 + 59 * 60) for first, last in runs])
    return f" during {_hours(hours)}"


def _some(values: Sequence[int], size: int, noun: str, start: str) -> str:
    even = _even_step(values, size)
    if even:
        return f"every {_ordinal(even)} {noun} from {start}"
    return f"{noun}{'s' if len(values) > 1 else ''} {_ranges_text(values)}"


def _from_through(spans: Iterable[tuple[int, int]], to_the_second: bool = False) -> str:
    def window(span: tuple[int, int]) -> str:
        first, last = (_clock(second, to_the_second) for second in span)
        return f"from {first} through {last}"

    return f" {_and(map(window, spans))}"


def _past(minute: int, second: int) -> str:
    return _and(_count(number, noun) for number, noun in ((minute, "minute"), (second, "second")) if number)


def _clock(second_of_day: int, to_the_second: bool) -> str:
    minutes, second = divmod(second_of_day, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}" + (f":{second:02}" if to_the_second else "")


def _minutes_of_day(expression: Expression) -> list[int]:
    minutes = expression.minutes.values()
    return [hour * 60 + minute for hour in expression.hours.values() for minute in minutes]


# The days


def _days(expression: Expression) -> str:
    """Return both day fields as one phrase; empty if every day matches."""
    days, weekdays = expression.days, expression.weekdays
    if cycle := expression.cycle:
        first = _EPOCH + timedelta(days=cycle.first_day(_COUNTED_FROM))
        every = f"every {_count(cycle.length, 'day' if cycle.unit == 1 else 'week')} counted from {first}"
        return every if cycle.unit == 1 else f"{_weekdays(weekdays)} of {every}"
    every_date, every_weekday = len(days.values()) == 31, len(weekdays.values()) == 7
    both = days.starred or weekdays.starred
    if (every_date and every_weekday) or (not both and (every_date or every_weekday)):
        return ""
    if every_date:
        return _weekdays(weekdays)
    if every_weekday:
        return _dates(days)
    return f"{_dates(days)}{', but only ' if both else ' or '}{_weekdays(weekdays)}"


def _dates(field: CronField) -> str:
    values = field.values()
    step = _step(values)
    phrases = []
    if step and step > 1 and len(values) > _FEW_TIMES and values == list(range(1, 32, step)):
        phrases.append(f"every {step} days from the 1st of each month")
    elif values:
        phrases.append(f"on the {_ranges_text(values, _ordinal)}")
    return _and([*phrases, *map(_special, dict.fromkeys(field.specials))])


def _weekdays(field: CronField) -> str:
    values = field.values()
    # A run starts with a day whose previous day is not in the set; it may wrap around the week.
    starts = [day for day in values if (day - 1) % 7 not in values]
    phrases = []
    if len(values) >= _LONG and len(starts) == 1:
        last = (starts[0] + len(values) - 1) % 7
        phrases.append(f"{WEEKDAYS[starts[0]]} through {WEEKDAYS[last]}")
    elif values:
        phrases.append(f"on {_and(f'{WEEKDAYS[day]}s' for day in sorted(values, key=lambda day: day or 7))}")
    return _and([*phrases, *map(_special, dict.fromkeys(field.specials))])


def _special(special: Special) -> str:
    match special:
        case LastDay(0):
            return "on the last day of the month"
        case LastDay(back):
            return f"{_count(back, 'day')} before the last day of the month"
        case LastWeekday():
            return "on the last weekday of the month"
        case NearestWeekday(day):
            return f"on the weekday nearest to the {_ordinal(day)}"
        case LastOf(weekday):
            return f"on the last {WEEKDAYS[weekday]} of the month"
        case NthOf(weekday, nth):
            return f"on the {NTH[nth - 1]} {WEEKDAYS[weekday]} of the month"


# Months and years


def _season(expression: Expression) -> str:
    months = expression.months.values()
    names = "" if len(months) == 12 else _ranges_text(months, lambda month: MONTHS[month - 1])
    parts = [part for part in (names, _years(expression.years)) if part]
    return f"in {' of '.join(parts)}" if parts else ""


def _years(field: CronField | None) -> str:
    if field is None or field.bits.bit_count() > field.kind.last - field.kind.first:
        return ""
    years = field.values()
    step = _step(years)
    if step and step > 1 and len(years) > _LONG:
        return f"every {_ordinal(step)} year from {years[0]} through {years[-1]}"
    return _ranges_text(years)


# Numbers and words


def _even_step(values: Sequence[int], size: int) -> int | None:
    """Return the step if the values are all multiples of it from 0 and it divides the field's size."""
    step = size // len(values)  # rounded down, it yields too many values
    return step if step < size and list(values) == list(range(0, size, step)) else None


def _step(values: Sequence[int]) -> int | None:
    """Return the common distance of neighbours, if there is one."""
    distances = {later - earlier for earlier, later in pairwise(values)}
    return distances.pop() if len(distances) == 1 else None


def find_runs(values: Iterable[int]) -> list[tuple[int, int]]:
    """Return the (first, last) of each contiguous run of ascending values."""
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and value == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    return runs


def _are_windows(runs: Sequence[tuple[int, int]]) -> bool:
    return len(runs) <= _FEW_WINDOWS and all(last - first + 1 >= _LONG for first, last in runs)


def _ranges_text(values: Iterable[int], name: Callable[[int], str] = str) -> str:
    words: list[str] = []
    for first, last in find_runs(values):
        if last - first + 1 >= _LONG:
            words.append(f"{name(first)} through {name(last)}")
        else:
            words += [name(value) for value in range(first, last + 1)]
    return _and(words)


def _and(words: Iterable[str]) -> str:
    *others, last = [*words] or [""]
    return f"{', '.join(others)} and {last}" if others else last


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _every(step: int, noun: str) -> str:
    return f"Every {noun}" if step == 1 else f"Every {step} {noun}s"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
