"""The JSON of the public model: it follows from the fields of its classes.

The key of a field is its name in camelCase. Instants are ISO 8601 in UTC, durations are milliseconds under a
key that ends with `Ms`. A field that only some calls return is not compared (`compare=False`).
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import types
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
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

    #: of text: `uuid`, `slug`, or the name of its schema; of other values: the name of what they are
    format: str = "text"
    #: the key, if it is not the name
    key: str | None = None
    #: an instant that is also written in milliseconds, under a key that ends with `Ms`
    also_ms: bool = False
    #: whether the JSON may be null although the value is never None
    nullable: bool = False
    #: whether the JSON leaves it out if it is None
    optional: bool = False
    #: the type of its JSON, if that is another one than the field has
    json: Any = None
    #: reads the value, if its type does not say how
    read: Convert | None = None
    #: the field with the actor of whom this is the name
    name_of: str | None = None


Id = Annotated[str, Form("uuid")]
#: A number that is not negative.
Amount = Annotated[float, Form("amount")]
Slug = Annotated[str, Form("slug")]
#: The name of an instance: any text.
InstanceName = Annotated[str, Form("instance")]
#: The agent that has it.
AgentName = Annotated[str, Form("slug", key="agentId")]
#: An instant that the JSON has as text and in milliseconds.
InstantWithMs = Annotated[datetime, Form(also_ms=True)]
#: An instant with the offset of a zone.
LocalInstant = Annotated[datetime, Form("local")]
LocalInstantWithMs = Annotated[datetime, Form("local", also_ms=True)]
#: Tokens and cost of today.
SpentToday = Annotated[Mapping[str, Json], Form("spent")]
#: Why something may not do what is expected; left out if there is no such reason.
Warnings = Annotated[tuple[str, ...], Form("warnings")]
#: What the caller may do with it; left out where it was not asked for.
May = Annotated[tuple[str, ...], Form("may", optional=True)]
#: Signs webhooks; shown once.
NewSecret = Annotated[str, Form("secret")]

_names: Final[dict[type[Any], str]] = {}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_plans: Final[dict[type[Any], tuple[FieldPlan, ...]]] = {}


def resource(name: str = "") -> Callable[[type[T]], type[T]]:
    """Declare that a class has a schema of its own in the HTTP API: of its name, or of this one.

    Classes of the model without it are parts of others.
    """

    def declare(kind: type[T]) -> type[T]:
        _names[kind] = name or kind.__name__
        return kind

    return declare


def resource_name(kind: type[Any]) -> str | None:
    """Return the name of the schema of a class; None: it has none."""
    return _names.get(kind)


def model_classes() -> list[type[Any]]:
    """Return the classes of the public model that have JSON, in the order of their declaration."""
    from wakeful import model

    found: list[type[Any]] = []
    for module in sorted(each.name for each in pkgutil.iter_modules(model.__path__)):
        content = vars(importlib.import_module(f"{model.__name__}.{module}"))
        found += (
            each
            for each in content.values()
            if dataclasses.is_dataclass(each)
            and isinstance(each, type)
            and each.__module__ == content["__name__"]
        )
    return found


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


def to_ms(at: datetime) -> int:
    """Return an instant in epoch milliseconds."""
    return (at - _EPOCH) // timedelta(milliseconds=1)


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


def to_json(value: object) -> JsonObject:
    """Return an object of the public model as JSON, without fields that only other calls return."""
    content: JsonObject = {}
    for each in field_plans(type(value)):
        found = getattr(value, each.name)
        if (each.extra or each.form.optional) and found in (None, ()):
            continue
        content[each.key] = _write(found)
        if each.form.also_ms:
            content[f"{each.key}Ms"] = None if found is None else to_ms(found)
    return content


def _write(value: Any) -> Json:
    if isinstance(value, datetime):
        text = value.isoformat(timespec="milliseconds")
        return text.removesuffix("+00:00") + "Z" if value.tzinfo is UTC else text
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, Mapping):
        return {key: _write(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_write(item) for item in value]
    if dataclasses.is_dataclass(value):
        return to_json(value)
    return cast(Json, value)


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


def item_type(type_: Any) -> Any:
    """Return the type of the items of a list; None: it is no list."""
    return get_args(type_)[0] if get_origin(type_) in (tuple, list) else None


def _reader(type_: Any) -> Convert | None:
    if (item := item_type(type_)) is not None:
        inner = _reader(resolve(item)[0])
        return lambda values: tuple(values or ()) if inner is None else tuple(map(inner, values or ()))
    if type_ is datetime:
        return read_instant
    if type_ is date:
        return date.fromisoformat
    if type_ is timedelta:
        return duration
    if isinstance(type_, type) and issubclass(type_, Enum):
        return type_
    if dataclasses.is_dataclass(type_):
        return lambda json: from_json(cast(type, type_), json)
    return None


def _optional(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)
