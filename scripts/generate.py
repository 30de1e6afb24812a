"""Rewrite the parts of files that follow from the job fields, the public model and the commands.

    python -m scripts.generate

A generated part stands between two markers: lines that contain `generated: NAME` and `generated: end`. A test
compares the files with the output, so that a stale file fails the build.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import json
import re
import textwrap
import types
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from enum import Enum
from itertools import groupby
from keyword import iskeyword
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args, get_origin

from wakeful.document.fields import DECLARED, OTHER, WORKFLOW, Field
from wakeful.document.kinds import MAX_NUMBER, MAX_TEXT
from wakeful.job.policy import Section
from wakeful.model.codec import field_plans, item_type, model_classes, resolve, resource_name
from wakeful.values.duration import LONGEST, format_duration, spell_duration

ROOT: Final = Path(__file__).parent.parent
WIDTH: Final = 110
FIELDS: Final = (OTHER[0], *DECLARED, *OTHER[1:])
#: Python options that say when and where; all others are in `JobOptions`.
_WHEN_AND_WHERE: Final = ("schedule", "tz", "target", "webhookUrl", *(field.name for field in WORKFLOW))
#: Fields that are no option: the name is an argument, and the agent is that of the client.
_ARGUMENTS: Final = ("name", "agentId")
#: The types of fields in the public model, where they are not those of their kind.
_MODEL_TYPES: Final = {
    "overlapPolicy": "OverlapPolicy",
    "catchupPolicy": "CatchupPolicy",
    "schedule": "NormalSchedule",
    "exclude": "Excluded",
    "startAt": "EpochMs",
    "endAt": "EpochMs",
}
_PART: Final = re.compile(
    r"(?P<first>^(?P<indent> *)(?:#|<!--) generated: (?P<name>[\w-]+)[^\n]*\n)(?P<body>.*?)"
    r"(?P<last>^ *(?:#|<!--) generated: end)",
    re.MULTILINE | re.DOTALL,
)


def job_options() -> Iterable[str]:
    """Return the attributes of `JobOptions` in model/job_fields.py."""
    for field in FIELDS:
        if field.name not in (*_WHEN_AND_WHERE, *_ARGUMENTS):
            yield from _option(field)


def job_fields() -> Iterable[str]:
    """Return the attributes of `JobFields` in model/job_fields.py."""
    for field in FIELDS:
        if field.name in _WHEN_AND_WHERE:
            yield from _option(field)


def model_job() -> Iterable[str]:
    """Return the attributes of `Job` in model/job.py."""
    for field in DECLARED:
        yield from _comment(field.summary)
        type_ = _MODEL_TYPES.get(field.name, field.kind.model)
        # An empty list of excluded days stands for a job without a schedule as well.
        nullable = field.nullable and field.name != "exclude"
        yield f"{field.option}: {type_}{' | None' if nullable else ''}"


def reference(section: Section) -> Iterable[str]:
    """Return the table of a section in docs/reference/job.md."""
    yield "| field | default | meaning |"
    yield "|---|---|---|"
    for field in FIELDS:
        if field.spec.section == section:
            meaning = f"{field.spec.doc} {bounds(field)}".strip().replace("|", "\\|")
            yield f"| `{field.name}` | {_default(field)} | {meaning} |"


def cli_options() -> Iterable[str]:
    """Return the table of options that are job fields in docs/reference/cli.md."""
    from wakeful.cli.document_options import option_help  # the commands need the shapes

    yield "| option | |"
    yield "|---|---|"
    for field in DECLARED:
        if field.flags:
            yield f"| {', '.join(f'`{flag}`' for flag in field.flags)} | {option_help(field)} |"


def commands() -> Iterable[str]:
    """Return the entries of cli/commands/index.py."""
    from wakeful.cli.commands import MODULES, load  # the commands need the shapes
    from wakeful.cli.help import panel, summary

    for module in MODULES:
        for shown, group in groupby(load(module).items(), lambda item: panel(item[1])):
            yield f"({json.dumps(module)}, {json.dumps(shown)}): {{"
            for name, command in group:
                key, text = (json.dumps(each, ensure_ascii=False) for each in (name, summary(command)))
                line = f"    {key}: {text},"
                fits = len(line) + 4 <= WIDTH
                yield from [line] if fits else [f"    {key}: (", f"        {text}", "    ),"]
            yield "},"


def shapes() -> Iterable[str]:
    """Return the classes of client/types.py that follow from the public model."""
    for kind in model_classes():
        summary, *_ = (inspect.getdoc(kind) or "").splitlines()
        keys = dict(_keys(kind))
        if any(map(iskeyword, keys)):
            yield from (
                "",
                "",
                f"#: {summary}",
                f"{_shape(kind)} = TypedDict(",
                f'    "{_shape(kind)}",',
                "    {",
            )
            yield from (f'        "{key}": {type_},' for key, type_ in keys.items())
            yield from ("    },", ")")
        else:
            yield from ("", "", f"class {_shape(kind)}(TypedDict):", f'    """{summary}"""', "")
            yield from (f"    {key}: {type_}" for key, type_ in keys.items())
    yield from ("", "")


def endpoints() -> Iterable[str]:
    """Return the class of client/endpoints.py, which follows from the routes."""
    from scripts import generate_client  # it imports the routes, which need the files before

    return generate_client.endpoints()


def _shape(kind: type) -> str:
    return f"{resource_name(kind) or kind.__name__}Shape"


def _keys(kind: type) -> Iterable[tuple[str, str]]:
    """Return the keys of the JSON of a class, and their types."""
    for each in field_plans(kind):
        # An object that only some calls return is left out by the others, and never null.
        nullable = each.nullable and not (each.extra and dataclasses.is_dataclass(each.type))
        type_ = _json_type(each.form.json or each.type)
        type_ += " | None" if nullable or each.form.nullable else ""
        yield each.key, f"NotRequired[{type_}]" if each.extra or each.form.optional else type_
        if each.form.also_ms:
            yield f"{each.key}Ms", f"int{' | None' if each.nullable else ''}"


def _json_type(type_: Any) -> str:
    """Return the type of a value in JSON, as source code."""
    if dataclasses.is_dataclass(type_) and type_ in model_classes():
        return _shape(cast(type, type_))
    if (item := item_type(type_)) is not None:
        inner, _, nullable = resolve(item)
        return f"list[{_json_type(inner)}{' | None' if nullable else ''}]"
    if type_ in (bool, int, float):
        return str(type_.__name__)
    if type_ is timedelta:
        return "int"
    if type_ in (str, date, datetime) or get_origin(type_) is Literal:
        return "str"
    if isinstance(type_, type) and issubclass(type_, Enum):
        return "str"
    if get_origin(type_) is collections.abc.Mapping:
        return f"dict[str, {_json_type(get_args(type_)[1])}]"
    is_json = get_origin(type_) is types.UnionType and types.NoneType in get_args(type_)
    return "Json" if is_json else "dict[str, Json]"


def bounds(field: Field) -> str:
    """Return a sentence with the bounds of a field; empty if there are none worth naming."""
    schema = field.kind.schema or {}
    words = schema.get("enum")
    if isinstance(words, list):
        return f"One of {', '.join(f'`{word}`' for word in words)}."
    low, high, longest = (schema.get(name) for name in ("minimum", "maximum", "maxLength"))
    if field.kind.form == "number" and isinstance(low, int) and isinstance(high, int):
        return f"At least {low}." if high >= MAX_NUMBER else f"From {low} to {high:,}."
    if field.kind.form == "duration" and isinstance(low, int) and isinstance(high, int):
        if high < LONGEST:
            return f"At most {spell_duration(high)}."
        return f"At least {spell_duration(low)}." if low > 1 else ""
    if field.kind.form in ("line", "text") and isinstance(longest, int) and longest > MAX_TEXT:
        return f"At most {longest:,} characters."
    return ""


PARTS: Final[dict[str, Callable[[], Iterable[str]]]] = {
    "job-options": job_options,
    "job-fields": job_fields,
    "model-job": model_job,
    "cli-options": cli_options,
    "commands": commands,
    "shapes": shapes,
    "endpoints": endpoints,
    "schedule": lambda: reference("schedule"),
    "target": lambda: reference("target"),
    "policy": lambda: reference("policy"),
    "delivery": lambda: reference("delivery"),
}
FILES: Final = (
    "src/wakeful/client/types.py",  # the commands need it
    "src/wakeful/client/endpoints.py",
    "src/wakeful/model/job_fields.py",
    "src/wakeful/model/job.py",
    "src/wakeful/cli/commands/index.py",
    "docs/reference/job.md",
    "docs/reference/cli.md",
)


def generated(text: str) -> str:
    """Return the text of a file with its generated parts rewritten."""

    def rewrite(found: re.Match[str]) -> str:
        lines = PARTS[found["name"]]()
        blank = "\n" if found["first"].lstrip().startswith("<!--") else ""
        body = "".join(f"{found['indent']}{line}\n" for line in lines)
        return f"{found['first']}{blank}{body}{blank}{found['last']}"

    return _PART.sub(rewrite, text)


def main() -> None:
    """Rewrite all files."""
    for name in FILES:
        path = ROOT / name
        path.write_text(generated(path.read_text(encoding="utf-8")), encoding="utf-8")


def _option(field: Field) -> Iterable[str]:
    yield from _comment(f"{field.summary} {_python_default(field)}".strip())
    optional = "" if field.name == "enabled" else " | None"
    type_ = field.kind.python
    yield f"{field.option}: {type_}{optional if 'None' not in type_ and type_ != 'JsonLike' else ''}"


def _comment(text: str) -> Iterable[str]:
    return textwrap.wrap(text, WIDTH - 8, initial_indent="#: ", subsequent_indent="#: ")


def _python_default(field: Field) -> str:
    if field.kind.form == "json" or field.default in (None, ""):
        return ""
    default = format_duration(field.default) if field.kind.form == "duration" else field.default
    return f"Default: {default!r}."


def _default(field: Field) -> str:
    if field.spec.default or field not in DECLARED or field.name == "schedule":
        return field.spec.default
    return f"`{json.dumps(field.kind.write(field.default))}`"


if __name__ == "__main__":
    main()
