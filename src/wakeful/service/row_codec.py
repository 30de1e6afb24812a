"""Converts rows of the store to the public model, and to its JSON.

Both follow from the fields of the public class, so that a new field is written in one place. The functions
are generated when they are first needed: a list has thousands of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any, Generic, TypeVar, get_origin, get_type_hints
from zoneinfo import ZoneInfo

from wakeful.document import json_from_text
from wakeful.errors import Unavailable
from wakeful.model.codec import FieldPlan, JsonObject, duration, field_plans, from_ms, item_type, resolve
from wakeful.service.auth.actor_names import actor_name

R = TypeVar("R")
T = TypeVar("T")


def instant(ms: int | None, tz: str | None = None) -> str | None:
    """Return an instant as text, in UTC or with the offset of a zone.

    >>> instant(1_800_000_000_123)
    '2027-01-15T08:00:00.123Z'
    >>> instant(1_800_000_000_123, "Europe/Berlin")
    '2027-01-15T09:00:00.123+01:00'
    """
    if ms is None:
        return None
    if tz is None:
        return _in_utc(ms)
    at = datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)
    return at.astimezone(ZoneInfo(tz)).isoformat(timespec="milliseconds")


@lru_cache(maxsize=1_024)  # a run has up to seven instants, and most of them are equal
def _in_utc(ms: int) -> str:
    at = datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000, tzinfo=None)
    return at.isoformat(timespec="milliseconds") + "Z"


class RowCodec(Generic[R, T]):
    """How rows of one class become objects of one public class.

    A field comes from the attribute of its name; an instant such as `started_at` from `started_ms`. `sources`
    names other attributes, or has functions of the row, or the codec of the items of a list. None: the row
    does not have it. A text that is no text in the public class is JSON.
    """

    def __init__(
        self,
        kind: type[T],
        row: type[R],
        **sources: str | Callable[[R], object] | RowCodec[Any, Any] | None,
    ) -> None:
        self._kind = kind
        self._row = row
        self._sources = sources

    def to_json(self, row: R, **extra: Any) -> JsonObject:
        """Return a row as JSON; `extra` has what the row does not have, by the Python names of the fields."""
        content = self._write(row)
        for name, value in extra.items():
            content[self._keys[name]] = value
        for key in self._optional:
            if content.get(key) is None:
                content.pop(key, None)
        return content

    def to_model(self, row: R, **extra: Any) -> T:
        """Return a row as an object of the public class; `extra` has what the row does not have.

        Unavailable: the row has a value of a newer version, such as a state that this one does not know.
        """
        try:
            return self._read(row, extra)
        except ValueError as error:
            raise Unavailable(
                f"the database has a {self._kind.__name__} that this version of Wakeful cannot read: {error}"
            ) from error

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The fields that the row has, in the order of `values`."""
        return tuple(each.name for each, _, _ in self._values())

    @cached_property
    def values(self) -> Callable[[R], tuple[Any, ...]]:
        """The function that returns the values of these fields for the public class."""
        values = [self._model_expression(*each) for each in self._values()]
        return self._function("row", f"({', '.join(values)},)")

    @cached_property
    def _optional(self) -> tuple[str, ...]:
        return tuple(each.key for each in field_plans(self._kind) if each.form.optional)

    @cached_property
    def _keys(self) -> dict[str, str]:
        return {each.name: each.key for each in field_plans(self._kind)}

    @cached_property
    def _write(self) -> Callable[[R], JsonObject]:
        """The function `row -> {"id": row.id, …}`."""
        items = []
        for each, value, is_json in self._values():
            items.append(f"{each.key!r}: {self._json_expression(each, value, is_json)}")
            if each.form.also_ms:
                items.append(f"{each.key + 'Ms'!r}: {value}")
        return self._function("row", f"{{{', '.join(items)}}}")

    @cached_property
    def _read(self) -> Callable[[R, dict[str, Any]], T]:
        """The function `row, extra -> Class(id=row.id, …, **extra)`."""
        values = [
            f"{each.name}={self._model_expression(each, value, is_json)}"
            for each, value, is_json in self._values()
        ]
        return self._function("row, extra", f"kind({', '.join(values)}, **extra)")

    def _function(self, arguments: str, result: str) -> Callable[..., Any]:
        names = {
            **{f"source_{name}": source for name, source in self._sources.items()},
            **{f"type_{each.name}": each.type for each in field_plans(self._kind)},
            "kind": self._kind,
            "actor_name": actor_name,
            "instant": instant,
            "from_ms": from_ms,
            "duration": duration,
            "json_from_text": json_from_text,
        }
        made: Callable[..., Any] = eval(f"lambda {arguments}: {result}", names)
        return made

    def _values(self) -> list[tuple[FieldPlan, str, bool]]:
        """Return the fields that the row has, the expression of each value, and whether that is JSON."""
        hints = get_type_hints(self._row, include_extras=True)
        values = []
        for each in field_plans(self._kind):
            source = self._sources.get(each.name, "")
            if each.extra or source is None:
                continue
            if each.form.name_of is not None:
                values.append((each, f"actor_name(row.{each.form.name_of})", False))
                continue
            if isinstance(source, RowCodec) or not callable(source):
                attribute = source if source and isinstance(source, str) else self._attribute(each)
                is_text = attribute in hints and resolve(hints[attribute])[0] is str
                values.append((each, f"row.{attribute}", is_text and not _is_text(each)))
            else:
                values.append((each, f"source_{each.name}(row)", False))
        return values

    def _attribute(self, field: FieldPlan) -> str:
        attribute = field.name
        if field.type in (datetime, timedelta):
            attribute = f"{field.name.removesuffix('_at')}_ms"
        if not hasattr(self._row, attribute) and attribute not in get_type_hints(self._row):
            raise TypeError(
                f"{self._row.__name__} has no '{attribute}' for {self._kind.__name__}.{field.name}"
            )
        return attribute

    def _json_expression(self, field: FieldPlan, value: str, is_json: bool) -> str:
        if isinstance(self._sources.get(field.name), RowCodec):
            return f"[source_{field.name}.to_json(each) for each in {value}]"
        if is_json:
            is_list = item_type(field.type) is not None and not field.form.nullable
            return f"json_from_text({value}){' or []' if is_list else ''}"
        if field.type is datetime:
            return f"instant({value})"
        if get_origin(field.type) is Mapping:
            return f"None if {value} is None else {{**{value}}}" if field.nullable else f"{{**{value}}}"
        return f"[*{value}]" if item_type(field.type) is not None else value

    def _model_expression(self, field: FieldPlan, value: str, is_json: bool) -> str:
        if isinstance(self._sources.get(field.name), RowCodec):
            return f"tuple(source_{field.name}.to_model(each) for each in {value})"
        if item_type(field.type) is not None:
            return f"tuple(json_from_text({value}) or ())" if is_json else f"tuple({value})"
        if is_json:
            return f"json_from_text({value})"
        if field.type in (datetime, timedelta):
            found = f"{'from_ms' if field.type is datetime else 'duration'}({value})"
            return f"None if {value} is None else {found}" if field.nullable else found
        if isinstance(field.type, type) and issubclass(field.type, Enum):
            return f"type_{field.name}({value})"
        return value


def _is_text(field: FieldPlan) -> bool:
    return isinstance(field.type, type) and issubclass(field.type, str | Enum)
