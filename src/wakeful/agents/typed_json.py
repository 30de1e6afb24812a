"""Values of annotated types as JSON, and back: for state that is a dataclass.

`converter(type)` returns a pair of functions. Text, numbers, true, false and null are themselves; `datetime`,
`date`, `time`, `UUID` and `Decimal` are text, `Enum` is its value, `timedelta` is a number of seconds. Lists,
sets, tuples, dicts with text keys, dataclasses, `Literal` and unions of types with different JSON forms are
made of them. A value of another type than its annotation is refused; an int is a float too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from wakeful.errors import InvalidArgument
from wakeful.values.json_value import Json, json_value, quote, refuse

#: What a value looks like in JSON. The members of a union must differ in it.
Form = Literal["null", "bool", "number", "text", "list", "object", "any"]


#: the dataclasses whose fields are being read, each in a field of the one before
_outer: Final[ContextVar[tuple[type, ...]]] = ContextVar("wakeful_outer_dataclasses", default=())


class Converter(NamedTuple):
    """How a type is written and read. Both functions get the place of the value for error messages."""

    to_json: Callable[[Any, str], Json]
    from_json: Callable[[Any, str], Any]
    form: Form


def converter(hint: Any) -> Converter:
    """Return the converter of a type, or raise InvalidArgument if it has none.

    >>> to_json, from_json, _ = converter(list[datetime])
    >>> to_json([datetime(2027, 3, 1)], "when")
    ['2027-03-01T00:00:00']
    >>> from_json(["2027-03-01T00:00:00"], "when")
    [datetime.datetime(2027, 3, 1, 0, 0)]
    """
    if hint is Any or hint is object:
        return Converter(_any_to_json, lambda value, _: value, "any")
    if hint is None:
        hint = NoneType
    if hint in _PLAIN:
        return _plain(hint, _PLAIN[hint])
    if hint in _TEXTS:
        return _text_converter(hint, *_TEXTS[hint])
    if hint is timedelta:
        return _TIMEDELTA
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _literal(args)
    if origin in (Union, UnionType):
        return _union(args)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return dataclass_converter(hint)
    kind = origin or hint
    if kind in _LISTS:
        return _list(*_LISTS[kind], args)
    if kind is tuple:
        return _tuple(args)
    if kind in (dict, Mapping):
        return _dict(args)
    refuse(f"the type {_name(hint)} cannot be stored; use JSON types, datetime, Enum, dataclasses or a dict")


def dataclass_converter(cls: type[Any]) -> Converter:
    """Return the converter of a dataclass. Missing fields get their defaults, unknown ones are refused."""
    fields = field_converters(cls)
    required = [
        field.name
        for field in dataclasses.fields(cls)
        if field.init and field.default is field.default_factory is dataclasses.MISSING
    ]

    def to_json(value: Any, at: str) -> Json:
        if not isinstance(value, cls):
            refuse(f"{at}: {_value_text(value)} is not {cls.__name__}")
        return {name: each.to_json(getattr(value, name), _within(at, name)) for name, each in fields.items()}

    def from_json(value: Any, at: str) -> Any:
        if not isinstance(value, dict):
            refuse(f"{at}: {_value_text(value)} is not an object of {cls.__name__}")
        for name in value:
            if name not in fields:
                refuse(f"{_within(at, name)}: {cls.__name__} has no such field")
        for name in required:
            if name not in value:
                refuse(f"{_within(at, name)}: it is missing, and {cls.__name__} has no default for it")
        read = {name: fields[name].from_json(item, _within(at, name)) for name, item in value.items()}
        try:
            return cls(**read)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"{at}: {cls.__name__} refuses it: {error}") from error

    return Converter(to_json, from_json, "object")


def field_converters(cls: type[Any]) -> dict[str, Converter]:
    """Return the converters of the fields of a dataclass by name."""
    outer = _outer.get()
    if cls in outer:
        refuse(
            f"{cls.__name__} contains itself; store its parts in a list or a dict, and refer to them by key"
        )
    token = _outer.set((*outer, cls))
    try:
        return _read_fields(cls)
    finally:
        _outer.reset(token)


def _read_fields(cls: type[Any]) -> dict[str, Converter]:
    try:
        hints = get_type_hints(cls)
    except Exception as error:  # annotations are evaluated, so they may raise anything
        refuse(f"{cls.__name__}: the type of a field cannot be read ({error}); define it in the module")
    found = {}
    for field in dataclasses.fields(cls):
        if field.init:
            try:
                found[field.name] = converter(hints[field.name])
            except InvalidArgument as error:
                refuse(f"{cls.__name__}.{field.name}: {error.message}")
    return found


def _any_to_json(value: Any, at: str) -> Json:
    try:
        return json_value(value, None)
    except InvalidArgument as error:
        raise InvalidArgument(f"{at}: {error.message}") from None


_PLAIN: Final[dict[Any, Form]] = {
    str: "text",
    int: "number",
    float: "number",
    bool: "bool",
    NoneType: "null",
}
_TEXTS: Final[dict[Any, tuple[Callable[[Any], str], Callable[[str], Any]]]] = {
    datetime: (datetime.isoformat, datetime.fromisoformat),
    date: (date.isoformat, date.fromisoformat),
    time: (time.isoformat, time.fromisoformat),
    UUID: (str, UUID),
    Decimal: (str, Decimal),
}
#: What builds the value, and the types that are accepted.
_LISTS: Final[dict[Any, tuple[Callable[[list[Any]], Any], tuple[type, ...]]]] = {
    list: (list, (list, tuple)),
    Sequence: (list, (list, tuple)),
    set: (set, (set, frozenset)),
    frozenset: (frozenset, (set, frozenset)),
}


def _plain(kind: type, form: Form) -> Converter:
    def check(value: Any, at: str) -> Any:
        if kind is float and type(value) is int:
            try:
                return float(value)
            except OverflowError:
                refuse(f"{at}: {_value_text(value)} is too large for a float")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            refuse(f"{at}: {_value_text(value)} is not {_name(kind)}")
        return value

    return Converter(lambda value, at: _any_to_json(check(value, at), at), check, form)


def _text_converter(kind: type, write: Callable[[Any], str], read: Callable[[str], Any]) -> Converter:
    def to_json(value: Any, at: str) -> Json:
        if not isinstance(value, kind) or (kind is date and isinstance(value, datetime)):
            refuse(f"{at}: {_value_text(value)} is not {_name(kind)}")
        return write(value)

    def from_json(value: Any, at: str) -> Any:
        if not isinstance(value, str):
            refuse(f"{at}: {_value_text(value)} is not {_name(kind)}")
        try:
            return read(value)
        except (ValueError, InvalidOperation):
            refuse(f"{at}: {quote(value)} is not {_name(kind)}")

    return Converter(to_json, from_json, "text")


def _seconds(value: Any, at: str) -> Json:
    if not isinstance(value, timedelta):
        refuse(f"{at}: {_value_text(value)} is not timedelta")
    return value.total_seconds()


def _timedelta(value: Any, at: str) -> timedelta:
    if isinstance(value, bool) or not isinstance(value, int | float):
        refuse(f"{at}: {_value_text(value)} is not a number of seconds")
    try:
        return timedelta(seconds=value)
    except OverflowError:
        refuse(f"{at}: {_value_text(value)} is out of range")


_TIMEDELTA: Final = Converter(_seconds, _timedelta, "number")


def _json_form(value: object) -> Form:
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "text"
        case list():
            return "list"
    return "object"


def _literal(values: tuple[Any, ...]) -> Converter:
    forms = {_json_form(value) for value in values}
    form = forms.pop() if len(forms) == 1 else refuse("a Literal must have values of one type")

    def check(value: Any, at: str) -> Any:
        if not any(type(each) is type(value) and each == value for each in values):
            refuse(f"{at}: {_value_text(value)} is none of {', '.join(map(quote, values))}")
        return value

    return Converter(check, check, form)


def _enum(cls: type[Enum]) -> Converter:
    values = _literal(tuple(member.value for member in cls))

    def to_json(value: Any, at: str) -> Json:
        if not isinstance(value, cls):
            refuse(f"{at}: {_value_text(value)} is not {cls.__name__}")
        return _any_to_json(value.value, at)

    return Converter(to_json, lambda value, at: cls(values.from_json(value, at)), values.form)


def _union(args: tuple[Any, ...]) -> Converter:
    if set(args) >= {int, float}:  # a number keeps its type
        number = Converter(_number, _number, "number")
        members = [number, *(converter(each) for each in args if each not in (int, float))]
    else:
        members = [converter(each) for each in args]
    by_form = {member.form: member for member in members}
    if len(by_form) < len(members) or "any" in by_form:
        refuse(f"{' | '.join(map(_name, args))} is ambiguous in JSON; use one type for each JSON form")

    def to_json(value: Any, at: str) -> Json:
        problems = []
        for member in members:
            try:
                return member.to_json(value, at)
            except InvalidArgument as error:
                if member.form != "null":
                    problems.append(error)
        if len(problems) == 1:  # an optional value
            raise problems[0]
        refuse(f"{at}: {_value_text(value)} is none of {', '.join(map(_name, args))}")

    def from_json(value: Any, at: str) -> Any:
        member = by_form.get(_json_form(value))
        if member is None:
            refuse(f"{at}: {_value_text(value)} is none of {', '.join(map(_name, args))}")
        return member.from_json(value, at)

    return Converter(to_json, from_json, "any")


def _number(value: Any, at: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        refuse(f"{at}: {_value_text(value)} is not a number")
    return _any_to_json(value, at)


def _list(build: Callable[[list[Any]], Any], kinds: Any, args: tuple[Any, ...]) -> Converter:
    item = converter(args[0] if args else Any)

    def to_json(value: Any, at: str) -> Json:
        if not isinstance(value, kinds):
            refuse(f"{at}: {_value_text(value)} is not a {_name(build)}")
        written = [item.to_json(each, f"{at}[{index}]") for index, each in enumerate(value)]
        # Sets have no order; equal sets have equal texts.
        return written if build is list else sorted(written, key=lambda each: (str(type(each)), str(each)))

    def from_json(value: Any, at: str) -> Any:
        if not isinstance(value, list):
            refuse(f"{at}: {_value_text(value)} is not a list")
        return build([item.from_json(each, f"{at}[{index}]") for index, each in enumerate(value)])

    return Converter(to_json, from_json, "list")


def _tuple(args: tuple[Any, ...]) -> Converter:
    variable = not args or args[-1] is Ellipsis
    items = [converter(each) for each in (args[:1] or (Any,) if variable else args)]

    def each(value: Any, at: str) -> list[tuple[Converter, Any, str]]:
        if not variable and len(value) != len(items):
            refuse(f"{at}: it has {len(value)} items, and the type has {len(items)}")
        return [(items[0 if variable else n], part, f"{at}[{n}]") for n, part in enumerate(value)]

    def to_json(value: Any, at: str) -> Json:
        if not isinstance(value, tuple | list):
            refuse(f"{at}: {_value_text(value)} is not a tuple")
        return [item.to_json(part, place) for item, part, place in each(value, at)]

    def from_json(value: Any, at: str) -> Any:
        if not isinstance(value, list):
            refuse(f"{at}: {_value_text(value)} is not a list")
        return tuple(item.from_json(part, place) for item, part, place in each(value, at))

    return Converter(to_json, from_json, "list")


def _dict(args: tuple[Any, ...]) -> Converter:
    if args and args[0] is not str:
        refuse(f"a dict with keys of type {_name(args[0])} cannot be stored; use text keys")
    item = converter(args[1] if args else Any)

    def to_json(value: Any, at: str) -> Json:
        if not isinstance(value, Mapping):
            refuse(f"{at}: {_value_text(value)} is not a dict")
        for key in value:
            if not isinstance(key, str):
                refuse(f"{at}: the key {quote(key)} is not text, which JSON requires")
            _any_to_json(key, at)
        return {key: item.to_json(each, _within(at, key)) for key, each in value.items()}

    def from_json(value: Any, at: str) -> Any:
        if not isinstance(value, dict):
            refuse(f"{at}: {_value_text(value)} is not an object")
        return {key: item.from_json(each, _within(at, key)) for key, each in value.items()}

    return Converter(to_json, from_json, "object")


def _within(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _value_text(value: object) -> str:
    return f"{quote(value)} ({type(value).__name__})" if isinstance(value, str) else quote(value)


def _name(hint: Any) -> str:
    return "null" if hint is NoneType else getattr(hint, "__name__", None) or str(hint)
