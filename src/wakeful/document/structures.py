"""Kinds of single fields: descriptions, labels, chains, backoff and excluded days."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from wakeful.document.kinds import Kind, choice, duration, milliseconds, slug
from wakeful.job.job import Chain, ChainOn
from wakeful.job.policy import Backoff
from wakeful.schedule.calendars import Calendar, parse_exclude, stored_exclude
from wakeful.values.duration import LONGEST
from wakeful.values.json_value import Json, camel_keys, one_of, refuse, shown, storable
from wakeful.values.stored_text import is_storable

MAX_DESCRIPTION: Final = 10_000
MAX_LABELS: Final = 32
#: of the name of a label and of its value
LONGEST_LABEL: Final = (63, 255)
_CHAIN: Final = """write "other-job" or {"job": "other-job", "on": "succeeded"}"""
_JOB_NAME: Final = slug("job")
_CHAIN_ON: Final = choice(ChainOn)
_DELAY: Final = milliseconds(1)


def read_description(value: object) -> str:
    """Return text that may be empty, without the tabs that indent its lines."""
    if not isinstance(value, str):
        refuse(f"{shown(value)} is not text; put it in quotes")
    return storable(re.sub(r"(?m)^\t+", "", value), MAX_DESCRIPTION)


def read_labels(value: object) -> dict[str, str]:
    """Return a flat map of text to text."""
    if not isinstance(value, Mapping):
        refuse(f'{shown(value)} is not an object; write names and texts, such as {{"team": "billing"}}')
    if len(value) > MAX_LABELS:
        refuse(f"it has {len(value)} labels; at most {MAX_LABELS}")
    read: dict[str, str] = {}
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, str):
            refuse(f"{shown(key)} is {shown(item)}; names and values are text: put them in quotes")
        if not key.strip():
            refuse("a name is empty; name each label")
        for part, longest in zip((key, item), LONGEST_LABEL, strict=True):
            if len(part) > longest or not is_storable(part):
                refuse(
                    f"{shown(part)} cannot be stored; a name has at most 63 characters, a value at most 255"
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
        refuse(f"{shown(value)} is not a job; {_CHAIN}")
    values = _only(values, "job", "on", "output")
    if "job" not in values:
        refuse(f"it names no job; {_CHAIN}")
    output = values.get("output", False)
    if not isinstance(output, bool):
        refuse(f"output: {shown(output)} is not true or false")
    return Chain(_JOB_NAME(values["job"]), _CHAIN_ON(values.get("on", "succeeded")), output)


def read_backoff(value: object) -> Backoff:
    """Return the delays between attempts; a part that is left out has its default.

    >>> read_backoff({"base": "1s", "maxMs": 60000})
    Backoff(base_ms=1000, max_ms=60000)
    """
    if not isinstance(value, Mapping):
        refuse(f'{shown(value)} is not an object; write {{"base": "2s", "max": "30s"}}')
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
            refuse(f"it has no {shown(name)}; it takes {one_of(names)}")
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
