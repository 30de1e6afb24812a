"""The state of an instance: a dict, a dataclass or a pydantic model, stored as a JSON object.

A handler gets a copy. What it changes with `SetState` is checked before it is stored: an unknown field or a
wrong type of a dataclass or model, a value that JSON cannot represent, and more than 256 KB are refused with
the name of the key.

In a plain dict a `datetime` is refused, because it would come back as text. Store `when.isoformat()`, or
declare the state as a dataclass or a model: fields of type `datetime` come back as they were.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from wakeful.agents.typed_json import dataclass_converter, field_converters
from wakeful.errors import InvalidArgument
from wakeful.values.json_value import Json, compact, json_from_stored, json_value, quote

#: The most bytes of a state as compact JSON.
MAX_STATE: Final = 262_144

_DATE: Final = re.compile(r"(^|: )(datetime|date) is not JSON")

StateObject = dict[str, Json]


class StateType(Protocol):
    """How the state of a class is written and read. Each method raises InvalidArgument with the key."""

    def initial(self) -> StateObject:
        """Return the state of a new instance."""
        ...

    def load(self, stored: StateObject) -> object:
        """Return what a handler gets as `ctx.state`. It may share parts with `stored`."""
        ...

    def merge(self, stored: StateObject, changes: Mapping[str, object]) -> StateObject:
        """Return the state with top-level keys changed."""
        ...

    def replace(self, new: object) -> StateObject:
        """Return another state."""
        ...


def state_type(declared: object) -> StateType:
    """Return how to store the state that a class declares: a dict, or a dataclass or model or one of them.

    >>> counter = state_type({"count": 0})
    >>> counter.merge(counter.initial(), {"count": 1})
    {'count': 1}
    """
    if isinstance(declared, Mapping):
        return _DictState(declared)
    cls = declared if isinstance(declared, type) else type(declared)
    if _is_model(cls):
        return _ModelState(cls, None if declared is cls else declared)
    if dataclasses.is_dataclass(cls):
        return _DataclassState(cls, None if declared is cls else declared)
    raise InvalidArgument(
        f"state: {quote(declared)} cannot be a state; use a dict, a dataclass or a pydantic model"
    )


def state_to_text(state: StateObject) -> str:
    """Return the state as compact JSON, or raise InvalidArgument if it is too large."""
    text = compact(state)
    if len(text) * 4 > MAX_STATE and (size := len(text.encode())) > MAX_STATE:
        raise InvalidArgument(
            f"the state has {size} bytes as JSON; at most {MAX_STATE}: store large data elsewhere and keep "
            "a reference"
        )
    return text


def state_from_text(text: str) -> StateObject:
    """Return the JSON object that `state_to_text` wrote, or raise InvalidArgument."""
    try:
        value = json_from_stored(text)
    except ValueError as error:
        raise InvalidArgument(f"it is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidArgument(f"it is {quote(value)}, not an object")
    return value


class _DictState:
    def __init__(self, initial: Mapping[str, object]) -> None:
        self._initial = state_to_text(_object(initial))

    def initial(self) -> StateObject:
        return state_from_text(self._initial)

    def load(self, stored: StateObject) -> object:
        return stored

    def merge(self, stored: StateObject, changes: Mapping[str, object]) -> StateObject:
        return {**stored, **_object(changes)}

    def replace(self, new: object) -> StateObject:
        if not isinstance(new, Mapping):
            raise InvalidArgument(f"the state is a dict, and SetState gives {quote(new)}")
        return _object(new)


class _DataclassState:
    def __init__(self, cls: type[Any], initial: object) -> None:
        self._cls = cls
        self._fields = field_converters(cls)
        self._all = dataclass_converter(cls)
        self._initial = state_to_text(self.replace(_create(cls) if initial is None else initial))

    def initial(self) -> StateObject:
        return state_from_text(self._initial)

    def load(self, stored: StateObject) -> object:
        value: object = self._all.from_json(stored, "")
        return value

    def merge(self, stored: StateObject, changes: Mapping[str, object]) -> StateObject:
        _check_fields(changes, self._fields, self._cls)
        changed = {name: self._fields[name].to_json(value, name) for name, value in changes.items()}
        state = {**stored, **changed}
        self.load(state)  # `__post_init__` may refuse the combination
        return state

    def replace(self, new: object) -> StateObject:
        if isinstance(new, Mapping):
            _check_fields(new, self._fields, self._cls)
            new = self.load({name: self._field(name, value) for name, value in new.items()})
        state = self._all.to_json(new, "state")
        assert isinstance(state, dict)
        self.load(state)  # what cannot be read again would block the instance
        return state

    def _field(self, name: str, value: object) -> Json:
        """Return a field as JSON, from JSON (`migrate` works on it) or from a value of its type."""
        field = self._fields[name]
        with suppress(InvalidArgument):
            return field.to_json(field.from_json(value, name), name)
        return field.to_json(value, name)


class _ModelState:
    """A pydantic model. It is used through its own methods, so that pydantic is not imported here."""

    def __init__(self, cls: Any, initial: Any) -> None:
        self._cls = cls
        self._initial = state_to_text(self.replace(_create(cls) if initial is None else initial))

    def initial(self) -> StateObject:
        return state_from_text(self._initial)

    def load(self, stored: StateObject) -> Any:
        try:
            return self._cls.model_validate_json(compact(stored))
        except ValueError as error:  # pydantic's ValidationError is one
            raise InvalidArgument(_problems(error)) from None

    def merge(self, stored: StateObject, changes: Mapping[str, object]) -> StateObject:
        self._check(changes, self._cls.model_fields)
        changed = self.load(stored).model_copy(update=dict(changes))
        return self._write(changed.model_dump(by_alias=True, round_trip=True, warnings=False))

    def replace(self, new: Any) -> StateObject:
        if isinstance(new, self._cls):  # its attributes may have been changed without validation
            new = new.model_dump(by_alias=True, round_trip=True, warnings=False)
        elif isinstance(new, Mapping):
            fields = self._cls.model_fields
            self._check(new, {**fields, **{each.alias: each for each in fields.values() if each.alias}})
        else:
            raise InvalidArgument(f"the state is {self._cls.__name__}, and SetState gives {quote(new)}")
        return self._write(new)

    def _check(self, names: Mapping[str, object], fields: Mapping[str, object]) -> None:
        if self._cls.model_config.get("extra") != "allow":
            _check_fields(names, fields, self._cls)

    def _write(self, values: Mapping[str, object]) -> StateObject:
        try:
            valid = self._cls.model_validate(values)
            written = valid.model_dump(mode="json", by_alias=True, round_trip=True)
        except ValueError as error:
            raise InvalidArgument(_problems(error)) from None
        return _object(written)


def _is_model(cls: type) -> bool:
    return hasattr(cls, "model_validate_json") and any(
        base.__module__.partition(".")[0] == "pydantic" for base in cls.__mro__
    )


def _create(cls: type[Any]) -> object:
    try:
        value: object = cls()
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            f"state: {cls.__name__} has fields without a default ({error}); give each a default, or set "
            f"state = {cls.__name__}(…)"
        ) from error
    return value


def _object(value: Mapping[str, object]) -> StateObject:
    try:
        copied = json_value(value, None)
    except InvalidArgument as error:
        advice = ""
        if _DATE.search(error.message):
            advice = "; in a dict store `isoformat()`, or declare the state as a dataclass or a model"
        raise InvalidArgument(f"{error.message}{advice}") from None
    if not isinstance(copied, dict):
        raise InvalidArgument(f"the state is {quote(copied)}; it must be an object with named fields")
    return copied


def _check_fields(names: Mapping[str, object], fields: Mapping[str, object], cls: type) -> None:
    for name in names:
        if name not in fields:
            raise InvalidArgument(f"{name}: {cls.__name__} has no such field; it has {', '.join(fields)}")


def _problems(error: ValueError) -> str:
    """Return the problems of pydantic on one line, each with its field."""
    list_errors = getattr(error, "errors", None)
    if list_errors is None:
        return str(error)
    found = list_errors(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'state'}: {each['msg']}" for each in found[:10])
