"""The kinds of values that a field can have: how one is read, and how each interface presents it.

A kind is called with a value from a document. It returns what the job keeps, or raises InvalidArgument with
the rest of a line that begins with the name of the field. Objects, such as a budget or a queue, are read
field by field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, get_args

from wakeful.cron.zone import zone
from wakeful.errors import InvalidArgument
from wakeful.job.job import MAX_NAME, SLUG, Chain, ChainOn, check_slug
from wakeful.job.policy import Backoff
from wakeful.schedule.calendars import Calendar, parse_exclude, stored_exclude
from wakeful.schedule.day_rules import parse_clock, parse_hours
from wakeful.values.duration import LONGEST, parse_duration, spell_duration
from wakeful.values.json_value import (
    Json,
    camel_keys,
    json_value,
    list_choices,
    quote,
    refuse,
    storable,
    whole_number,
)
from wakeful.values.stored_text import is_storable

Reader = Callable[[object], Any]
#: What a value looks like. Interfaces that take text (the CLI, models that quote everything) read it by this.
Form = Literal["flag", "number", "duration", "choice", "slug", "line", "text", "instant", "json"]

#: The greatest number and the longest text, where a field has no bound of its own.
MAX_NUMBER: Final = 1_000_000_000
MAX_TEXT: Final = 255
_LARGEST_OBJECT: Final = 65_536


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value."""

    form: Form
    #: None: reading it takes more than the value
    read: Reader | None
    #: the JSON Schema of what is accepted; None: the HTTP API has one of its own
    schema: Mapping[str, Json] | None
    #: the type of the Python option, as source code
    python: str
    #: the type in the public model, as source code
    model: str
    #: value to JSON, and JSON that `write` wrote back to the value
    write: Callable[[Any], Json] = _same
    restore: Callable[[Any], Any] = _same

    def __call__(self, value: object) -> Any:
        """Return what the job keeps."""
        assert self.read is not None
        return self.read(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        refuse(f"{quote(value)} is neither true nor false; write one of them, without quotes")
    return value


flag: Final = Kind("flag", _flag, {"type": "boolean"}, "bool", "bool")


def choice(literal: object) -> Kind:
    """One of the words of a Literal."""
    words: tuple[str, ...] = get_args(literal)

    def read(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            refuse(f"{quote(value)} is not known; write {list_choices(words)}")
        return value

    python = f"Literal[{', '.join(json.dumps(word) for word in words)}]"
    return Kind("choice", read, {"type": "string", "enum": [*words]}, python, python)


def whole(low: int, high: int = MAX_NUMBER) -> Kind:
    """A whole number within bounds, both included."""

    def read(value: object) -> int:
        number = whole_number(value)
        if number is None:
            refuse(f"{quote(value)} is not a whole number; give one from {low} to {high}")
        if not low <= number <= high:
            refuse(f"{quote(value)} is out of range; give a whole number from {low} to {high}")
        return number

    return Kind("number", read, {"type": "integer", "minimum": low, "maximum": high}, "int", "int")


def milliseconds(low: int, high: int = LONGEST) -> Kind:
    """A length of time in milliseconds, within bounds."""

    def read(value: object) -> int:
        ms = whole_number(value)
        if ms is None:
            refuse(
                f"{quote(value)} is not a whole number of milliseconds; give one, or leave the Ms off the "
                "name and write a duration such as '30s'"
            )
        if not low <= ms <= high:
            refuse(f"{quote(ms)} is out of range; it goes from {low} to {high} ms ({spell_duration(high)})")
        return ms

    return Kind(
        "duration", read, {"type": "integer", "minimum": low, "maximum": high}, "Duration", "timedelta"
    )


def duration(value: object) -> int:
    """Return the milliseconds of a duration.

    >>> duration("30s"), duration(timedelta(minutes=5))
    (30000, 300000)
    """
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if not isinstance(value, str):
        refuse(
            f"{quote(value)} is not a duration; write '30s' or '5m', or add Ms to the name for milliseconds"
        )
    return parse_duration(value)


def text(longest: int = MAX_TEXT, *, form: Form = "line") -> Kind:
    """Text that is not only white space."""

    def read(value: object) -> str:
        if not isinstance(value, str):
            refuse(f"{quote(value)} is not text; put it in quotes")
        if not value.strip():
            refuse("it is empty; give it some text, or leave the field out")
        return storable(value, longest)

    schema: dict[str, Json] = {"type": "string", "minLength": 1, "maxLength": longest, "pattern": r"\S"}
    return Kind(form, read, schema, "str", "str")


def slug(what: str) -> Kind:
    """A name in lowercase letters, digits and hyphens; `what` names the field in error messages."""

    def read(value: object) -> str:
        if not isinstance(value, str):
            refuse(f"{quote(value)} is not text; give a slug such as 'daily-report'")
        return check_slug(value, what)

    schema: dict[str, Json] = {
        "type": "string",
        "pattern": f"^{SLUG}$",
        "minLength": 1,
        "maxLength": MAX_NAME,
    }
    return Kind("slug", read, schema, "str", "str")


def _hours(value: object) -> str:
    if not isinstance(value, str):
        refuse(f"{quote(value)} is not text; write from when to when, such as '08:00-22:00'")
    return parse_hours(value)


#: Hours of the day, such as `08:00-22:00`.
hours: Final = Kind("line", _hours, {"type": "string", "examples": ["08:00-22:00"]}, "str", "str")


def _clock(value: object) -> str:
    if not isinstance(value, str):
        refuse(f"{quote(value)} is not text; write a time of day, such as '09:00'")
    return parse_clock(value)


#: A time of day, such as `09:00`.
clock: Final = Kind("line", _clock, {"type": "string", "examples": ["09:00"]}, "str", "str")

#: An instant. Without an offset it is in the zone of the job, so that `document.timing` reads it.
instant: Final = Kind("instant", None, None, "Instant", "datetime")


def read_zone(value: object) -> str:
    """Return the name of a time zone if it exists, else raise InvalidArgument."""
    if not isinstance(value, str):
        refuse(f"{quote(value)} is not text; give the name of a zone, such as 'Europe/Berlin'")
    return zone(value).name


def read_object(value: object, example: str) -> dict[str, object]:
    """Return a non-empty object with its keys in camelCase; the error message contains the example."""
    if not isinstance(value, Mapping) or not value:
        refuse(f"{quote(value)} is not an object with fields; write {example}")
    return camel_keys(value)


def check_names(values: Mapping[str, object], what: str, names: tuple[str, ...]) -> None:
    """Raise InvalidArgument for a field with another name."""
    unknown = sorted(values.keys() - set(names))
    if unknown:
        refuse(f"{what} has no field '{unknown[0][:64]}'; it has {', '.join(names)}")


def replace_duration(values: dict[str, object], name: str) -> None:
    """Replace a duration such as `timeout` by its milliseconds, `timeoutMs`."""
    if name in values:
        if f"{name}Ms" in values:
            refuse(f"{name} and {name}Ms are the same; give one of them")
        values[f"{name}Ms"] = read_as(name, duration, values.pop(name))


def read_as(name: str, read: Reader, value: object) -> object:
    """Return the value as read; an error message begins with the name of the field."""
    try:
        return read(value)
    except InvalidArgument as error:
        refuse(f"{name}: {error.message}")


def copy_object(values: Mapping[str, object]) -> dict[str, Json]:
    """Return a copy of the object as JSON."""
    value = json_value(values, _LARGEST_OBJECT)
    assert isinstance(value, dict)
    return value


MAX_DESCRIPTION: Final = 10_000
MAX_LABELS: Final = 32
#: of the name of a label and of its value
LONGEST_LABEL: Final = (63, 255)
_CHAIN: Final = """write "other-job" or {"job": "other-job", "on": "succeeded"}"""
_JOB_NAME: Final = slug("job")
_CHAIN_ON: Final = choice(ChainOn)
_DELAY: Final = milliseconds(1)
_EVENT: Final = 'write {"server": "crm", "event": "ticket.created"}'
_SERVER: Final = slug("server")
_EVENT_NAME: Final = text(MAX_TEXT)
_LARGEST_ARGUMENTS: Final = 8_192


def read_description(value: object) -> str:
    """Return text that may be empty, without the tabs that indent its lines."""
    if not isinstance(value, str):
        refuse(f"{quote(value)} is not text; put it in quotes")
    return storable(re.sub(r"(?m)^\t+", "", value), MAX_DESCRIPTION)


def read_labels(value: object) -> dict[str, str]:
    """Return a flat map of text to text."""
    if not isinstance(value, Mapping):
        refuse(f'{quote(value)} is not an object; write names and texts, such as {{"team": "billing"}}')
    if len(value) > MAX_LABELS:
        refuse(f"it has {len(value)} labels; at most {MAX_LABELS}")
    read: dict[str, str] = {}
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, str):
            refuse(f"{quote(key)} is {quote(item)}; names and values are text: put them in quotes")
        if not key.strip():
            refuse("a name is empty; name each label")
        for part, longest in zip((key, item), LONGEST_LABEL, strict=True):
            if len(part) > longest or not is_storable(part):
                refuse(
                    f"{quote(part)} cannot be stored; a name has at most 63 characters, a value at most 255"
                )
        read[key] = item
    return read


def read_chain(value: object) -> Chain:
    """Return the job to wait for, from its name or from an object that also has the result.

    >>> read_chain("extract")
    Chain(job='extract', on='succeeded', output=False)
    >>> read_chain({"job": "extract", "on": "failed", "output": True})
    Chain(job='extract', on='failed', output=True)
    """
    values = {"job": value} if isinstance(value, str) else value
    if not isinstance(values, Mapping):
        refuse(f"{quote(value)} is not a job; {_CHAIN}")
    values = _only(values, "job", "on", "output")
    if "job" not in values:
        refuse(f"it names no job; {_CHAIN}")
    output = values.get("output", False)
    if not isinstance(output, bool):
        refuse(f"output: {quote(output)} is not true or false")
    return Chain(_JOB_NAME(values["job"]), _CHAIN_ON(values.get("on", "succeeded")), output)


def read_event(value: object) -> dict[str, Json]:
    """Return the event of an MCP server that starts a job, from an object that names both.

    >>> read_event({"server": "crm", "event": "ticket.created"})
    {'server': 'crm', 'event': 'ticket.created'}
    """
    if not isinstance(value, Mapping):
        refuse(f"{quote(value)} is not an object; {_EVENT}")
    values = _only(value, "server", "event", "arguments")
    for name in ("server", "event"):
        if name not in values:
            refuse(f"it names no {name}; {_EVENT}")
    read: dict[str, Json] = {
        "server": _SERVER(values["server"]),
        "event": str(read_as("event", _EVENT_NAME, values["event"])),
    }
    arguments = values.get("arguments")
    if arguments:
        if not isinstance(arguments, Mapping):
            refuse(f"arguments: {quote(arguments)} is not an object with the arguments of the event")
        read["arguments"] = json_value(dict(arguments), _LARGEST_ARGUMENTS)
    return read


def read_backoff(value: object) -> Backoff:
    """Return the delays between attempts; a part that is left out has its default.

    >>> read_backoff({"base": "1s", "maxMs": 60000})
    Backoff(base_ms=1000, max_ms=60000)
    """
    if not isinstance(value, Mapping):
        refuse(f'{quote(value)} is not an object; write {{"base": "2s", "max": "30s"}}')
    values = _only(value, "baseMs", "maxMs", "base", "max")
    read = {}
    for name in ("base", "max"):
        if name in values and f"{name}Ms" in values:
            refuse(f"{name} and {name}Ms are the same; give one of them")
        if name in values:
            values[f"{name}Ms"] = duration(values[name])
        if f"{name}Ms" in values:
            read[name] = _DELAY(values[f"{name}Ms"])
    base = read.get("base", min(Backoff().base_ms, read.get("max", LONGEST)))
    longest = read.get("max", max(Backoff().max_ms, base))
    if longest < base:
        refuse(f"maxMs {longest} is less than baseMs {base}; the longest delay must not be the shorter one")
    return Backoff(base, longest)


def read_exclude(value: object) -> Calendar:
    """Return the days without ticks, from a list or from a single entry."""
    entries = value.to_json() if isinstance(value, Calendar) else [value] if isinstance(value, str) else value
    return parse_exclude(entries)  # type: ignore[arg-type]  # it checks the type itself


def _only(value: Mapping[Any, object], *names: str) -> dict[str, object]:
    values = camel_keys(value)
    for name in values:
        if name not in names:
            refuse(f"it has no {quote(name)}; it takes {list_choices(names)}")
    return values


def _write_chain(chain: Chain | None) -> Json:
    if chain is None:
        return None
    return {"job": chain.job, "on": chain.on, **({"output": True} if chain.output else {})}


description: Final = Kind(
    "text", read_description, {"type": "string", "minLength": 0, "maxLength": MAX_DESCRIPTION}, "str", "str"
)
labels: Final = Kind("json", read_labels, None, "Mapping[str, str]", "Mapping[str, str]", dict)
after: Final = Kind("json", read_chain, None, "str | Mapping[str, str | bool]", "Chain", _write_chain)
event: Final = Kind(
    "json",
    read_event,
    None,
    "Mapping[str, object]",
    "Mapping[str, Json]",
    lambda value: None if value is None else dict(value),
)
backoff: Final = Kind(
    "json",
    read_backoff,
    None,
    "Mapping[str, object]",
    "Backoff",
    lambda value: {"baseMs": value.base_ms, "maxMs": value.max_ms},
    lambda value: Backoff(value["baseMs"], value["maxMs"]),
)
exclude: Final = Kind(
    "json",
    read_exclude,
    None,
    "str | Sequence[str] | Calendar",
    "tuple[str, ...]",
    lambda calendar: calendar.to_json(),
    stored_exclude,
)
