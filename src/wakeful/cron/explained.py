"""The cron expression of a sentence of `explain`, so that what a job's `explain` says is a schedule, too.

The parts of a sentence are read loosely into fields that it may mean. An expression is returned only if
`explain` says exactly this sentence of it.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Final

from wakeful.cron.explain import MONTHS, NTH, WEEKDAYS, explain, find_runs
from wakeful.cron.expression import parse
from wakeful.errors import InvalidSchedule

_LONGEST: Final = 1_000
#: No sentence has more spans of time; each may be a whole day of seconds.
_MOST_SPANS: Final = 4
_CLOCK: Final = r"\d\d:\d\d(?::\d\d)?"
_SPAN: Final = re.compile(rf"from ({_CLOCK}) through ({_CLOCK})")
_DAY: Final = "|".join(WEEKDAYS)
_MONTH: Final = re.compile(rf"({'|'.join(MONTHS)})(?: through ({'|'.join(MONTHS)}))?")
_SENTENCE: Final = re.compile(
    r"(?P<time>(?:At|Every) .+?)"
    rf"(?:, (?P<days>(?:every (?:day$|\d+ days)|on (?!the hour)|\d+ days? before|(?:{_DAY}) through).*?))??"
    r"(?:, in (?P<season>[^,]+(?:, [^,]+)*))?"
)
_PAST: Final = re.compile(r"[Aa]t (?:(\d+) minutes?)?(?: and )?(?:(\d+) seconds?)? past (?:every|the) hour")
_EVERY: Final = re.compile(r"Every (?:(\d+) )?(hour|minute|second)")
_YEARS: Final = re.compile(r"every (\d+)\w+ year from (\d+) through (\d+)")
_CYCLE: Final = re.compile(r"(?:(.+) of )?every (\d+) (day|week)s counted from (\d{4}-\d\d-\d\d)")
#: The items of the day fields, in the order of the sentence.
_DATE: Final = re.compile(
    r"every (\d+) days|on the (\d+\w\w(?:(?: through |, | and )\d+\w\w)*)|(on the last day)"
    r"|(\d+) days? before|(on the last weekday)|nearest to the (\d+)"
)
_WEEKDAY: Final = re.compile(
    rf"({_DAY}) through ({_DAY})|({_DAY})s|on the last ({_DAY})|on the ({'|'.join(NTH)}) ({_DAY})"
)


def parse_explanation(text: str) -> tuple[str, str] | None:
    """Return the expression and the zone of a sentence of `explain`; None for another text.

    >>> parse_explanation("At 09:00, Monday through Friday (Europe/Berlin)")
    ('0 9 * * 1-5', 'Europe/Berlin')
    """
    body, _, tz = text[:_LONGEST].removesuffix(")").rpartition(" (")
    match = _SENTENCE.fullmatch(body) if text.endswith(")") else None
    if match is None:
        return None
    months, years = _season(match["season"] or "")
    for (second, minute, hour), (date, weekday) in product(_times(match["time"]), _days(match["days"] or "")):
        expr = f"{minute} {hour} {date} {months} {weekday}"
        if years or second != "0":
            expr = f"{second} {expr} {years}".strip()
        try:
            if explain(parse(expr), tz) == text:
                return expr, tz
        except InvalidSchedule:
            continue
    return None


def _times(time: str) -> Iterator[tuple[str, str, str]]:
    """Yield the fields second, minute and hour that a time can mean."""
    every, past, spans = _EVERY.match(time), _PAST.search(time), _spans(time)
    step, unit = every.groups() if every else (None, "")
    if past or time.endswith("on the hour"):
        minute, second = past.groups() if past else (None, None)
        yield second or "0", minute or "0", f"*/{step}" if step else "*"
        return
    if not every and re.match(rf"At {_CLOCK}", time):
        yield _product(_second(clock) for clock in re.findall(_CLOCK, time))
        return
    if unit == "hour":
        hours = int(step or 1) * 3600
        yield _product(at for first, last in spans for at in range(first, last + 1, hours))
        return
    alone = re.search(r", at second (\d+)", time)
    seconds = _field(time, "second", 60, step if unit == "second" else None) or [alone[1] if alone else "0"]
    minutes = _field(time, "minute", 60, step if unit == "minute" else None) or ["*"]
    hours_of = _field(time, "hour", 24) or [_text({at // 3600 for at in _points(spans, 3600)}) or "*"]
    yield from product(seconds, minutes, hours_of)
    for size in (60, 1) if spans else ():
        _, minute, hour = exact = _product(_points(spans, size))
        yield from ((second, minute, hour) for second in (*seconds, exact[0]))


def _field(time: str, unit: str, size: int, step: str | None = None) -> list[str]:
    """Return the ways to write the numbers of a unit, with a star and without; empty if it has none."""
    stepped = re.search(rf"every (\d+)\w\w {unit} from", time)
    listed = re.search(
        rf"{unit}s? (\d+(?:(?: through |, | and )\d+)*)(?! {unit}s)", time.partition(", at second")[0]
    )
    if time.startswith("Every") and unit in time.split()[1 if step is None else 2]:
        return [f"*/{step}", f"0-{size - 1}/{step}"] if step else ["*", f"0-{size - 1}"]
    if stepped:
        return [f"*/{stepped[1]}"]
    if listed is None:
        return []
    values = _values(listed[1])
    starred = [f"*/{every}" for every in range(2, size) if values == {*range(0, size, every)}]
    return [*starred, _text(values)]


def _points(spans: Iterable[tuple[int, int]], size: int) -> set[int]:
    return {at for first, last in spans for at in range(first, last + 1, size)}


def _product(times: Iterable[int]) -> tuple[str, str, str]:
    """Return the fields of these seconds of the day; together they may have more."""
    known = {*times}
    return (
        _text({at % 60 for at in known}),
        _text({at // 60 % 60 for at in known}),
        _text({at // 3600 for at in known}),
    )


def _spans(text: str) -> list[tuple[int, int]]:
    return [(_second(first), _second(last)) for first, last in _SPAN.findall(text)[:_MOST_SPANS]]


def _second(clock: str) -> int:
    hour, minute, second = (*map(int, clock.split(":")), 0)[:3]
    return hour * 3600 + minute * 60 + second


def _values(text: str) -> set[int]:
    spans = re.findall(r"(\d+)\w*(?: through (\d+))?", text)
    return {value for first, last in spans for value in range(int(first), min(int(last or first), 9_999) + 1)}


def _text(values: Iterable[int]) -> str:
    """Return values as a field."""
    runs = find_runs(sorted(values))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _season(text: str) -> tuple[str, str]:
    """Return the fields month and year; the latter is empty for all years."""
    spans = [(MONTHS.index(first), MONTHS.index(last or first)) for first, last in _MONTH.findall(text)]
    months = _text({month + 1 for first, last in spans for month in range(first, last + 1)})
    stepped = _YEARS.search(text)
    years = f"{stepped[2]}-{stepped[3]}/{stepped[1]}" if stepped else _text(_values(text))
    return months or "*", years


def _days(text: str) -> Iterator[tuple[str, str]]:
    """Yield the day fields that the days can mean; both apply if one begins with a star."""
    if (cycle := _CYCLE.fullmatch(text)) is not None:
        found = day_fields(cycle[3], int(cycle[2]), cycle[4], _weekdays(cycle[1] or "") or "*")
        yield from [found] if found else []
        return
    dates, both, weekdays = text.partition(", but only ")
    if not both:
        dates, _, weekdays = text.partition(" or ")
    date, weekday = _dates(dates), _weekdays(weekdays or dates)
    if both:
        stepped = re.match(r"every (\d+) days", dates)
        yield f"*/{stepped[1]}" if stepped else f"*/31,{date}", weekday
        yield date, f"*/7,{weekday}"
    yield date or "*", weekday or "*"


def day_fields(unit: str, number: int, day: str, weekdays: str = "*") -> tuple[str, str] | None:
    """Return the day fields of every so many days or weeks, counted from a day; None if that is no date.

    >>> day_fields("week", 2, "2026-11-30", "1")
    ('*', '1%2')
    """
    try:
        since = (datetime.date.fromisoformat(day) - datetime.date(1970, 1, 1)).days
    except ValueError:
        return None
    offset = (since if unit == "day" else (since + 3) // 7) % number
    cycle = f"%{number}+{offset}" if offset else f"%{number}"
    return (f"*{cycle}", "*") if unit == "day" else ("*", f"{weekdays}{cycle}")


def _dates(text: str) -> str:
    found = []
    for step, numbers, last, back, last_weekday, nearest in _DATE.findall(text):
        found += [f"1-31/{step}"] if step else [_text(_values(numbers))] if numbers else []
        found += ["L"] if last else [f"L-{back}"] if back else []
        found += ["LW"] if last_weekday else [f"{nearest}W"] if nearest else []
    return ",".join(found)


def _weekdays(text: str) -> str:
    found, number = [], {name: index for index, name in enumerate(WEEKDAYS)}
    for first, end, day, last, which, nth in _WEEKDAY.findall(text):
        if first:
            days = range(number[first], number[end] + 1 + 7 * (number[end] < number[first]))
            found.append(_text({each % 7 for each in days}))
        elif which:
            found.append(f"{number[nth]}#{NTH.index(which) + 1}")
        else:
            found.append(f"{number[last]}L" if last else str(number[day]))
    return ",".join(found)
