"""From the lines of a crontab to the documents of jobs."""

from __future__ import annotations

import shlex
from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from wakeful.cli.crontab.naming import name_of
from wakeful.cli.crontab.reader import Crontab, Entry, Remark
from wakeful.document import Defaults, read_definition
from wakeful.errors import InvalidArgument
from wakeful.job import Json
from wakeful.schedule import explain_schedule

#: The label of jobs that come from a crontab: importing it again may change these, and no others.
LABEL: Final = "imported-from"
SOURCE: Final = "crontab"
#: What cron runs a line with, where the crontab does not say.
SHELL: Final = "/bin/sh"


@dataclass(frozen=True, slots=True)
class Planned:
    """A line of the crontab, and the job that it becomes."""

    entry: Entry
    name: str
    document: dict[str, Json]
    explain: str


def plan(
    crontab: Crontab,
    *,
    target: Json,
    tz: str,
    now_ms: int,
    paused: bool = False,
    taken: Container[str] = (),
) -> tuple[list[Planned], list[Remark]]:
    """The jobs of a crontab, and the lines that cannot become one, by line.

    A job carries its line to the target; with none, the line is what is run. Names are made from the
    commands, unlike each other and those that are `taken`. `tz` is the zone of lines before which no CRON_TZ
    stands.
    """
    planned: list[Planned] = []
    refused = list(crontab.refused)
    names: set[str] = set()
    for entry in crontab.entries:
        name = name_of(entry.command, _Either(names, taken))
        document = _document(entry, name, target, tz, paused)
        try:
            timing = read_definition(document, now_ms=now_ms, defaults=Defaults()).timing
        except InvalidArgument as error:
            why = error.message.replace("\n", "; ")
            refused.append(Remark(entry.line, entry.text, why))
            continue
        assert timing is not None
        names.add(name)
        planned.append(Planned(entry, name, document, explain_schedule(timing.schedule)))
    return planned, sorted(refused, key=lambda remark: remark.line)


@dataclass(frozen=True, slots=True)
class _Either:
    one: Container[str]
    other: Container[str]

    def __contains__(self, name: object) -> bool:
        return name in self.one or name in self.other


def _document(entry: Entry, name: str, target: Json, tz: str, paused: bool) -> dict[str, Json]:
    document: dict[str, Json] = {
        "name": name,
        "schedule": entry.schedule,
        "tz": entry.tz or tz,
        "target": _command(entry) if target is None else target,
        "payload": None if target is None else _carried(entry),
        "description": f"crontab, line {entry.line}: {entry.text}",
        "labels": {LABEL: SOURCE},
    }
    return {**document, "enabled": False} if paused else document


def _command(entry: Entry) -> Json:
    """The line as cron runs it: by a shell, with the variables that were assigned before it.

    The shell sets the variables, so the operator need not allow their names in `WAKEFUL_COMMAND_ENV`.
    """
    env = dict(entry.env)
    shell = env.pop("SHELL", "") or SHELL
    line = entry.command
    if entry.stdin is not None:
        # The newline ends a comment that the line may end with.
        line = f"printf %s {shlex.quote(entry.stdin)} | {{ {line}\n}}"
    named = {name: value for name, value in env.items() if name.isascii() and name.isidentifier()}
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in named.items())
    target: dict[str, Json] = {"kind": "command", "argv": [shell, "-c", exports + line]}
    # No shell can set the other names: the server refuses the job and says which name is wrong.
    others: dict[str, Json] = {name: value for name, value in env.items() if name not in named}
    return {**target, "env": others} if others else target


def _carried(entry: Entry) -> Json:
    """What whoever runs the line needs to know."""
    payload: dict[str, Json] = {"command": entry.command}
    if entry.stdin is not None:
        payload["stdin"] = entry.stdin
    if entry.user is not None:
        payload["user"] = entry.user
    if entry.env:
        payload["env"] = dict(entry.env)
    return payload
