"""Conversion of Python values to the JSON of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Protocol, runtime_checkable

from wakeful.errors import InvalidArgument
from wakeful.values.duration import format_duration
from wakeful.values.json_value import Json


@runtime_checkable
class _Convertible(Protocol):
    """An object that converts itself: a target, a schedule, a calendar."""

    def to_json(self) -> object: ...


def document(fields: Mapping[str, object]) -> dict[str, Json]:
    """Return the fields as a JSON document.

    >>> document({"timeout": timedelta(seconds=90), "schedule": timedelta(hours=1)})
    {'timeout': '1m30s', 'schedule': 'every 1h'}
    """
    try:
        return {
            name: f"every {_duration(value)}"
            if name == "schedule" and isinstance(value, timedelta)
            else _plain(value)
            for name, value in fields.items()
        }
    except RecursionError:
        raise InvalidArgument("a value is nested too deeply; flatten it") from None


def given_fields(fields: Mapping[str, object]) -> dict[str, Json]:
    """Return the fields that are not None as a JSON document."""
    return document({name: value for name, value in fields.items() if value is not None})


def _plain(value: object) -> Json:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if type(value) is dict:
        return {str(key): _plain(item) for key, item in value.items()}
    if type(value) is list:
        return [_plain(item) for item in value]
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return _duration(value)
    if isinstance(value, _Convertible):
        return _plain(value.to_json())
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    is_bytes = isinstance(value, bytes | bytearray | memoryview)
    if isinstance(value, Sequence | set | frozenset) and not is_bytes:
        return [_plain(item) for item in value]
    raise InvalidArgument(f"{value!r:.64} cannot be converted to JSON")


def _duration(value: timedelta) -> str:
    return format_duration(round(value.total_seconds() * 1000))


def label_texts(labels: Mapping[str, str] | Sequence[str]) -> list[str]:
    """Return labels as they are in a query.

    >>> label_texts({"team": "ops"}), label_texts(["urgent"])
    (['team=ops'], ['urgent'])
    """
    if isinstance(labels, Mapping):
        return [f"{name}={value}" for name, value in labels.items()]
    return [labels] if isinstance(labels, str) else list(labels)
