"""The schemas of the public model: they follow from the fields of its classes, and from their comments."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from enum import Enum
from functools import lru_cache
from types import ModuleType
from typing import Any, Final, Literal, cast, get_args, get_origin

from wakeful import model
from wakeful.api.http.schemas.parts import (
    ADDRESS,
    ANY,
    BOOLEAN,
    ID,
    INSTANCE,
    INSTANT,
    LANE_WEIGHT,
    MAY,
    NORMAL_SCHEDULE,
    OBJECT,
    SECRET,
    SLUG,
    SPENT,
    TEXT,
    WARNINGS,
    WHOLE,
    Schema,
    list_of,
    one_of,
    or_null,
    ref,
    response,
)
from wakeful.model.codec import (
    Form,
    camel_case,
    field_plans,
    item_type,
    model_classes,
    resolve,
    resource_name,
)

#: The schemas of formats; another format is the name of a schema.
_BY_FORMAT: Final[dict[str, Schema]] = {
    "text": TEXT,
    "uuid": ID,
    "slug": SLUG,
    "instance": INSTANCE,
    "amount": {"type": "number", "minimum": 0},
    "local": {
        "type": "string",
        "format": "date-time",
        "description": "ISO 8601, in the zone of the schedule.",
    },
    "offset": {"type": "string", "examples": ["+02:00"]},
    "schedule": NORMAL_SCHEDULE,
    "address": ADDRESS,
    "lane_weight": LANE_WEIGHT,
    "spent": SPENT,
    "secret": SECRET,
    "warnings": WARNINGS,
    "may": MAY,
}
_BY_TYPE: Final[dict[Any, Schema]] = {
    bool: BOOLEAN,
    int: WHOLE,
    float: {"type": "number"},
    date: {"type": "string", "format": "date"},
    datetime: INSTANT,
    timedelta: WHOLE,
}
_FIELD: Final = re.compile(r"`([a-z]+(?:_[a-z]+)+)`")
_ONLY: Final = re.compile(r"[;,] (only|not) in .*|; only where .*")
_WORDS: Final = {"None": "null", "True": "true", "False": "false"}


def resource_schemas() -> dict[str, Schema]:
    """Return the schema of each resource by its name."""
    return {name: schema_of_class(kind) for kind in model_classes() if (name := resource_name(kind))}


def schema_of_class(
    kind: type, *extras: str, optional: Iterable[str] = (), about: str = "", others: Mapping[str, Schema] = {}
) -> Schema:
    """Return the schema of a class in a response.

    `extras` are those of its fields that only this response has; keys in `optional` may be absent; `others`
    are the schemas of keys for which the type is too wide.
    """
    docs = read_field_docs(kind)
    optional = {*optional, *(each.key for each in field_plans(kind) if each.form.optional)}
    properties: dict[str, Schema] = {}
    for each in field_plans(kind):
        if each.extra and not each.form.optional and each.name not in extras:
            continue
        schema = others.get(each.key)
        if schema is None:
            schema = _schema_of(each.form.json or each.type, each.form)
            nullable = each.nullable and not each.form.optional and not (each.extra and each.key in optional)
            schema = or_null(schema) if nullable or each.form.nullable else schema
        described = {"description": docs[each.name]} if each.name in docs else {}
        properties[each.key] = {**schema, **described}
        if each.form.also_ms:
            properties[f"{each.key}Ms"] = or_null(WHOLE) if each.nullable else WHOLE
    summary = inspect.getdoc(kind) or ""
    return response(properties, *optional, about=about or summary.partition("\n")[0])


def _schema_of(type_: Any, form: Form) -> Schema:
    if (item := item_type(type_)) is not None and form.format == "text":
        inner, inner_form, nullable = resolve(item)
        schema = _schema_of(inner, inner_form)
        return list_of(or_null(schema) if nullable else schema)
    if type_ is str or form.format != "text":
        return _BY_FORMAT[form.format] if form.format in _BY_FORMAT else ref(form.format)
    if type_ in _BY_TYPE:
        return _BY_TYPE[type_]
    if get_origin(type_) is Literal:
        return one_of(*get_args(type_))
    if isinstance(type_, type) and issubclass(type_, Enum):
        return ref(type_.__name__)
    if dataclasses.is_dataclass(type_):
        name = resource_name(cast(type, type_))
        return ref(name) if name else schema_of_class(cast(type, type_))
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
