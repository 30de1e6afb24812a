"""Objects within a document, such as a budget or a queue, are read field by field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wakeful.document.kinds import Reader, duration
from wakeful.document.values import camel_keys, json_value, refuse, shown
from wakeful.errors import InvalidArgument
from wakeful.job.job import Json

_LARGEST: Final = 65_536


def read_object(value: object, example: str) -> dict[str, object]:
    """Return a non-empty object with its keys in camelCase; the error message contains the example."""
    if not isinstance(value, Mapping) or not value:
        refuse(f"{shown(value)} is not an object with fields; write {example}")
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
    value = json_value(values, _LARGEST)
    assert isinstance(value, dict)
    return value
