"""Coercion of argument values: numbers and booleans from text, JSON from text, text without indentation.

The kind of a job field determines how its value is coerced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from textwrap import dedent
from typing import Final, cast

from wakeful.document.fields import DECLARED, OTHER
from wakeful.document.kinds import Form
from wakeful.service.cron_tool.schedules import as_milliseconds, as_number

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
