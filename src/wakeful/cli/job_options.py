"""The options of `wakeful add` that follow from the declarations of job fields."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Annotated, Any, Final, cast

import typer

from wakeful.document.fields import DECLARED, Field
from wakeful.values.json_value import Json

_PANELS: Final = {"policy": "Policies", "delivery": "Delivery"}
_FIELDS: Final = tuple(field for field in DECLARED if field.flags)


def job_options() -> list[inspect.Parameter]:
    """Return a parameter for each job field that has flags."""
    return [
        inspect.Parameter(
            field.option, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(field)
        )
        for field in _FIELDS
    ]


def job_fields(values: Mapping[str, object]) -> dict[str, Json]:
    """Return the values of these options as fields of a job document.

    >>> job_fields({"max_attempts": 3, "timeout": "30s"})
    {'maxAttempts': 3, 'timeout': '30s'}
    >>> job_fields({"start_at": "1800000000000", "end_at": "2030-01-01T00:00"})
    {'startAt': 1800000000000, 'endAt': '2030-01-01T00:00'}
    """
    return {
        field.duration_name or field.name: _value(field, values[field.option])
        for field in _FIELDS
        if values.get(field.option) is not None
    }


def _value(field: Field, value: object) -> Json:
    if field.kind.form == "instant" and isinstance(value, str) and value.isdecimal():
        return int(value)  # milliseconds
    return cast(Json, value)


def option_help(field: Field) -> str:
    """Return the help of the option of a field.

    >>> [option_help(field) for field in DECLARED if field.name == "onLost"]
    ['what happens to a run whose worker died: retry, fail']
    """
    text = field.summary.replace("`", "").removesuffix(".")
    text = text[0].lower() + text[1:]
    schema = field.kind.schema or {}
    words = schema.get("enum")
    if isinstance(words, list):
        return f"{text}: {', '.join(str(word) for word in words)}"
    return f"{text}, such as 30s" if field.kind.form == "duration" else text


def _annotation(field: Field) -> object:
    types: dict[str, Any] = {"flag": bool | None, "number": int | None}
    option = typer.Option(
        *field.flags, rich_help_panel=_PANELS.get(field.spec.section), help=option_help(field)
    )
    return Annotated[types.get(field.kind.form, str | None), option]
