"""Values that models write, in a form that the service accepts: schedules, instants and arguments.

Numbers, booleans and JSON are read from text; the kind of a job field determines how its value is coerced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from textwrap import dedent
from typing import Any, Final, cast

from wakeful.document.fields import DECLARED, OTHER
from wakeful.document.kinds import Form
from wakeful.errors import InvalidSchedule
from wakeful.schedule.natural_time import parse_phrase
from wakeful.values.instants import LATEST_MS

_UNITS: Final = {"Seconds": 1_000, "Minutes": 60_000, "Hours": 3_600_000, "Days": 86_400_000}
_EVERY: Final = {
    **{f"every{unit}": ms for unit, ms in _UNITS.items()},
    **{f"interval{unit}": ms for unit, ms in _UNITS.items()},
}
_IN: Final = {
    **{f"in{unit}": ms for unit, ms in _UNITS.items()},
    **{f"delay{unit}": ms for unit, ms in _UNITS.items()},
}
#: The fields of a schedule, at any level.
WHEN: Final = ("cron", "atMs", "at", "everyMs", "every", *_EVERY, "in", *_IN, "when")
#: The fields of each kind; with another kind they contradict it.
_OF_KIND: Final[dict[str, tuple[str, ...]]] = {
    "cron": ("cron",),
    "at": ("at", "atMs", "in", *_IN, "when"),
    "every": ("every", "everyMs", *_EVERY, "when"),
}
KINDS: Final = tuple(_OF_KIND)
_DECIMAL: Final = re.compile(r"[0-9]{1,16}(?:\.[0-9]{1,6})?")
_END_OF_1970_MS: Final = 31_536_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Rename = Callable[[Mapping[str, object]], dict[str, object]]

#: The form of each argument: of the fields of a job, and of what else an action takes.
_FORMS: Final[Mapping[str, Form]] = {
    **{field.name: field.kind.form for field in (*OTHER, *DECLARED)},
    "includeDisabled": "flag",
    "limit": "number",
    "note": "text",
    "until": "instant",
}
_FLAG_WORDS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_NUMBER: Final = re.compile(r"[0-9]{1,16}")


def read_schedule(said: object, now_ms: int, tz: str, rename: Rename) -> object:
    """Return a schedule in a form that the service accepts, or unchanged if it is in none.

    `rename` maps the fields of an object to their standard names.
    """
    number = as_number(said)
    if number is not None:
        return {"kind": "at", "atMs": as_milliseconds(number)}
    if isinstance(said, str):
        return _read_words(said, now_ms, tz)
    if not isinstance(said, Mapping):
        return said
    given = {name: value for name, value in rename(said).items() if value is not None}
    kind, own = given.pop("kind", None), given.pop("tz", None)
    word = kind.strip().lower() if isinstance(kind, str) else ""
    if " " in word and not given:  # {"kind": "every 15m"}
        made = _read_words(word, now_ms, tz)
    else:
        if word in _OF_KIND and "schedule" in given:
            given[_OF_KIND[word][0]] = given.pop("schedule")
        if word in _OF_KIND and any(name not in _OF_KIND[word] for name in given):
            return said
        made = _one_way(given, now_ms, str(own).strip() if isinstance(own, str) else tz)
    if made is None:
        return said
    if own is not None and isinstance(made, dict):
        return {**made, "tz": own} if "tz" not in made else made
    if own is not None and isinstance(made, str):
        return _with_zone(made, own) or said
    return made


def read_instant(said: object, now_ms: int, tz: str) -> object:
    """Return an instant as ISO 8601, in the zone `tz`; unchanged if it cannot be read.

    >>> read_instant("in 2 hours", 0, "UTC"), read_instant(1_803_888_000, 0, "UTC")
    ('1970-01-01T02:00:00+00:00', '2027-03-01T08:00:00+00:00')
    """
    made = read_schedule(said, now_ms, tz, dict)
    if not isinstance(made, Mapping):
        return made
    if isinstance(made.get("atMs"), int) and 0 <= made["atMs"] <= LATEST_MS:
        return (_EPOCH + timedelta(milliseconds=made["atMs"])).isoformat()
    return made.get("at", said)


def as_number(value: object) -> float | None:
    """Return a number, also from text; None for other values."""
    if isinstance(value, str) and _DECIMAL.fullmatch(value.strip()):
        return float(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e16:
        return value
    return None


def as_milliseconds(number: float) -> int:
    """Return an instant in ms; a number that would be in 1970 is in seconds."""
    return round(number * 1000) if number < _END_OF_1970_MS else round(number)


def _one_way(given: Mapping[str, Any], now_ms: int, tz: str) -> object:
    """Return the schedule of an object with one field; None for any other number of fields."""
    if len(given) != 1:
        return None
    ((name, value),) = given.items()
    number = as_number(value)
    if name == "cron":
        made = _read_words(value, now_ms, tz) if isinstance(value, str) else None
        return {"kind": "cron", "expr": made} if isinstance(made, str) else made
    if name in ("at", "atMs"):
        if number is not None:
            return {"kind": "at", "atMs": as_milliseconds(number)}
        made = _read_words(value, now_ms, tz) if isinstance(value, str) else None
        return {"kind": "at", "at": made} if isinstance(made, str) else made
    if name == "everyMs":
        return None if number is None else {"kind": "every", "everyMs": int(number)}
    if name in _EVERY:
        return None if number is None else {"kind": "every", "everyMs": round(number * _EVERY[name])}
    if name in _IN:
        return None if number is None else {"kind": "at", "atMs": now_ms + round(number * _IN[name])}
    if name in ("every", "in", "when") and isinstance(value, str):
        text = value.strip()
        opening = "" if name == "when" or text.lower().startswith(f"{name} ") else f"{name} "
        return _read_words(opening + text, now_ms, tz)
    if name == "every" and number is not None:  # a plain number is milliseconds
        return {"kind": "every", "everyMs": int(number)}
    return None


def _read_words(text: str, now_ms: int, tz: str) -> object:
    try:
        return parse_phrase(text, now_ms=now_ms, tz=tz) or text.strip()
    except InvalidSchedule as error:
        if "time zone" in error.message:  # the service reports the zone, and only that
            made = parse_phrase(text, now_ms=now_ms, tz="UTC") or text.strip()
            return {**made, "tz": tz} if isinstance(made, dict) and "tz" in made else made
        raise InvalidSchedule(f"schedule: {error.message}") from error


def _with_zone(text: str, tz: object) -> object:
    """Return a schedule of text with a zone: only a time and a cron expression have one."""
    if re.match(r"[0-9]{4}-", text):
        return {"kind": "at", "at": text, "tz": tz}
    return {"kind": "cron", "expr": text, "tz": tz} if len(text.split()) in (5, 6, 7) else None


def plain(name: str, value: object) -> object:
    """Return the value in the form of its field. The service layer refuses a value that has another form.

    >>> plain("maxAttempts", "3"), plain("enabled", "yes"), plain("overlapPolicy", "Queue-One")
    (3, True, 'queue_one')
    """
    form = _FORMS.get(name, "json")
    if form == "instant":
        number = as_number(value)
        return value if number is None else as_milliseconds(number)
    if not isinstance(value, str):
        return value
    stripped = value.strip()
    match form:
        case "flag":
            return _FLAG_WORDS.get(stripped.lower(), value)
        case "number" | "duration" if _NUMBER.fullmatch(stripped):
            return int(stripped)
        case "text":
            return text(value)
        case "line" | "slug":
            return stripped
        case "choice":  # models write them in capitals and with hyphens
            return re.sub(r"[\s-]+", "_", stripped.lower())
    return json_in(value)


def json_in(value: object) -> object:
    """Return the object or list that a JSON text contains; any other value unchanged."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            return cast(object, json.loads(value))
    return value


def text(value: str) -> str:
    """Return text without the indentation of the source code that it comes from."""
    whole = dedent(value.lstrip("\r\n")).strip()
    first, newline, rest = whole.partition("\n")
    # The first line follows a quotation mark and has no indentation.
    if re.match(r"(?:\t| {4})", rest) and not value[:1].isspace():
        return f"{first}{newline}{dedent(rest)}"
    return whole


def empty(value: object) -> bool:
    """Return whether a value is empty: some clients send every argument."""
    return value is None or value == "" or (isinstance(value, Mapping | list) and not value)
