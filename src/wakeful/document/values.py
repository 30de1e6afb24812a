"""Values of a document: names, numbers and texts, and how they are read.

An error message about a value is the rest of a line that begins with the name of its field: "0 is out of
range; give a whole number from 1 to 100".
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from wakeful.values.json_value import Json
from wakeful.values.json_value import compact as compact
from wakeful.values.json_value import json_text as json_text
from wakeful.values.json_value import json_value as json_value
from wakeful.values.json_value import refuse as refuse
from wakeful.values.json_value import shown as shown
from wakeful.values.stored_text import UNSTORABLE, is_storable

T = TypeVar("T")


def one_of(words: Iterable[str]) -> str:
    """Return the words as a choice.

    >>> one_of(["first", "second", "both"])
    "'first', 'second' or 'both'"
    """
    *others, last = (f"'{word}'" for word in words)
    return f"{', '.join(others)} or {last}" if others else last


def camel(name: str) -> str:
    """Return a name in camelCase.

    >>> camel("max_attempts"), camel("maxAttempts")
    ('maxAttempts', 'maxAttempts')
    """
    return re.sub(r"(?<=[a-z0-9])_([a-z0-9])", lambda found: found[1].upper(), name)


def camel_keys(value: Mapping[Any, T]) -> dict[str, T]:
    """Return an object with its keys in camelCase and without nulls."""
    found: dict[str, T] = {}
    for key, item in value.items():
        name = camel(key) if isinstance(key, str) else refuse(f"{shown(key)} is not a name; a name is text")
        if item is None:
            continue
        if name in found:
            refuse(f"'{name[:64]}' is given in two spellings; give it once")
        found[name] = item
    return found


def whole_number(value: object) -> int | None:
    """Return the value as an integer if it is a whole number: 3e5 is one, true is not."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    return None


def storable(value: str, longest: int) -> str:
    """Return text that every database can store, of at most this length."""
    if len(value) > longest:
        refuse(f"it has {len(value)} characters; at most {longest}")
    if not is_storable(value):
        refuse(UNSTORABLE)
    return value


def json_object(value: object, longest: int) -> dict[str, Json]:
    """Return a copy of a JSON object that is not empty."""
    if not isinstance(value, Mapping) or not value:
        refuse(f"{shown(value)} is not an object with fields; write one, or leave the field out")
    copied = json_value(value, longest)
    assert isinstance(copied, dict)
    return copied
