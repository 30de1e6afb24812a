"""Values as their fields have them: numbers and truth without quotes, JSON out of text, no indentation.

Which kind of value a field has comes from its reader, so that every field of a job is read this way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from textwrap import dedent
from typing import Final, cast

from wakeful.api.mcp.schedules import as_milliseconds, as_number
from wakeful.document.fields import ABOUT, POLICY, TIMING, WORK
from wakeful.document.values import Bounded, flag

_READERS: Final = {field.name: field.read for field in (*TIMING, *WORK, *POLICY, *ABOUT)}
_FLAGS: Final = frozenset({"enabled", "includeDisabled"}) | {
    name for name, read in _READERS.items() if read is flag
}
_WHOLE: Final = frozenset({"limit", "version"}) | {
    name for name, read in _READERS.items() if isinstance(read, Bounded) and read.schema["type"] == "integer"
}
_TEXTS: Final = frozenset({"message", "description", "note"})
_BARE: Final = frozenset({"name", "tz", "channel", "to", "lane", "activeHours", "workflowId", "userId"})
_INSTANTS: Final = frozenset({"startAt", "endAt", "until"})
#: Words that a policy can be, which models write in capitals and with hyphens.
_CHOICES: Final = frozenset({"overlapPolicy", "catchupPolicy", "onLost", "dstGap", "dstOverlap"})
_FLAG_WORDS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_NUMBER: Final = re.compile(r"[0-9]{1,16}")


def plain(name: str, value: object) -> object:
    """A value as its field has it; what cannot be one is left as it is, for the service layer to refuse.

    >>> plain("maxAttempts", "3"), plain("enabled", "yes"), plain("overlapPolicy", "Queue-One")
    (3, True, 'queue_one')
    """
    if name in _INSTANTS:
        number = as_number(value)
        return value if number is None else as_milliseconds(number)
    if not isinstance(value, str):
        return value
    bare = value.strip()
    if name in _FLAGS:
        return _FLAG_WORDS.get(bare.lower(), value)
    if name in _WHOLE and _NUMBER.fullmatch(bare):
        return int(bare)
    if name in _TEXTS:
        return text(value)
    if name in _BARE:
        return bare
    if name in _CHOICES:
        return re.sub(r"[\s-]+", "_", bare.lower())
    return json_in(value)


def json_in(value: object) -> object:
    """The object or the list that a text is the JSON of; else the value as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            return cast(object, json.loads(value))
    return value


def text(value: str) -> str:
    """A text without the indentation of the code that it was written in."""
    whole = dedent(value.lstrip("\r\n")).strip()
    first, newline, rest = whole.partition("\n")
    # Only the first line stood right behind its quotation mark.
    if re.match(r"(?:\t| {4})", rest) and not value[:1].isspace():
        return f"{first}{newline}{dedent(rest)}"
    return whole


def empty(value: object) -> bool:
    """Whether a value says nothing: clients that fill in every argument send such ones."""
    return value is None or value == "" or (isinstance(value, Mapping | list) and not value)
