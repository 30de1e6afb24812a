"""The options of `add` and `edit` for the document of a job: schedule, target, payload, labels, any field.

Most follow from the declarations of job fields.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Mapping
from typing import Annotated, Any, Final, cast

import typer

from wakeful.cli.arguments import Payload, Target, json_argument, split_pair
from wakeful.document.fields import DECLARED, Field
from wakeful.errors import InvalidArgument
from wakeful.values.json_value import Json

_PANELS: Final = {"policy": "Policies", "delivery": "Delivery"}
_FIELDS: Final = tuple(field for field in DECLARED if field.flags)
#: Words that only a shell interprets.
_SHELL: Final = {"|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1"}

_OPTIONS: Final[dict[str, object]] = {
    "schedule": Annotated[
        str | None,
        typer.Option("--schedule", "-s", help="'0 9 * * 1-5', 'every weekday at 9:00', 'every 15m', a time"),
    ],
    "tz": Annotated[str | None, typer.Option("--tz", help="an IANA zone such as Europe/Berlin")],
    "url": Annotated[str | None, typer.Option("--url", help="call this webhook")],
    "function": Annotated[
        str | None, typer.Option("--function", help="run the Python function of this name")
    ],
    "program": Annotated[
        str | None, typer.Option("--command", help="run this program on the server, which must allow it")
    ],
    "target": Target,
    "payload": Payload,
    "label": Annotated[
        list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="a label; may be repeated")
    ],
    "field": Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=JSON",
            help="any other field, as in budget='{\"tokensPerDay\": 9000}'",
        ),
    ],
}


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
        field.duration_name or field.name: _field_value(field, values[field.option])
        for field in _FIELDS
        if values.get(field.option) is not None
    }


def _field_value(field: Field, value: object) -> Json:
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


def document_options() -> list[inspect.Parameter]:
    """Return a parameter for each option."""
    own = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _OPTIONS.items()
    ]
    return [*own, *job_options()]


async def read_document(options: Mapping[str, object]) -> dict[str, Json]:
    """Return the fields of a job document that these options give. `--set FIELD=null` gives a null."""
    text = {name: cast(str | None, options.get(name)) for name in _OPTIONS}
    labels = cast(list[str], options.get("label") or [])
    document: dict[str, Json] = {
        "schedule": text["schedule"],
        "tz": text["tz"],
        "webhookUrl": text["url"],
        "target": _target(text["function"], text["program"], await json_argument("--target", text["target"])),
        "payload": await json_argument("--payload", text["payload"]),
        "labels": dict(split_pair("--label", each) for each in labels) if labels else None,
        **job_fields(options),
    }
    document = {key: value for key, value in document.items() if value is not None}
    for each in cast(list[str], options.get("field") or []):
        key, value = split_pair("--set", each)
        document[key] = await json_argument(f"--set {key}", value)
    return document


def _target(function: str | None, program: str | None, target: Json) -> Json:
    targets = {"--function": function, "--command": program, "--target": target}
    named = [option for option, value in targets.items() if value is not None]
    if len(named) > 1:
        raise InvalidArgument(f"{' and '.join(named)} are {len(named)} targets; give one of them")
    if function is not None:
        return {"kind": "function", "name": function}
    return target if program is None else {"kind": "command", "argv": [*_split(program)]}


def _split(program: str) -> list[str]:
    """Return the words of a command, split as in a shell; refuse words that only a shell interprets.

    >>> _split("rsync -a '/my files' /b")
    ['rsync', '-a', '/my files', '/b']
    """
    try:
        words = shlex.split(program)
    except ValueError as error:
        raise InvalidArgument(f"--command: {error}; close the quotation, or use --target") from error
    if not words:
        raise InvalidArgument("--command: it is empty; write a program, as in --command 'rsync -a /a /b'")
    shell = sorted(_SHELL.intersection(words))
    if shell:
        raise InvalidArgument(
            f"--command: it runs without a shell, so {shell[0]} would be an argument; start a shell, as in "
            "--command \"/bin/sh -c 'a | b'\", or use --target"
        )
    return words
