"""The work of a timer: the commands of its service."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from wakeful.cli.importers.entries import Command
from wakeful.cli.importers.systemd.spans import read_span
from wakeful.cli.importers.systemd.units import Unit, environment, split_words, substitute
from wakeful.errors import InvalidArgument
from wakeful.values.json_value import Json

_PREFIXES: Final = re.compile(r"[-@:+!|]*")
_PREFIX_NOTES: Final = {
    "-": "the prefix - is lost: a failure of this command fails the run",
    "@": "the prefix @ is lost: the program gets its path as its name",
    "+": "the prefix + is lost: the command has no extra privileges",
    "!": "the prefix ! is lost: the command has no extra privileges",
    "|": "the prefix | is lost: the command has no login shell",
}
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)")
#: Settings that are converted, or that mean nothing outside systemd.
_KNOWN: Final = frozenset(
    "ExecStart User WorkingDirectory Environment TimeoutStartSec RuntimeMaxSec Type RemainAfterExit "
    "StandardOutput StandardError SyslogIdentifier SyslogLevel".split()
)
_NOTES: Final = {
    "EnvironmentFile": "not read: a job has no files; add the variables to the job",
    "ExecStartPre": "not converted: make it a part of the command, or a precheck",
    "ExecStartPost": "not converted: make it a part of the command, or a job that runs after this one",
    "ExecCondition": "not converted: see `precheck`",
    "Restart": "not converted: `maxAttempts` and `backoff` say how often a run is tried",
}


@dataclass(frozen=True, slots=True)
class Work:
    """The command of a service, its other job fields, and notes as (setting, text)."""

    command: Command
    fields: Mapping[str, Json]
    notes: tuple[tuple[str, str], ...]


def read_service(unit: Unit) -> Work:
    """Return the work of a service, or raise InvalidArgument if it has none that can be converted."""
    notes: list[tuple[str, str]] = []
    variables = environment([_substituted(value, unit, "Environment") for value in _all(unit, "Environment")])
    lines = [_argv(text, unit, variables, notes) for text in _all(unit, "ExecStart")]
    if not lines:
        raise InvalidArgument(f"{unit.name} has no ExecStart")
    line = " && ".join(shlex.join(argv) for argv in lines)
    argv = tuple(lines[0]) if len(lines) == 1 else None
    command = Command(
        line, argv, user=unit.last("Service", "User"), cwd=_directory(unit, notes), env=variables
    )
    fields = _timeout(unit, notes)
    others = [key for key in unit.keys("Service") if key not in _KNOWN]
    notes += [(key, _NOTES[key]) for key in others if key in _NOTES]
    rest = [key for key in others if key not in _NOTES]
    if rest:
        notes.append((", ".join(rest), "not converted"))
    return Work(command, fields, tuple(notes))


def _all(unit: Unit, key: str) -> tuple[str, ...]:
    return unit.all("Service", key)


def _substituted(text: str, unit: Unit, key: str) -> str:
    replaced, unknown = substitute(text, unit.name)
    if unknown:
        raise InvalidArgument(f"{key}: systemd replaces {', '.join(unknown)}, and Wakeful does not know it")
    return replaced


def _argv(text: str, unit: Unit, variables: Mapping[str, str], notes: list[tuple[str, str]]) -> list[str]:
    found = _PREFIXES.match(text)
    prefix = found[0] if found else ""
    notes += [("ExecStart", note) for char, note in _PREFIX_NOTES.items() if char in prefix]
    words = split_words(text[len(prefix) :])
    if ";" in words:
        raise InvalidArgument("ExecStart: several commands in one line, separated by ;, are not converted")
    words = [_substituted(word, unit, "ExecStart") for word in words]
    if "@" in prefix and len(words) > 1:
        del words[1]
    if ":" not in prefix:
        words = [part for word in words for part in _expanded(word, variables, notes)]
    if not words:
        raise InvalidArgument("ExecStart: it is empty")
    return words


def _expanded(word: str, variables: Mapping[str, str], notes: list[tuple[str, str]]) -> list[str]:
    """Replace variables that the unit sets. `$NAME` as a word of its own becomes several words."""
    alone = re.fullmatch(r"\$([A-Za-z_]\w*)", word)
    if alone and alone[1] in variables:
        return split_words(variables[alone[1]])

    def replace(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name in variables and found[1]:
            return variables[name]
        notes.append(("ExecStart", f"{found[0]} is passed as it is: the unit does not set {name}"))
        return found[0]

    return [_VARIABLE.sub(replace, word.replace("$$", "\0")).replace("\0", "$")]


def _directory(unit: Unit, notes: list[tuple[str, str]]) -> str | None:
    value = unit.last("Service", "WorkingDirectory")
    if value is None:
        return None
    path = _substituted(value.removeprefix("-"), unit, "WorkingDirectory")
    if not path.startswith("/"):
        notes.append(("WorkingDirectory", f"not converted: '{path}' is not an absolute path"))
        return None
    return path


def _timeout(unit: Unit, notes: list[tuple[str, str]]) -> dict[str, Json]:
    """Return the timeout: `TimeoutStartSec` for a service of the type oneshot, else `RuntimeMaxSec`."""
    oneshot = unit.last("Service", "Type") == "oneshot"
    key = "TimeoutStartSec" if oneshot else "RuntimeMaxSec"
    other = "RuntimeMaxSec" if oneshot else "TimeoutStartSec"
    if unit.last("Service", other) is not None:
        notes.append((other, f"not converted: {key} limits the work of this service"))
    value = unit.last("Service", key)
    milliseconds = read_span(value) if value is not None else None
    return {"timeoutMs": milliseconds} if milliseconds else {}
