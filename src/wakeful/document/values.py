"""How a single value of a job document is read.

A reader takes what somebody wrote and returns what the job keeps, or raises InvalidArgument with the rest of
a sentence that begins with the field's name: "0 is out of range; give a whole number from 1 to 100".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NoReturn, TypeVar, cast, get_args

from wakeful.calendars import Calendar, parse_exclude
from wakeful.duration import LONGEST, parse_duration, spell_duration
from wakeful.errors import InvalidArgument
from wakeful.hours import parse_hours
from wakeful.job import Chain, ChainOn, Json, check_slug
from wakeful.policy import Backoff
from wakeful.stored_text import UNSTORABLE, is_storable

MAX_DESCRIPTION: Final = 10_000
MAX_LABELS: Final = 32
MAX_DEPTH: Final = 100
_EXACT: Final = 2**53  # whole numbers up to this are the same to every reader of JSON
#: of a label's name and of its value
LONGEST_LABEL: Final = (63, 255)
_CHAIN: Final = """write "other-job" or {"job": "other-job", "on": "succeeded"}"""

T = TypeVar("T")
Reader = Callable[[object], Any]


@dataclass(frozen=True, slots=True)
class Bounded:
    """A reader with the JSON Schema of what it takes, so that the OpenAPI document has the same bounds."""

    read: Reader
    schema: Mapping[str, Json]

    def __call__(self, value: object) -> Any:
        """What the job keeps."""
        return self.read(value)


def refuse(sentence: str) -> NoReturn:
    """Say what is wrong with a value; the caller knows the field's name."""
    raise InvalidArgument(sentence)


def shown(value: object) -> str:
    """A value as it stands in a sentence: short, and as JSON says it.

    >>> shown("daily"), shown(True), shown(None), shown([1])
    ("'daily'", 'true', 'null', '[1]')
    """
    if isinstance(value, str):
        return f"'{value[:64]}'" if value[:64].isprintable() else repr(value[:64])
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    try:
        return repr(value)[:64]
    except ValueError:
        return "a number too long to print"


def one_of(words: Iterable[str]) -> str:
    """The words as a choice.

    >>> one_of(["first", "second", "both"])
    "'first', 'second' or 'both'"
    """
    *others, last = (f"'{word}'" for word in words)
    return f"{', '.join(others)} or {last}" if others else last


def camel(name: str) -> str:
    """A name as JSON spells it.

    >>> camel("max_attempts"), camel("maxAttempts")
    ('maxAttempts', 'maxAttempts')
    """
    return re.sub(r"(?<=[a-z0-9])_([a-z0-9])", lambda found: found[1].upper(), name)


def camel_keys(value: Mapping[Any, T]) -> dict[str, T]:
    """An object whose keys may be in either spelling, in JSON's; a null says nothing."""
    found: dict[str, T] = {}
    for key, item in value.items():
        name = camel(key) if isinstance(key, str) else refuse(f"{shown(key)} is no name; a name is text")
        if item is None:
            continue
        if name in found:
            refuse(f"'{name[:64]}' is given in two spellings; give it once")
        found[name] = item
    return found


