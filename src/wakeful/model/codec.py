"""The JSON of the public model: it follows from the fields of its classes.

The key of a field is its name in camelCase. Instants are ISO 8601 in UTC, durations are milliseconds under a
key that ends with `Ms`. A field that only some calls return is not compared (`compare=False`).
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from wakeful.errors import InvalidArgument, Unavailable
from wakeful.model.page import Page
from wakeful.values.json_value import Json

T = TypeVar("T")
JsonObject = dict[str, Json]
Convert = Callable[[Any], Any]


class Form(NamedTuple):
    """What the type of a field does not say about its JSON. It is given with `Annotated`."""

    #: of text: `uuid`, `slug`
    format: str = "text"
    #: the key, if it is not the name
    key: str | None = None
    #: an instant that is also written in milliseconds, under a key that ends with `Ms`
    also_ms: bool = False
    #: whether the JSON may be null although the value is never None
    nullable: bool = False
    #: the type of its JSON, if that is another one than the field has
    json: Any = None
    #: reads the value, if its type does not say how
    read: Convert | None = None


Id = Annotated[str, Form("uuid")]
Slug = Annotated[str, Form("slug")]
#: The agent that has it.
AgentName = Annotated[str, Form("slug", key="agentId")]
#: An instant that the JSON has as text and in milliseconds.
InstantWithMs = Annotated[datetime, Form(also_ms=True)]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_plans: Final[dict[type[Any], tuple[FieldPlan, ...]]] = {}


class FieldPlan(NamedTuple):
    """How one field is read."""

    name: str
    key: str
    #: its type, without None and annotations
    type: Any
    form: Form
    nullable: bool
    #: whether only some calls return it
    extra: bool
    #: None: the value is taken as it is
    read: Convert | None


def from_ms(ms: int) -> datetime:
    """Return epoch milliseconds as a datetime in UTC.

    >>> from_ms(1_741_392_000_250).isoformat(timespec="milliseconds")
    '2025-03-08T00:00:00.250+00:00'
    """
    return _EPOCH + timedelta(milliseconds=ms)


#: An instant that the JSON has only in milliseconds.
EpochMs = Annotated[datetime, Form(json=int, read=from_ms)]


def duration(ms: int) -> timedelta:
    """Return a number of milliseconds as a timedelta."""
    return timedelta(milliseconds=ms)


@lru_cache(maxsize=1_024)  # a run has up to seven instants, and most of them are equal
def read_instant(text: str) -> datetime:
    """Return an instant, which the API writes in ISO 8601."""
    return datetime.fromisoformat(text).astimezone(UTC)


def from_json(kind: type[T], json: object, **extra: object) -> T:
    """Return an object of the public model; `extra` sets further fields.

    Unavailable: the JSON is not of this kind. It comes from a server, which may have another version.
    """
    try:
        return kind(**read_fields(kind, cast(Mapping[str, Any], json)), **extra)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, InvalidArgument) as error:
        raise Unavailable(
            f"the server sent a {kind.__name__} that this version of Wakeful cannot read: {error}"
        ) from error


def page_from_json(kind: type[T], page: Page[Any]) -> Page[T]:
    """Return a page of objects of the public model."""
    return Page((from_json(kind, each) for each in page), page.cursor)


def read_fields(kind: type[Any], json: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the fields that the JSON has."""
    return {
        each.name: json[each.key] if each.read is None else each.read(json[each.key])
        for each in field_plans(kind)
        if each.key in json
    }


def field_plans(kind: type[Any]) -> tuple[FieldPlan, ...]:
    """Return how the fields of a class are read, in their order."""
    found = _plans.get(kind)
    if found is None:
        found = _plans[kind] = tuple(_make_plans(kind))
    return found


def _make_plans(kind: type[Any]) -> Iterator[FieldPlan]:
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(cast(Any, kind)):
        type_, form, nullable = resolve(hints[field.name])
        key = form.key or camel_case(field.name) + ("Ms" if type_ is timedelta else "")
        read = form.read or _reader(type_)
        yield FieldPlan(
            field.name,
            key,
            type_,
            form,
            nullable,
            not field.compare,
            _optional(read) if read and nullable else read,
        )


def resolve(hint: Any) -> tuple[Any, Form, bool]:
    """Return a type without None and annotations, its form, and whether it may be None.

    >>> type_, form, nullable = resolve(Id | None)
    >>> type_, form.format, nullable
    (<class 'str'>, 'uuid', True)
    """
    form, nullable = Form(), False
    while True:
        if get_origin(hint) is Annotated:
            hint, *notes = get_args(hint)
            form = next((note for note in notes if isinstance(note, Form)), form)
        elif get_origin(hint) in (Union, types.UnionType) and len(_values(hint)) == 1:
            [hint], nullable = _values(hint), True
        else:
            return hint, form, nullable


def _values(union: Any) -> list[Any]:
    return [each for each in get_args(union) if each is not types.NoneType]


def camel_case(name: str) -> str:
    """Return a Python name as the JSON writes it.

    >>> camel_case("started_at")
    'startedAt'
    """
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def items_of(type_: Any) -> Any:
    """Return the type of the items of a list; None: it is no list."""
    return get_args(type_)[0] if get_origin(type_) in (tuple, list) else None


def _reader(type_: Any) -> Convert | None:
    if (item := items_of(type_)) is not None:
        inner = _reader(resolve(item)[0])
        return lambda values: tuple(values or ()) if inner is None else tuple(map(inner, values or ()))
    if type_ is datetime:
        return read_instant
    if type_ is timedelta:
        return duration
    if isinstance(type_, type) and issubclass(type_, Enum):
        return type_
    if dataclasses.is_dataclass(type_):
        return lambda json: from_json(cast(type, type_), json)
    return None


def _optional(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)
