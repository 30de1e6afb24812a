"""The schemas of the public model: they follow from the fields of its classes, and from their comments."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from functools import lru_cache
from types import ModuleType
from typing import Any, Final, Literal, cast, get_args, get_origin

from wakeful import model
from wakeful.api.http.schemas.parts import (
    ANY,
    BOOLEAN,
    ID,
    INSTANT,
    OBJECT,
    SLUG,
    TEXT,
    WHOLE,
    Schema,
    list_of,
    one_of,
    or_null,
    ref,
    response,
)
from wakeful.model import operations
from wakeful.model.codec import Form, camel_case, field_plans, items_of, resolve

#: Classes with a schema of their own name; those of other classes are written where they are used.
_NAMED: Final[dict[type, str]] = {
    model.Run: "Run",
    model.Job: "Job",
    model.Incident: "Incident",
    model.Suggestion: "Suggestion",
    model.HistoryEntry: "HistoryEntry",
    operations.Worker: "Worker",
    operations.Executor: "Executor",
    operations.Channel: "Channel",
    operations.Delivery: "Delivery",
}
_BY_FORMAT: Final[dict[str, Schema]] = {"text": TEXT, "uuid": ID, "slug": SLUG}
_BY_TYPE: Final[dict[Any, Schema]] = {
    bool: BOOLEAN,
    int: WHOLE,
    float: {"type": "number"},
    datetime: INSTANT,
    timedelta: WHOLE,
}
_FIELD: Final = re.compile(r"`([a-z]+(?:_[a-z]+)+)`")
_ONLY: Final = re.compile(r"[;,] (only|not) in .*|; only where .*")
_WORDS: Final = {"None": "null", "True": "true", "False": "false"}


def schema_of_class(
    kind: type, *extras: str, optional: Iterable[str] = (), about: str = "", others: Mapping[str, Schema] = {}
) -> Schema:
    """Return the schema of a class in a response.

    `extras` are those of its fields that only this response has; keys in `optional` may be absent; `others`
    are the schemas of keys for which the type is too wide.
    """
    docs = read_field_docs(kind)
    properties: dict[str, Schema] = {}
    for each in field_plans(kind):
        if each.extra and each.name not in extras:
            continue
        schema = others.get(each.key)
        if schema is None:
            schema = _schema_of(each.form.json or each.type, each.form)
            schema = or_null(schema) if each.nullable or each.form.nullable else schema
        described = {"description": docs[each.name]} if each.name in docs else {}
        properties[each.key] = {**schema, **described}
        if each.form.also_ms:
            properties[f"{each.key}Ms"] = or_null(WHOLE) if each.nullable else WHOLE
    summary = inspect.getdoc(kind) or ""
    return response(properties, *optional, about=about or summary.partition("\n")[0])


def _schema_of(type_: Any, form: Form) -> Schema:
    if (item := items_of(type_)) is not None:
        inner, inner_form, nullable = resolve(item)
        schema = _schema_of(inner, inner_form)
        return list_of(or_null(schema) if nullable else schema)
    if type_ is str:
        return _BY_FORMAT[form.format] if form.format in _BY_FORMAT else ref(form.format)
    if type_ in _BY_TYPE:
        return _BY_TYPE[type_]
    if get_origin(type_) is Literal:
        return one_of(*get_args(type_))
    if isinstance(type_, type) and issubclass(type_, Enum):
        return ref(type_.__name__)
    if dataclasses.is_dataclass(type_):
        return ref(_NAMED[type_]) if type_ in _NAMED else schema_of_class(cast(type, type_))
    if get_origin(type_) is Mapping:
        values = get_args(type_)[1]
        plain = values is str or values is int or dataclasses.is_dataclass(values)
        return {**OBJECT, "additionalProperties": _schema_of(values, Form())} if plain else OBJECT
    return ANY


def read_field_docs(kind: type) -> dict[str, str]:
    """Return the comments before the fields of a class (`#: …`), as sentences about its JSON."""
    module = inspect.getmodule(kind)
    assert module is not None
    return {name: _sentence(text) for name, text in _comments(module).get(kind.__name__, {}).items() if text}


@lru_cache(maxsize=16)
def _comments(module: ModuleType) -> dict[str, dict[str, str]]:
    """Return the comments before the fields of each class; none if the source is not installed."""
    try:
        source = inspect.getsource(module)
    except OSError:
        return {}
    lines = source.splitlines()
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            fields = found[node.name] = {}
            for each in node.body:
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                    fields[each.target.id] = _comment_above(lines, each.lineno - 1)
    return found


def _comment_above(lines: list[str], end: int) -> str:
    start = end
    while lines[start - 1].strip().startswith("#:"):
        start -= 1
    return " ".join(line.strip().removeprefix("#:").strip() for line in lines[start:end])


def _sentence(comment: str) -> str:
    """Return a comment about a Python attribute as a sentence about a key of the JSON."""
    text = _ONLY.sub("", comment)
    text = _FIELD.sub(lambda found: f"`{_key(found[1])}`", text)
    text = re.sub(r"\b(None|True|False)\b", lambda found: _WORDS[found[1]], text)
    return f"{text[0].upper()}{text[1:]}" + ("" if text.endswith((".", "…")) else ".")


def _key(name: str) -> str:
    fields = {each.name for kind in (model.Job, model.Run) for each in field_plans(kind)}
    return camel_case(name) if name in fields else name
