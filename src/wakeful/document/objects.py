"""Objects within a document, such as a budget or a queue: read field by field, by the same rules each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wakeful.document.values import Reader, camel_keys, duration, json_value, refuse, shown
from wakeful.errors import InvalidArgument
from wakeful.job import Json

_LARGEST: Final = 65_536


def an_object(value: object, example: str) -> dict[str, object]:
    """An object with something in it, under the names of JSON; `example` is shown to who writes another."""
    if not isinstance(value, Mapping) or not value:
        refuse(f"{shown(value)} is not an object with something in it; write {example}")
    return camel_keys(value)


def only(given: Mapping[str, object], what: str, names: tuple[str, ...]) -> None:
    """Refuse a field that is none of these."""
    unknown = sorted(given.keys() - set(names))
    if unknown:
        refuse(f"{what} has no field '{unknown[0][:64]}'; it has {', '.join(names)}")


def durations(given: dict[str, object], name: str) -> None:
    """`timeout` is `timeoutMs` as people write it."""
    if name in given:
        if f"{name}Ms" in given:
            refuse(f"{name} and {name}Ms are the same; give one of them")
        given[f"{name}Ms"] = read_as(name, duration, given.pop(name))


def read_as(name: str, read: Reader, value: object) -> object:
    """A field's value, or a refusal that names the field."""
    try:
        return read(value)
    except InvalidArgument as error:
        refuse(f"{name}: {error.message}")


def copied(given: Mapping[str, object]) -> dict[str, Json]:
    """The object as JSON, nobody else's."""
    value = json_value(given, _LARGEST)
    assert isinstance(value, dict)
    return value