def flag(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        refuse(f"{shown(value)} is neither true nor false; write one of them, without quotes")
    return value


def choice(literal: object) -> Reader:
    """One of the words of a Literal."""
    words: tuple[str, ...] = get_args(literal)

    def read(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            refuse(f"{shown(value)} is not known; write {one_of(words)}")
        return value

    return read


def whole(low: int, high: int) -> Bounded:
    """A whole number within limits, both included."""

    def read(value: object) -> int:
        number = whole_number(value)
        if number is None:
            refuse(f"{shown(value)} is not a whole number; give one from {low} to {high}")
        if not low <= number <= high:
            refuse(f"{shown(value)} is out of range; give a whole number from {low} to {high}")
        return number

    return Bounded(read, {"type": "integer", "minimum": low, "maximum": high})


def whole_number(value: object) -> int | None:
    """The whole number that a value is, if it is one; true is none, 3e5 is (JSON has one kind of number)."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    return None


def milliseconds(low: int, high: int = LONGEST) -> Bounded:
    """A length of time in milliseconds, within limits."""

    def read(value: object) -> int:
        ms = whole_number(value)
        if ms is None:
            refuse(
                f"{shown(value)} is not a whole number of milliseconds; give one, or leave the Ms off the "
                "name and write a duration such as '30s'"
            )
        if not low <= ms <= high:
            refuse(f"{shown(ms)} is out of range; it goes from {low} to {high} ms ({spell_duration(high)})")
        return ms

    return Bounded(read, {"type": "integer", "minimum": low, "maximum": high})


def duration(value: object) -> int:
    """A length of time as people write it, in milliseconds.

    >>> duration("30s"), duration(timedelta(minutes=5))
    (30000, 300000)
    """
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if not isinstance(value, str):
        refuse(
            f"{shown(value)} is not a duration; write '30s' or '5m', or add Ms to the name for milliseconds"
        )
    return parse_duration(value)


def hours(value: object) -> str:
    """Hours of the day.

    >>> hours("8:00-22:00")
    '08:00-22:00'
    """
    if not isinstance(value, str):
        refuse(f"{shown(value)} is not text; write from when to when, such as '08:00-22:00'")
    return parse_hours(value)


def text(longest: int) -> Bounded:
    """Some text, and not just white space."""

    def read(value: object) -> str:
        if not isinstance(value, str):
            refuse(f"{shown(value)} is not text; put it in quotes")
        if not value.strip():
            refuse("it is empty; give it some text, or leave the field out")
        return storable(value, longest)

    return Bounded(read, {"type": "string", "minLength": 1, "maxLength": longest, "pattern": r"\S"})


def storable(value: str, longest: int) -> str:
    """Text that every database keeps as it is."""
    if len(value) > longest:
        refuse(f"it has {len(value)} characters; at most {longest}")
    if not is_storable(value):
        refuse(UNSTORABLE)
    return value


def slug(what: str) -> Reader:
    """A name of ours."""

    def read(value: object) -> str:
        if not isinstance(value, str):
            refuse(f"{shown(value)} is not text; give a slug such as 'daily-report'")
        return check_slug(value, what)

    return read


def description(value: object) -> str:
    """Text that may be empty; tabs that indent its lines are left out."""
    if not isinstance(value, str):
        refuse(f"{shown(value)} is not text; put it in quotes")
    return storable(re.sub(r"(?m)^\t+", "", value), MAX_DESCRIPTION)


def labels(value: object) -> dict[str, str]:
    """A flat map of text to text."""
    if not isinstance(value, Mapping):
        refuse(f'{shown(value)} is not an object; write names and texts, such as {{"team": "billing"}}')
    if len(value) > MAX_LABELS:
        refuse(f"there are {len(value)}; at most {MAX_LABELS}")
    read: dict[str, str] = {}
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, str):
            refuse(f"{shown(key)} is {shown(item)}; names and values are text: put them in quotes")
        if not key.strip():
            refuse("a name is empty; name each label")
        for part, longest in zip((key, item), LONGEST_LABEL, strict=True):
            if len(part) > longest or not is_storable(part):
                refuse(f"{shown(part)} cannot be kept; a name has at most 63 characters, a value at most 255")
        read[key] = item
    return read


def after(value: object) -> Chain:
    """The job to wait for: its name, or an object that says how it must end as well.

    >>> after("extract"), after({"job": "extract", "on": "failed"})
    (Chain(job='extract', on='succeeded'), Chain(job='extract', on='failed'))
    """
    given = {"job": value} if isinstance(value, str) else value
    if not isinstance(given, Mapping):
        refuse(f"{shown(value)} is not a job; {_CHAIN}")
    given = _only(given, "job", "on")
    if "job" not in given:
        refuse(f"it names no job; {_CHAIN}")
    return Chain(slug("job")(given["job"]), choice(ChainOn)(given.get("on", "succeeded")))


def backoff(value: object) -> Backoff:
    """How long to wait between attempts; what is left out is the default.

    >>> backoff({"base": "1s", "maxMs": 60000})
    Backoff(base_ms=1000, max_ms=60000)
    """
    if not isinstance(value, Mapping):
        refuse(f'{shown(value)} is not an object; write {{"base": "2s", "max": "30s"}}')
    given = _only(value, "baseMs", "maxMs", "base", "max")
    read = {}
    for name in ("base", "max"):
        if name in given and f"{name}Ms" in given:
            refuse(f"{name} and {name}Ms are the same; give one of them")
        if name in given:
            given[f"{name}Ms"] = duration(given[name])
        if f"{name}Ms" in given:
            read[name] = milliseconds(1)(given[f"{name}Ms"])
    base = read.get("base", min(Backoff().base_ms, read.get("max", LONGEST)))
    longest = read.get("max", max(Backoff().max_ms, base))
    if longest < base:
        refuse(f"maxMs {longest} is less than baseMs {base}; the longest wait is no shorter than the first")
    return Backoff(base, longest)


def exclude(value: object) -> Calendar:
    """The days without ticks; one entry may stand alone."""
    entries = value.to_json() if isinstance(value, Calendar) else [value] if isinstance(value, str) else value
    return parse_exclude(entries)  # type: ignore[arg-type]  # it says itself what a list of entries is


def json_object(longest: int) -> Reader:
    """A JSON object that is not empty."""

    def read(value: object) -> dict[str, Json]:
        if not isinstance(value, Mapping) or not value:
            refuse(f"{shown(value)} is not an object with something in it; write one, or leave the field out")
        copied = json_value(value, longest)
        assert isinstance(copied, dict)
        return copied

    return read


def json_value(value: object, longest: int | None) -> Json:
    """Any JSON of at most so many bytes; tuples become lists, as JSON has it."""
    copied = _copied(value, "", 0)
    _check_size(compact(copied), longest)
    return copied


def json_text(value: object, longest: int | None) -> str:
    """The same, as compact text."""
    text = compact(cast(Json, value) if _plain(value, 0) else _copied(value, "", 0))
    _check_size(text, longest)
    return text


def _plain(value: object, depth: int) -> bool:
    """Whether it is JSON as it stands, at a glance; what is unusual is looked at properly."""
    kind = type(value)
    if kind is str:
        return cast(str, value).isascii()
    if value is None or kind is bool:
        return True
    if kind is int:
        return -_EXACT < cast(int, value) < _EXACT
    if kind is dict and depth < MAX_DEPTH:
        for key, item in cast(dict[object, object], value).items():
            if type(key) is not str or not key.isascii() or not _plain(item, depth + 1):
                return False
        return True
    if kind is list and depth < MAX_DEPTH:
        return all(_plain(item, depth + 1) for item in cast(list[object], value))
    return kind is float and math.isfinite(cast(float, value))


def _check_size(text: str, longest: int | None) -> None:
    if longest is not None and len(text) * 4 > longest:  # a character has at most four bytes
        size = len(text.encode())
        if size > longest:
            refuse(
                f"it has {size} bytes as JSON; at most {longest}: keep what is large elsewhere and send where"
            )


def compact(value: Json, *, sort: bool = False) -> str:
    """JSON without a space too many.

    >>> compact({"to": ["Zoë"]})
    '{"to":["Zoë"]}'
    """
    return (_SORTED if sort else _COMPACT).encode(value)


_COMPACT: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_SORTED: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)


def _copied(value: object, where: str, depth: int) -> Json:
    at = f"{where[1:65]}: " if where else ""
    if depth > MAX_DEPTH:
        refuse(f"it is nested deeper than {MAX_DEPTH} levels; flatten it")
    match value:
        case None | bool():
            return value
        case str():
            if not _encodes(value):
                refuse(f"{at}a text has half of a surrogate pair, which is no Unicode; take it out")
            return value
        case int():
            if value.bit_length() > 1023:
                refuse(f"{at}a number is too large for JSON; give it as text")
            return value
        case float():
            if not math.isfinite(value):
                refuse(f"{at}{value} is no number in JSON; give null or text")
            return value
        case Mapping():
            for key in value:
                if not isinstance(key, str):
                    refuse(f"{at}the name {shown(key)} is not text, and in JSON it must be")
            return {
                str(_copied(key, where, depth)): _copied(item, f"{where}.{key}", depth + 1)
                for key, item in value.items()
            }
        case list() | tuple():
            return [_copied(item, f"{where}.{index}", depth + 1) for index, item in enumerate(value)]
    refuse(f"{at}{type(value).__name__} is no JSON; give text, numbers, true, false, null, lists and objects")


def _encodes(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _only(value: Mapping[Any, object], *names: str) -> dict[str, object]:
    given = camel_keys(value)
    for name in given:
        if name not in names:
            refuse(f"it has no {shown(name)}; it takes {one_of(names)}")
    return given
