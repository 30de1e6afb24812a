"""Turn the lines of a crontab into job documents."""

from __future__ import annotations

import shlex
from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from wakeful.cli.crontab.naming import name_of
from wakeful.cli.crontab.reader import Crontab, Entry, Remark
from wakeful.document import Defaults, read_definition
from wakeful.errors import InvalidArgument
from wakeful.json_value import Json
from wakeful.schedule import explain_schedule

#: The label of imported jobs: importing again may change only these.
LABEL: Final = "imported-from"
SOURCE: Final = "crontab"
#: The shell that cron runs a line with, unless the crontab sets SHELL.
SHELL: Final = "/bin/sh"


@dataclass(frozen=True, slots=True)
class Planned:
    """A line of the crontab and the job made from it."""

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
    """Return the jobs of a crontab, and the lines that cannot become one, in line order.

    The line is the payload for `target`; without a target, the job runs the line as a command. Names come
    from the commands, are unique and not in `taken`. `tz` applies to lines that no CRON_TZ precedes.
    """
    planned: list[Planned] = []
    refused = list(crontab.refused)
    names: set[str] = set()
    for entry in crontab.entries:
        name = name_of(entry.command, _Union(names, taken))
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
class _Union:
    first: Container[str]
    second: Container[str]

    def __contains__(self, name: object) -> bool:
        return name in self.first or name in self.second


def _document(entry: Entry, name: str, target: Json, tz: str, paused: bool) -> dict[str, Json]:
    document: dict[str, Json] = {
        "name": name,
        "schedule": entry.schedule,
        "tz": entry.tz or tz,
        "target": _command(entry) if target is None else target,
        "payload": None if target is None else _payload(entry),
        "description": f"crontab, line {entry.line}: {entry.text}",
        "labels": {LABEL: SOURCE},
    }
    return {**document, "enabled": False} if paused else document


def _command(entry: Entry) -> Json:
    """Return a command target that runs the line as cron does: in a shell, with the variables set before it.

    The shell sets the variables, so `WAKEFUL_COMMAND_ENV` does not have to allow them.
    """
    env = dict(entry.env)
    shell = env.pop("SHELL", "") or SHELL
    line = entry.command
    if entry.stdin is not None:
        # The newline ends a comment at the end of the line.
        line = f"printf %s {shlex.quote(entry.stdin)} | {{ {line}\n}}"
    named = {name: value for name, value in env.items() if name.isascii() and name.isidentifier()}
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in named.items())
    target: dict[str, Json] = {"kind": "command", "argv": [shell, "-c", exports + line]}
    # A shell cannot set the other names; the server refuses the job and names them.
    others: dict[str, Json] = {name: value for name, value in env.items() if name not in named}
    return {**target, "env": others} if others else target


def _payload(entry: Entry) -> Json:
    """Return what an executor needs to run the line."""
    payload: dict[str, Json] = {"command": entry.command}
    if entry.stdin is not None:
        payload["stdin"] = entry.stdin
    if entry.user is not None:
        payload["user"] = entry.user
    if entry.env:
        payload["env"] = dict(entry.env)
    return payload
