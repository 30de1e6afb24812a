"""A job as text that creates it: YAML for `wakeful apply`, curl, `wakeful add` and Python.

Values are quoted for their language, so that a copied text does nothing but create the job: a shell expands
nothing in it, and characters that a terminal or a reader could misinterpret are escaped. A document of the
largest size takes seconds, so large ones are written in a thread. It is the only one: texts wait for each
other, and hold up nothing else.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import quote

from wakeful.document import Defaults
from wakeful.document.definition import DEFINITION, default_fields, instant_text, schedule_text
from wakeful.document.fields import DECLARED, OTHER, Field
from wakeful.errors import InvalidArgument
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import Accounts
from wakeful.values.duration import format_duration
from wakeful.values.json_value import Json, compact, json_value

#: The first fields of a text; the others follow in the order of their declarations.
_FIRST: Final = ("name", "description", "schedule", "after", "tz", "target", "message", "payload")
_SHORT_TARGETS: Final = ("webhookUrl", "workflowId", "version", "userId")
_DURATIONS: Final = {field.name: field.duration_name for field in DECLARED if field.duration_name}
_FIELDS: Final = {field.duration_name or field.name: field for field in (*OTHER, *DECLARED)}
_INSTANTS: Final = tuple(field.name for field in DECLARED if field.kind.form == "instant")
#: Characters that a terminal interprets, or that change the order in which text is displayed.
_CONTROL: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_INDENT: Final = " " * 4
_WIDTH: Final = 100
#: The name in a text while a job has none.
_UNNAMED: Final = "my-job"

#: A document of so many characters is written in a few milliseconds.
_SMALL: Final = 1_024
_thread: Final = ThreadPoolExecutor(1, "job-texts")


class Snippets(NamedTuple):
    """The texts that create a job."""

    #: a file for `wakeful apply`
    yaml: str
    curl: str
    #: `wakeful add`
    cli: str
    python: str


def snippets(
    document: Mapping[str, Json],
    workspace: str,
    agent: str,
    base_url: str,
    defaults: Defaults | None = None,
) -> Snippets:
    """Return the texts that create the job of a document, or of a job as the API returns it.

    `base_url` is the address of the server. `defaults` are those of the operator: values equal to them are
    left out. The key is not in the texts: curl and Python read it from `WAKEFUL_KEY`.

    >>> print(snippets({"name": "tidy", "schedule": "every 1h"}, "default", "default", "http://a").cli)
    wakeful add tidy \\
      --schedule='every 1h' \\
      --server=http://a
    """
    fields = minimal(document, defaults)
    return Snippets(
        _yaml(fields, workspace, agent, base_url),
        _curl(fields, workspace, agent, base_url),
        _cli(fields, workspace, agent, base_url),
        _python(fields, workspace, agent, base_url),
    )


def minimal(document: Mapping[str, Json], defaults: Defaults | None = None) -> dict[str, Json]:
    """Return a document without defaults, with schedules, durations and instants as people write them.

    >>> minimal({"name": "a", "schedule": {"kind": "every", "everyMs": 60000}, "timeoutMs": 90000, "id": "1"})
    {'name': 'a', 'schedule': 'every 1m', 'timeout': '1m30s'}
    """
    tz = str(document.get("tz") or "UTC")
    schedule = document.get("schedule", document.get("cron"))
    if isinstance(schedule, dict):
        schedule = _readable(partial(schedule_text, schedule, tz), schedule)
    known: dict[str, Json] = {**default_fields(defaults), "name": None, "schedule": None, "tz": None}
    known["deleteAfterRun"] = isinstance(schedule, str) and _is_once(schedule)
    given = {**document, "name": document.get("name") or _UNNAMED, "schedule": schedule}
    names = [*_FIRST, *(name for name in DEFINITION if name not in _FIRST)]
    if given.get("target") is None:
        names += _SHORT_TARGETS
    found: dict[str, Json] = {}
    for name in names:
        value, short = given.get(name), _DURATIONS.get(name)
        if value is None and short is not None and given.get(short) is not None:
            found[short] = given[short]
        elif value is None or _same(value, known.get(name)):
            continue
        elif short is not None and isinstance(value, int):
            found[short] = format_duration(value)
        elif name in _INSTANTS and isinstance(value, int):
            found[name] = _readable(partial(instant_text, value, tz), value)
        else:
            found[name] = value
    if document.get("enabled") is False:
        found["enabled"] = False
    return found


def _readable(write: Callable[[], Json], value: Json) -> Json:
    """Return what `write` returns, or the value itself: the document of a form may not be valid yet."""
    try:
        return write()
    except (ValueError, OverflowError, LookupError, OSError):  # an unknown zone, or beyond all times
        return value


def _is_once(schedule: str) -> bool:
    """Return whether the text of a schedule is one instant, whose job is deleted by default."""
    return re.match(r"\s*(in\s|[0-9]{4}-?[0-9]{2})", schedule, re.IGNORECASE) is not None


def _same(value: Json, default: Json) -> bool:
    # In Python 1 equals true; in JSON it does not.
    return value == default and repr(value) == repr(default)


def _yaml(fields: Mapping[str, Json], workspace: str, agent: str, base_url: str) -> str:
    options = " ".join(_shell_options(workspace, None, base_url))
    from wakeful.values.yaml_text import dump_yaml  # imports yaml, which takes long

    # `dump_yaml` writes text with such characters in double quotes, where they may be escaped.
    return f"# wakeful apply FILE {options}\n" + _escape(dump_yaml({"agent": agent, "jobs": [dict(fields)]}))


def _curl(fields: Mapping[str, Json], workspace: str, agent: str, base_url: str) -> str:
    path = f"/api/workspaces/{quote(workspace, safe='')}/agents/{quote(agent, safe='')}/jobs"
    body = _escape(json.dumps(dict(fields), indent=2, ensure_ascii=False))
    return (
        f"curl -sS --fail-with-body -X POST {shlex.quote(base_url.rstrip('/') + path)} \\\n"
        "  -H \"Authorization: Bearer $WAKEFUL_KEY\" -H 'Content-Type: application/json' \\\n"
        f"  --data-binary {shlex.quote(body)}"
    )


def _cli(fields: Mapping[str, Json], workspace: str, agent: str, base_url: str) -> str:
    rest = dict(fields)
    words = [f"wakeful add {_shell(str(rest.pop('name')))}", *_cli_options(rest)]
    return " \\\n  ".join([*words, *_shell_options(workspace, agent, base_url)])


def _shell_options(workspace: str, agent: str | None, base_url: str) -> Iterator[str]:
    if agent is not None and agent != "default":
        yield _option("--agent", agent)
    if workspace != "default":
        yield _option("--workspace", workspace)
    yield _option("--server", base_url)


def _cli_options(fields: dict[str, Json]) -> Iterator[str]:
    for name, value in fields.items():
        field = _FIELDS.get(name)
        match name, value:
            case "schedule" | "tz", str(text):
                yield _option(f"--{name}", text)
            case "webhookUrl", str(url):
                yield _option("--url", url)
            case "target", {"kind": "webhook", "url": str(url), **other} if not other:
                yield _option("--url", url)
            case "target", {"kind": "function", "name": str(function), **other} if not other:
                yield _option("--function", function)
            case "target" | "payload", _:
                yield _option(f"--{name}", _json(value))
            case "labels", dict(labels) if not any("=" in label for label in labels):
                yield from (_option("--label", f"{label}={text}") for label, text in labels.items())
            case "enabled", False:
                yield "--paused"
            case _ if field is not None and (flag := _flag(field, value)) is not None:
                yield flag
            case _:
                yield _option("--set", f"{name}={_json(value)}")


def _flag(field: Field, value: Json) -> str | None:
    """Return the flag of a field with this value; None if the field or the value has none."""
    if not field.flags or field not in DECLARED:
        return None
    match field.kind.form, value:
        case "flag", True:
            return field.flags[0]
        case "number", int(number) if not isinstance(number, bool):
            return _option(field.flags[0], str(number))
        case "duration" | "choice" | "slug" | "line" | "text" | "instant", str(text):
            return _option(field.flags[0], text)
    return None


def _option(name: str, value: str) -> str:
    """Return an option with its value in one word, so that a value with a leading hyphen is not an option."""
    return f"{name}={_shell(value)}"


def _shell(text: str) -> str:
    r"""Return one word of a shell. Control characters are escaped, because terminals interpret them.

    >>> print(_shell("it's"), _shell("a\x1bb"))
    'it'"'"'s' $'a\x1bb'
    """
    if not _CONTROL.search(text):
        return shlex.quote(text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    # As bytes, because `\u` depends on the locale of the shell.
    return (
        "$'"
        + _CONTROL.sub(lambda found: "".join(f"\\x{byte:02x}" for byte in found[0].encode()), escaped)
        + "'"
    )


def _escape(text: str) -> str:
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


def _python(fields: Mapping[str, Json], workspace: str, agent: str, base_url: str) -> str:
    rest = dict(fields)
    name = _literal(rest.pop("name"), 2)
    scope = "".join(
        f", {option}={_literal(value, 2)}"
        for option, value in (("workspace", workspace), ("agent", agent))
        if value != "default"
    )
    arguments = [_INDENT * 2 + name + ","]
    for field, value in rest.items():
        option = _FIELDS[field].option if field in _FIELDS else field
        arguments.append(f"{_INDENT * 2}{option}={_literal(value, 2)},")
    return "\n".join(
        (
            "from wakeful import Client",
            "",
            f"with Client({_literal(base_url, 2)}{scope}) as client:  # the key is in WAKEFUL_KEY",
            f"{_INDENT}client.jobs.create(",
            *arguments,
            f"{_INDENT})",
        )
    )


def _literal(value: Json, depth: int) -> str:
    """Return a value as Python, on several lines if it is long."""
    if isinstance(value, str):  # a JSON string is a Python string, too
        return _escape(_json(value))
    if not isinstance(value, dict | list):
        return repr(value)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    if isinstance(value, dict):
        items = [f"{_literal(key, depth + 1)}: {_literal(item, depth + 1)}" for key, item in value.items()]
    else:
        items = [_literal(item, depth + 1) for item in value]
    line = f"{opening}{', '.join(items)}{closing}"
    if not items or (len(line) + len(_INDENT) * depth <= _WIDTH and "\n" not in line):
        return line
    inner = "".join(f"{_INDENT * (depth + 1)}{item},\n" for item in items)
    return f"{opening}\n{inner}{_INDENT * depth}{closing}"


class JobTexts:
    """Writes jobs as YAML, curl, CLI and Python."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    async def write(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        document: Mapping[str, object],
        base_url: str,
    ) -> Snippets:
        """Return the texts that create the job of a document, which need not be valid yet."""
        await self._accounts.authorize(principal, "read", workspace, agent)
        content = json_value(document, None)
        if not isinstance(content, dict):
            raise InvalidArgument("a job is an object with a name and a schedule")
        return await write_texts(content, workspace, agent, base_url, self._accounts.defaults)


async def write_texts(
    document: Mapping[str, Json], workspace: str, agent: str, base_url: str, defaults: Defaults
) -> Snippets:
    """Return the texts that create the job of a document; a large one is written off the event loop."""
    write = partial(snippets, document, workspace, agent, base_url, defaults)
    if len(compact(dict(document))) <= _SMALL:
        return write()
    return await asyncio.get_running_loop().run_in_executor(_thread, write)
