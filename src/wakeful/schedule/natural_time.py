"""Schedules in English: "tomorrow at 9", "every weekday at 7:30am", "in an hour".

`parse_phrase` returns a schedule document that `parse_schedule` reads, or None for a text that it does not
know. It raises InvalidSchedule for a phrase without a definite time ("every morning"), with a suggestion.
Days are local days of the zone; a weekday is the next one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, NamedTuple

from wakeful.cron.explained import day_fields, parse_explanation
from wakeful.cron.zone import zone
from wakeful.errors import InvalidArgument, InvalidSchedule
from wakeful.schedule.phrase_words import (
    MONTHS,
    NTH,
    NUMBERS,
    SHORT_DAYS,
    WEEKDAYS,
    closest_word,
    named_zones,
    unknown_zone,
    zone_name,
)
from wakeful.values.duration import parse_duration

#: A schedule as JSON.
Document = dict[str, str | int]

_LONGEST: Final = 200
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ONE_TIME: Final = (
    r"(?:[0-9]{1,2}(?:[:.][0-9]{2})? ?(?:am|pm|o'clock)?|noon|midday|midnight)"
    r"(?: in the morning| in the afternoon| in the evening| at night)?"
)
_TIMES: Final = rf"(?P<at>at )?(?P<times>{_ONE_TIME}(?: and (?:at )?{_ONE_TIME})*)"
_AT_END: Final = re.compile(rf"(?:(?P<rest>.*?\S) )??{_TIMES}")
_AT_START: Final = re.compile(rf"{_TIMES} (?:on )?(?P<rest>.+)")
_TIME: Final = re.compile(
    r"(?:(?P<hour>[0-9]{1,2})(?:[:.](?P<minute>[0-9]{2}))? ?(?P<half>am|pm|o'clock)?|(?P<name>[a-z]+))"
    r"(?: in the (?P<part>morning|afternoon|evening)| at (?P<night>night))?"
)
#: What a job that runs once says of its schedule.
_ONCE: Final = re.compile(r"Once, at ([0-9]{4}-[0-9:. +-]+) \(([\w/+-]+)\)")
_PART: Final = re.compile(r"(.*?) ?(?:in the )?\b(morning|afternoon|evening|night)(s?)")
#: The hours of each part of the day.
_HOURS_OF: Final = {
    "morning": range(12),
    "afternoon": range(12, 19),
    "evening": range(16, 24),
    "night": (*range(6), *range(16, 24)),
}
#: Days or weeks that are counted: "every other day at 9", "every 2 weeks on monday at 9".
_SPACED: Final = re.compile(
    r"every (?P<number>other|second|[0-9]{1,2}|two|three|four|five|six|ten) (?P<unit>day|week|[a-z]+day)s?"
    rf"(?: on (?P<days>[a-z]+(?: and (?:on )?[a-z]+)*))?(?: (?:at )?{_TIMES})?"
    r"(?: (?:from|since|starting|counted from) (?:on )?(?P<since>[0-9]{4}-[0-9]{2}-[0-9]{2}))?"
)
_DATE: Final = re.compile(
    r"(?:on )?(?:the )?(?:(?P<day>[0-9]{1,2})(?:st|nd|rd|th)? (?:of )?(?P<month>[a-z]+)"
    r"|(?P<month2>[a-z]+) (?P<day2>[0-9]{1,2})(?:st|nd|rd|th)?)(?: (?:and )?(?P<year>[0-9]{4}))?"
)
_MONTHLY: Final = (
    re.compile(r"(?:every month|each month|monthly) on (?:the )?(?P<which>.+)"),
    re.compile(r"(?:on |every )?(?:the )?(?P<which>.+) of (?:every|each|the) month"),
)
_VAGUE: Final = re.compile(
    r"daily|weekly|monthly|yearly|tomorrow|today|tonight|weekdays?|weekends?|"
    r"(?:every|each|this|tomorrow|in the) (?:morning|afternoon|evening|night|weekday|weekend|workday)s?|"
    r"mornings|afternoons|evenings|nights|later|soon|(?:the )?day after tomorrow|next (?:week|month)"
)


class _Clock(NamedTuple):
    """A time of day; `sure`: the text excludes the other half of the day."""

    hour: int
    minute: int
    sure: bool
    #: at night and after midnight: the night of a day ends on the next day
    after_midnight: bool = False


@dataclass(frozen=True, slots=True)
class _Phrase:
    text: str
    tz: str
    now: datetime
    now_ms: int


def parse_phrase(text: str, *, now_ms: int, tz: str) -> Document | None:
    """Return the schedule of a phrase in the local time of `tz`; None for an unknown text.

    >>> nine = dict(now_ms=1_800_000_000_000, tz="Europe/Berlin")  # a Friday, 09:00
    >>> parse_phrase("tomorrow at 9", **nine)
    {'kind': 'at', 'at': '2027-01-16T09:00', 'tz': 'Europe/Berlin'}
    >>> parse_phrase("every weekday at 7:30am", **nine)
    {'kind': 'cron', 'expr': '30 7 * * 1-5', 'tz': 'Europe/Berlin'}
    >>> parse_phrase("in an hour", **nine)
    {'kind': 'at', 'atMs': 1800003600000}
    >>> parse_phrase("every morning", **nine)
    Traceback (most recent call last):
    wakeful.errors.InvalidSchedule: 'every morning' has no time of day; write one, such as 'every day at 9:00'
    """
    if (told := parse_explanation(text.strip())) is not None:
        return {"kind": "cron", "expr": told[0], "tz": told[1]}
    if len(text) > _LONGEST:
        return None
    if (once := _ONCE.fullmatch(text.strip())) is not None and (own := zone_name(once[2])) is not None:
        return {"kind": "at", "at": once[1], "tz": own}
    found = _parse_words(text, text.strip(), now_ms, tz)
    return _parse_zoned(text, now_ms) if found is None else found


def closest_phrase(text: str, *, now_ms: int, tz: str) -> str | None:
    """Return the phrase that a text with misspelled words was probably meant to be; None: there is none.

    >>> closest_phrase("evry weekday at nine", now_ms=1_800_000_000_000, tz="UTC")
    'every weekday at 9'
    """
    if len(text) > _LONGEST:
        return None
    words = [closest_word(word) for word in _normal(text).split()]
    meant = " ".join(words)
    try:
        return meant if parse_phrase(meant, now_ms=now_ms, tz=tz) else None
    except InvalidSchedule:
        return None


def _parse_zoned(text: str, now_ms: int) -> Document | None:
    """Return the schedule of a phrase that names its zone; None if it names none.

    An unknown zone is reported as such, if the rest is a schedule.
    """
    for rest, word, tz in named_zones(text):
        found = _parse_words(rest, text.strip(), now_ms, tz or "UTC")
        if found is not None:
            if tz is None:
                raise unknown_zone(text, rest, word)
            return found
    return None


def _parse_words(text: str, whole: str, now_ms: int, tz: str) -> Document | None:
    """Return the schedule of a phrase without a zone; `whole` is the text for messages."""
    words = _normal(text)
    now = (_EPOCH + timedelta(milliseconds=now_ms)).astimezone(zone(tz).tzinfo).replace(tzinfo=None)
    phrase = _Phrase(whole, tz, now, now_ms)
    if (match := _SPACED.fullmatch(words)) is not None and (spaced := _spaced(match, phrase)) is not None:
        return spaced
    if (relative := _relative(words, phrase)) is not None:
        return relative
    for pattern in (_AT_END, _AT_START):
        match = pattern.fullmatch(words)
        if match is not None:
            bare = match["at"] is None and (match["rest"] or "") == ""
            found_one = _time_of_day_schedule(match["rest"] or "", match["times"], bare, phrase)
            if found_one is not None:
                return found_one
    if _VAGUE.fullmatch(words) or _days(re.sub(r"^(?:every|next|this|on) ", "", words))[0]:
        raise InvalidSchedule(f"'{phrase.text}' has no time of day; write one, such as {_example(words)}")
    return None


def _normal(text: str) -> str:
    words = text.lower().replace("a.m.", "am").replace("p.m.", "pm")
    words = " ".join(words.replace(",", " and ").replace("@", " at ").split()).strip(" .!")
    words = re.sub(r"\band (and|at|on)\b", r"\1", words)
    words = re.sub(r"\b(at|by|around) (at )?(?=[0-9nm])", "at ", words)
    for opening in ("please ", "once ", "remind me ", "run ", "on on "):
        words = words.removeprefix(opening)
    return words.replace("each ", "every ")


def _spaced(match: re.Match[str], phrase: _Phrase) -> Document | None:
    """Return the schedule of "every other day at 9", "every 2 weeks on monday at 9"; None for an interval.

    The days are counted from 1970, or from the given day: the same words are always the same schedule.
    """
    number = int({**NUMBERS, "other": "2", "second": "2"}.get(match["number"], match["number"]))
    unit, given = match["unit"], match["days"]
    if unit not in ("day", "week"):
        unit, given = "week", unit
    weekdays, _ = _days(given or "")
    if number < 2 or (given and not weekdays) or (unit == "day" and given):
        return None
    if unit == "week" and not given and (match["times"] or match["since"]):
        example = f"every {number} weeks on monday at {match['times'] or '9:00'}"
        raise InvalidSchedule(f"'{phrase.text}' names no day of the week; write one, such as '{example}'")
    if match["times"] is None:
        if not given and not match["since"]:
            return None
        example = f"every {number} {unit}s{f' on {given}' if given else ''} at 9:00"
        raise InvalidSchedule(f"'{phrase.text}' has no time of day; write one, such as '{example}'")
    clocks = _clocks(match["times"], None, phrase)
    of_week = _weekday_fields({(day + 1) % 7 for day in weekdays}).rpartition(" ")[2]
    fields = day_fields(unit, number, match["since"] or "1970-01-01", of_week)
    if clocks is None or fields is None:
        return None
    clock = _minutes_and_hours(clocks, phrase)
    return {"kind": "cron", "expr": f"{clock} {fields[0]} * {fields[1]}", "tz": phrase.tz}


# Relative times and intervals


def _relative(words: str, phrase: _Phrase) -> Document | None:
    if words in ("hourly", "every hour on the hour"):
        return {"kind": "cron", "expr": "0 * * * *", "tz": phrase.tz}
    after = words.removeprefix("in ") if words.startswith("in ") else None
    if words.endswith(" from now"):
        after = words.removesuffix(" from now")
    if after is not None:
        ms = _length(after)
        return None if ms is None else {"kind": "at", "atMs": phrase.now_ms + ms}
    if words.startswith("every "):
        ms = _length(re.sub(r"^every (?:other|second) (day|week|hour|minute)$", r"every 2 \1s", words)[6:])
        return None if ms is None else {"kind": "every", "everyMs": ms}
    return None


def _length(words: str) -> int | None:
    """Return the milliseconds of "20 minutes", "an hour and a half", "half an hour"; None for other text."""
    words = re.sub(r"^(?:about|exactly) ", "", words)
    words = re.sub(r"^(?:a )?half (?:an |a )?(hour)$", "30 minutes", words)
    words = re.sub(r"^(?:an|one|1) hour and a half$", "90 minutes", words)
    words = re.sub(r"^(?:a |an )?quarter (?:of an )?hour$", "15 minutes", words)
    words = re.sub(r"\ba couple of\b", "2", words)
    words = " ".join(NUMBERS.get(word, word) for word in words.split())
    if words in ("minute", "hour", "day", "week", "second"):
        words = f"1 {words}"
    try:
        return parse_duration(words)
    except InvalidArgument:
        return None


# Times of day with days


def _time_of_day_schedule(rest: str, times: str, bare: bool, phrase: _Phrase) -> Document | None:
    """Return the schedule of a time of day on some days; `bare`: a time alone, without an "at"."""
    part = None
    if (match := _PART.fullmatch(rest)) is not None:
        rest, part, is_plural = match.groups()
        rest = {"every": "every day", "this": "today"}.get(rest, rest)
        if is_plural and _recurring(rest) is None:  # "mornings", "monday mornings"
            rest = f"every {rest.removeprefix('on ') or 'day'}"
    if rest == "tonight":
        rest, part = "today", "night"
    known = _clocks(times, part, phrase)
    if known is None:
        return None
    days = _recurring(rest)
    if days is not None and days != "* * *" and any(clock.after_midnight for clock in known):
        # "Friday night at 12" is on Saturday; "Friday night at 2" can be the date of either day.
        days = _day_after(days) if all(clock.after_midnight and clock.hour == 0 for clock in known) else None
        if days is None:
            return None
    if days is not None:
        return {"kind": "cron", "expr": f"{_minutes_and_hours(known, phrase)} {days}", "tz": phrase.tz}
    if len(known) > 1:
        return None
    (clock,) = known
    if bare and not clock.sure:  # a number alone is ambiguous
        return None
    at = _moment(rest, clock, phrase)
    return None if at is None else {"kind": "at", "at": at.isoformat(timespec="minutes"), "tz": phrase.tz}


def _clocks(times: str, part: str | None, phrase: _Phrase) -> list[_Clock] | None:
    """Return the times of day of "9am and 5pm"; None if one of them does not exist.

    "9 and 10pm" is refused: it may mean 9pm.
    """
    matches = [_TIME.fullmatch(one) for one in re.split(r" and (?:at )?", times)]
    found = [each for each in matches if each is not None]
    halves = {
        each["half"] in ("am", "pm")
        for each in found
        if each["hour"] and 1 <= int(each["hour"]) <= 12 and not (each["part"] or each["night"] or part)
    }
    clocks = [_clock(each, part) for each in found]
    known = [clock for clock in clocks if clock is not None]
    if len(halves) > 1 or _goes_back(found, known, part):
        raise InvalidSchedule(
            f"'{phrase.text}' says am or pm of some times only; write it for each, such as '9am and 5pm'"
        )
    return known if len(known) == len(matches) else None


def _goes_back(found: list[re.Match[str]], clocks: list[_Clock], part: str | None) -> bool:
    """Return whether an hour alone is before a time in words: 5pm may be meant by "noon and 5"."""
    latest = 0
    for each, clock in zip(found, clocks, strict=False):
        if each["name"] or each["part"] or each["night"]:
            latest = clock.hour
        elif clock.hour < latest and part is None and each["half"] not in ("am", "pm"):
            return True
    return False


def _clock(match: re.Match[str], part: str | None) -> _Clock | None:
    part = match["part"] or match["night"] or part
    hour, minute, half = int(match["hour"] or 0), int(match["minute"] or 0), match["half"]
    if match["name"]:
        hour = {"noon": 12, "midday": 12, "midnight": 0}.get(match["name"], 24)
    elif half in ("am", "pm"):
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half == "pm" else 0)
    elif part in ("afternoon", "evening") and 0 < hour < 12:
        hour += 12
    elif part == "night" and 6 <= hour <= 12:
        hour = (hour + 12) % 24
    elif part == "morning" and hour == 12:
        hour = 0
    if hour > 23 or minute > 59 or (part is not None and hour not in _HOURS_OF[part]):
        return None
    sure = match["name"] is not None or half is not None or match["minute"] is not None or part is not None
    return _Clock(hour, minute, sure, part == "night" and hour < 6)


def _minutes_and_hours(clocks: list[_Clock], phrase: _Phrase) -> str:
    minutes = {clock.minute for clock in clocks}
    if len(minutes) > 1:
        raise InvalidSchedule(
            f"'{phrase.text}' is at different minutes of different hours; make one job for each time"
        )
    return f"{minutes.pop()} {','.join(map(str, sorted({clock.hour for clock in clocks})))}"


def _recurring(rest: str) -> str | None:
    """Return the day fields of a cron expression; None if the days do not recur."""
    if rest in ("every day", "daily", "everyday", "every single day"):
        return "* * *"
    words = re.sub(r"^(?:on|weekly on|every week on) ", "", rest)
    if words in ("every weekday", "weekdays", "every workday", "workdays", "every business day"):
        return "* * 1-5"
    if words in ("every weekend", "weekends", "every weekend day"):
        return "* * 0,6"
    for pattern in _MONTHLY:
        if (match := pattern.fullmatch(rest)) is not None:
            return _of_month(match["which"])
    weekly = rest.startswith(("weekly on ", "every week on "))
    numbers, plural = _days(words.removeprefix("every "))
    if numbers and (plural or weekly or words.startswith("every ") or len(numbers) > 1):
        return _weekday_fields({(number + 1) % 7 for number in numbers})
    return None


def _weekday_fields(days: set[int]) -> str:
    """Return the day fields for these weekdays; Sunday is 0."""
    ordered = sorted(days, key=lambda day: day or 7)
    if len(ordered) > 2 and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"* * {ordered[0]}-{ordered[-1]}"
    return f"* * {','.join(map(str, ordered))}"


def _day_after(fields: str) -> str | None:
    """Return the day fields for the days after these weekdays; None for days of a month."""
    if not re.fullmatch(r"\* \* [0-6](?:[,-][0-6])*", fields):
        return None
    days: set[int] = set()
    for part in fields.removeprefix("* * ").split(","):
        first, _, last = part.partition("-")
        days |= {(day + 1) % 7 for day in range(int(first), int(last or first) + 1)}
    return _weekday_fields(days)


def _of_month(which: str) -> str | None:
    """Return the day fields for "1st", "last day", "first monday", "last friday" of a month."""
    words = which.removeprefix("the ").split()
    if words in (["last", "day"], ["last"]):
        return "L * *"
    if words == ["last", "weekday"] or words == ["last", "workday"]:
        return "LW * *"
    if len(words) == 2 and (weekday := _weekday(words[1])) is not None:
        day = (weekday + 1) % 7
        if words[0] == "last":
            return f"* * {day}L"
        nth = NTH.get(words[0]) or _ordinal(words[0])
        return f"* * {day}#{nth}" if nth and int(nth) <= 5 else None
    if len(words) == 2 and words[1] == "day":
        words = words[:1]
    if len(words) == 1 and (day_text := NTH.get(words[0]) or _ordinal(words[0])):
        return f"{int(day_text)} * *" if 1 <= int(day_text) <= 31 else None
    return None


def _ordinal(word: str) -> str | None:
    match = re.fullmatch(r"([0-9]{1,2})(?:st|nd|rd|th)?", word)
    return match[1] if match else None


def _days(words: str) -> tuple[list[int], bool]:
    """Return the weekdays (Monday is 0) and whether they are plural; none if the text has other words."""
    span = re.fullmatch(r"([a-z]+) ?(?:to|through|thru|till|until|-|–) ?([a-z]+)", words)
    if span is not None:
        first, last = _weekday(span[1]), _weekday(span[2])
        if first is None or last is None:
            return [], False
        return [(first + ahead) % 7 for ahead in range((last - first) % 7 + 1)], True
    found = [_weekday(word) for word in re.split(r" and (?:every |on )?| & |/", words)]
    if None in found:
        return [], False
    return [day for day in found if day is not None], words.endswith("s") and words.rstrip("s") in WEEKDAYS


def _weekday(word: str) -> int | None:
    singular = word.rstrip(".").removesuffix("s")
    for name in (word.rstrip("."), singular):
        if name in WEEKDAYS:
            return WEEKDAYS.index(name)
        if name in SHORT_DAYS:
            return SHORT_DAYS[name]
    return None


# Single days


def _moment(rest: str, clock: _Clock, phrase: _Phrase) -> datetime | None:
    if rest != "" and clock.after_midnight:
        # "Tonight at 12" is on the date of tomorrow; "tonight at 2" can be the date of either day.
        before = _moment(rest, _Clock(23, 59, True), phrase) if clock.hour == 0 else None
        if before is None or before.date() == date.max:
            return None
        return before + timedelta(minutes=1 + clock.minute)
    today, of_day = phrase.now.date(), time(clock.hour, clock.minute)
    if rest == "":
        at = datetime.combine(today, of_day)
        return at if at > phrase.now else at + timedelta(days=1)
    if rest == "today":
        return datetime.combine(today, of_day)
    if rest == "tomorrow":
        return datetime.combine(today + timedelta(days=1), of_day)
    if rest in ("day after tomorrow", "the day after tomorrow"):
        return datetime.combine(today + timedelta(days=2), of_day)
    match = re.fullmatch(r"(?:(next|this|on|this coming|coming) )?([a-z]+)", rest)
    if match is not None and (weekday := _weekday(match[2])) is not None:
        ahead = (weekday - today.weekday()) % 7
        at = datetime.combine(today + timedelta(days=ahead), of_day)
        is_over = at <= phrase.now and match[1] != "this"  # "this friday" is no other one
        return at + timedelta(days=7) if ahead == 0 and (match[1] == "next" or is_over) else at
    return _calendar_day(rest, of_day, phrase)


def _calendar_day(rest: str, of_day: time, phrase: _Phrase) -> datetime | None:
    """Return the date and time of a calendar day; without a year, the next such day."""
    try:
        return datetime.combine(date.fromisoformat(rest.removeprefix("on ")), of_day)
    except ValueError:
        match = _DATE.fullmatch(rest)
    if match is None:
        return None
    word = match["month"] or match["month2"]
    months = [number for number, name in enumerate(MONTHS, 1) if len(word) >= 3 and name.startswith(word)]
    if len(months) != 1:
        return None
    day = int(match["day"] or match["day2"])
    years = [int(match["year"])] if match["year"] else range(phrase.now.year, phrase.now.year + 9)
    for year in years:
        try:
            at = datetime(year, months[0], day, of_day.hour, of_day.minute)
        except ValueError:  # 29 February, until there is one
            continue
        if match["year"] or at > phrase.now:
            return at
    return None


def _example(words: str) -> str:
    if words.startswith(("tomorrow", "today", "this", "tonight", "later", "soon", "next", "the day", "day")):
        return "'tomorrow at 9:00'"
    if "weekday" in words or "workday" in words:
        return "'every weekday at 9:00'"
    if _days(words.removeprefix("every "))[0]:
        return f"'{words} at 9:00'"
    if words in ("weekly", "monthly", "yearly"):
        return {"weekly": "'every monday at 9:00'", "monthly": "'every month on the 1st at 9:00'"}.get(
            words, "'0 9 1 1 *'"
        )
    return "'every evening at 19:00'" if "evening" in words else "'every day at 9:00'"
