"""JSON values: their type, and how they are read, checked, copied, written, and shown in an error message.

An error message about a value is the rest of a line that begins with the name of its field: "it is nested
deeper than 100 levels; flatten it".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn, TypeVar, cast

from wakeful.errors import InvalidArgument
from wakeful.values.stored_text import UNSTORABLE, is_storable

T = TypeVar("T")
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

MAX_DEPTH: Final = 100
_EXACT: Final = 2**53  # every JSON parser reads integers up to this without loss


def refuse(message: str) -> NoReturn:
    """Raise InvalidArgument; the caller adds the name of the field."""
    raise InvalidArgument(message)


def quote(value: object) -> str:
    """Return a value as it appears in an error message: short, and in the notation of JSON.

    >>> quote("daily"), quote(True), quote(None), quote([1])
    ("'daily'", 'true', 'null', '[1]')
    """
    if isinstance(value, str):
        return f"'{value[:64]}'" if value[:64].isprintable() else repr(value[:64])
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    try:
        return repr(value)[:64]
    except ValueError:
        return "a number too long to print"
    except RecursionError:
        return "a value that is nested too deeply"


def list_choices(words: Iterable[str]) -> str:
    """Return the words as a choice.

    >>> list_choices(["first", "second", "both"])
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
        name = camel(key) if isinstance(key, str) else refuse(f"{quote(key)} is not a name; a name is text")
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
        refuse(f"{quote(value)} is not an object with fields; write one, or leave the field out")
    copied = json_value(value, longest)
    assert isinstance(copied, dict)
    return copied


def is_deeper(value: object, levels: int) -> bool:
    """Return whether a value has lists and objects in more than so many levels.

    >>> is_deeper([{"a": []}], 3), is_deeper([{"a": []}], 2)
    (False, True)
    """
    level: list[object] = [value]
    for _ in range(levels):
        inner: list[object] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        level = [each for each in inner if isinstance(each, dict | list)]
        if not level:
            return False
    return True


def json_value(value: object, longest: int | None) -> Json:
    """Return a copy of any JSON value of at most this many bytes; tuples become lists."""
    if _plain(value, 0):
        if longest is None:
            return _copy_plain(cast(Json, value))
        text = compact(cast(Json, value))
        _check_size(text, longest)
        plain: Json = json_from_stored(text)
        return plain
    copied = _copy(value, "", 0)
    if longest is not None:
        _check_size(compact(copied), longest)
    return copied


def json_from_stored(text: str) -> Any:
    """Return the value of JSON text as `json.loads` does, in a third of the time if it is `compact`.

    >>> json_from_stored('{"to":["Zoë"]}'), json_from_stored(" 1 ")
    ({'to': ['Zoë']}, 1)
    """
    try:
        value, end = _SCAN(text, 0)
    except (StopIteration, ValueError):
        return json.loads(text)
    return value if end == len(text) else json.loads(text)


_SCAN: Final[Callable[[str, int], tuple[Any, int]]] = cast(Any, json.JSONDecoder()).scan_once


def json_text(value: object, longest: int | None) -> str:
    """Return the value as compact JSON text of at most this many bytes."""
    text = compact(cast(Json, value) if _plain(value, 0) else _copy(value, "", 0))
    _check_size(text, longest)
    return text


def compact(value: Json, *, sort: bool = False) -> str:
    """Return JSON text without spaces.

    >>> compact({"to": ["Zoë"]})
    '{"to":["Zoë"]}'
    """
    if _WRITE is None or sort:
        return (_SORTED if sort else _COMPACT).encode(value)
    try:
        return "".join(_WRITE(value, 0))
    except RecursionError:
        return _COMPACT.encode(value)  # which names a circular reference


_COMPACT: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_SORTED: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)


def _writer(encoder: json.JSONEncoder) -> Callable[[Json, int], Iterable[str]] | None:
    """Return what `encoder.encode` creates anew in each call, if the interpreter has it.

    This saves more than half of the time for a small value.
    """
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return None
    writer: Callable[[Json, int], Iterable[str]] = make(
        None, encoder.default, json.encoder.encode_basestring, None, encoder.key_separator,
        encoder.item_separator, encoder.sort_keys, encoder.skipkeys, encoder.allow_nan,
    )  # fmt: skip
    return writer


_WRITE: Final = _writer(_COMPACT)


def _copy_plain(value: Json) -> Json:
    """Return a copy of a value for which `_plain` is true."""
    if type(value) is dict:
        return {key: _copy_plain(item) for key, item in value.items()}
    return [_copy_plain(item) for item in value] if type(value) is list else value


def _plain(value: object, depth: int) -> bool:
    """Return whether a value is valid JSON as it is, by a fast check; False means that `_copy` decides."""
    kind = type(value)
    if kind is str:
        return cast(str, value).isascii()
    if value is None or kind is bool:
        return True
    if kind is int:
        return -_EXACT < cast(int, value) < _EXACT
    if kind is dict and depth < MAX_DEPTH:
        for key, item in cast(dict[object, object], value).items():
            if type(key) is not str or not key.isascii() or not _plain(item, depth + 1):
                return False
        return True
    if kind is list and depth < MAX_DEPTH:
        return all(_plain(item, depth + 1) for item in cast(list[object], value))
    return kind is float and math.isfinite(cast(float, value))


def _check_size(text: str, longest: int | None) -> None:
    if longest is not None and len(text) * 4 > longest:  # a character has at most four bytes
        size = len(text.encode())
        if size > longest:
            refuse(f"it has {size} bytes as JSON; at most {longest}: store large data elsewhere and link it")


def _copy(value: object, path: str, depth: int) -> Json:
    at = f"{path[1:65]}: " if path else ""
    if depth > MAX_DEPTH:
        refuse(f"it is nested deeper than {MAX_DEPTH} levels; flatten it")
    match value:
        case None | bool():
            return value
        case str():
            if not _encodes(value):
                refuse(f"{at}a text has half of a surrogate pair, which is not valid Unicode; remove it")
            return value
        case int():
            if value.bit_length() > 1023:
                refuse(f"{at}a number is too large for JSON; give it as text")
            return value
        case float():
            if not math.isfinite(value):
                refuse(f"{at}{value} is not a number in JSON; give null or text")
            return value
        case Mapping():
            for key in value:
                if not isinstance(key, str):
                    refuse(f"{at}the name {quote(key)} is not text, which JSON requires")
            return {
                str(_copy(key, path, depth)): _copy(item, f"{path}.{key}", depth + 1)
                for key, item in value.items()
            }
        case list() | tuple():
            return [_copy(item, f"{path}.{index}", depth + 1) for index, item in enumerate(value)]
    refuse(f"{at}{type(value).__name__} is not JSON; use text, numbers, true, false, null, lists, objects")


def _encodes(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
