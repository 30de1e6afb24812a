"""Read unit files of systemd, and the commands of services.

A unit file has sections with `Key=value` lines, and drop-ins that change them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from wakeful.cli.importers.entries import ImportedCommand
from wakeful.cli.importers.systemd_calendar import read_span
from wakeful.errors import InvalidArgument
from wakeful.values.json_value import Json

_ESCAPES: Final = {"n": "\n", "t": "\t", "s": " ", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_NUMBER: Final = re.compile(r"x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})")
#: The keys of a timer that are one list: an empty value of one of them resets all.
_ELAPSES: Final = tuple(
    "OnCalendar OnActiveSec OnBootSec OnStartupSec OnUnitActiveSec OnUnitInactiveSec".split()
)
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
_SERVICE_KEYS: Final = frozenset(
    "ExecStart User WorkingDirectory Environment TimeoutStartSec RuntimeMaxSec Type RemainAfterExit "
    "StandardOutput StandardError SyslogIdentifier SyslogLevel".split()
)
_SERVICE_NOTES: Final = {
    "EnvironmentFile": "not read: a job has no files; add the variables to the job",
    "ExecStartPre": "not converted: make it a part of the command, or a precheck",
    "ExecStartPost": "not converted: make it a part of the command, or a job that runs after this one",
    "ExecCondition": "not converted: see `precheck`",
    "Restart": "not converted: `maxAttempts` and `backoff` say how often a run is tried",
}


_CONDITION_NOTE: Final = "not converted: it runs whether this holds or not; see `precheck`"
_CHAIN_NOTE: Final = "not converted: see `alerts`, and `after` of a job"


@dataclass(frozen=True, slots=True)
class UnitFile:
    """A unit file and its drop-ins, in the order in which they apply."""

    #: such as `backup.timer`
    name: str
    path: str
    text: str
    drop_ins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unit:
    """The settings of a unit."""

    name: str
    #: all values of (section, key), in order; an empty value resets those before it
    settings: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    def all(self, section: str, key: str) -> tuple[str, ...]:
        """Return all values of a key."""
        return self.settings.get((section, key), ())

    def last(self, section: str, key: str) -> str | None:
        """Return the value of a key that may be set once: the last one."""
        values = self.all(section, key)
        return values[-1] if values else None

    def keys(self, section: str) -> list[str]:
        """Return the keys of a section that have a value, in order."""
        return [key for name, key in self.settings if name == section]


def read_unit(file: UnitFile) -> Unit:
    """Read a unit file and its drop-ins.

    >>> unit = read_unit(UnitFile("a.timer", "", "[Timer]\\nOnCalendar=daily", ("[Timer]\\nOnCalendar=\\n",)))
    >>> unit.all("Timer", "OnCalendar")
    ()
    """
    settings: dict[tuple[str, str], tuple[str, ...]] = {}
    for text in (file.text, *file.drop_ins):
        section = ""
        for line in _logical_lines(text):
            if line.startswith("[") and line.endswith("]"):
                section = line[1:-1]
                continue
            key, equals, value = line.partition("=")
            if not equals:
                continue
            where = (section, key.strip())
            if not value.strip():
                for name in _ELAPSES if where[1] in _ELAPSES else (where[1],):
                    settings.pop((section, name), None)
                continue
            values = settings.pop(where, ())  # a key keeps the order of its last assignment
            settings[where] = (*values, value.strip())
    return Unit(file.name, settings)


def _logical_lines(text: str) -> Iterable[str]:
    """Return the lines without comments; a line that ends with a backslash continues."""
    pending = ""
    for raw in text.removeprefix("\ufeff").splitlines():
        line = raw.strip()
        if line.startswith(("#", ";")) or (not line and not pending):
            continue
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        yield (pending + line).strip()
        pending = ""
    if pending.strip():
        yield pending.strip()


def split_words(text: str) -> list[str]:
    """Split a value into words as systemd does: quotes group words, and a backslash begins an escape.

    >>> split_words("A=1 'B=two words' \\"C=x\\\\x20y\\"")
    ['A=1', 'B=two words', 'C=x y']
    """
    words: list[str] = []
    word, started, quote, at = "", False, "", 0
    while at < len(text):
        char = text[at]
        if char == "\\" and at + 1 < len(text):
            decoded, length = _escape(text[at + 1 :])
            word, started, at = word + decoded, True, at + 1 + length
            continue
        if quote:
            quote, word = ("", word) if char == quote else (quote, word + char)
        elif char in "'\"":
            quote, started = char, True
        elif char.isspace():
            if started:
                words.append(word)
            word, started = "", False
        else:
            word, started = word + char, True
        at += 1
    return [*words, word] if started else words


def _escape(rest: str) -> tuple[str, int]:
    number = _NUMBER.match(rest)
    if number is not None:
        digits = number[1] or number[3]
        return chr(int(digits, 16) if digits else int(number[2], 8)), number.end()
    return _ESCAPES.get(rest[0], rest[0]), 1


def split_instance(name: str) -> tuple[str, str | None]:
    """Return the prefix of a unit and its instance; the instance of a template is ''.

    >>> split_instance("backup@home.timer"), split_instance("backup@.timer"), split_instance("backup.timer")
    (('backup', 'home'), ('backup', ''), ('backup', None))
    """
    stem = name.rpartition(".")[0]
    prefix, at, instance = stem.partition("@")
    return prefix, instance if at else None


def unescape(name: str) -> str:
    """Return a path or text that is escaped in the name of a unit."""
    marked = re.sub(r"\\x([0-9a-fA-F]{2})", lambda found: f"\0{found[1]}", name).replace("-", "/")
    plain = marked.encode(errors="surrogateescape")  # the name of a file may have any bytes
    return re.sub(rb"\0(..)", lambda found: bytes([int(found[1], 16)]), plain).decode(errors="replace")


def substitute(text: str, name: str) -> tuple[str, list[str]]:
    """Replace the specifiers of a unit's name; also return those that depend on the machine.

    >>> substitute("run %i 100%% %h", "backup@home.service")
    ('run home 100% %h', ['%h'])
    >>> substitute("/%I", r"backup@home-my\\x2ddata.service")
    ('/home/my-data', [])
    """
    prefix, instance = split_instance(name)
    known = {
        "%": "%",
        "n": name,
        "N": name.rpartition(".")[0],
        "p": prefix,
        "P": unescape(prefix),
        "i": instance or "",
        "I": unescape(instance or ""),
    }
    unknown: list[str] = []

    def replace(found: re.Match[str]) -> str:
        if found[1] not in known:
            unknown.append(found[0])
            return found[0]
        return known[found[1]]

    return re.sub(r"%([%A-Za-z])", replace, text), unknown


def environment(values: Sequence[str]) -> dict[str, str]:
    """Return the variables of `Environment=` lines.

    >>> environment(['A=1 "B=two words"', "A=3"])
    {'A': '3', 'B': 'two words'}
    """
    pairs = [word.partition("=") for value in values for word in split_words(value)]
    return {name: value for name, equals, value in pairs if equals}


@dataclass(frozen=True, slots=True)
class ServiceWork:
    """The command of a service, its other job fields, and notes as (setting, text)."""

    command: ImportedCommand
    fields: Mapping[str, Json]
    notes: tuple[tuple[str, str], ...]


def read_service(unit: Unit) -> ServiceWork:
    """Return the work of a service, or raise InvalidArgument if it has none that can be converted."""
    notes: list[tuple[str, str]] = []
    variables = environment(
        [_substitute_known(value, unit, "Environment") for value in _all(unit, "Environment")]
    )
    lines = [_argv(text, unit, variables, notes) for text in _all(unit, "ExecStart")]
    if not lines:
        raise InvalidArgument(f"{unit.name} has no ExecStart")
    line = " && ".join(shlex.join(argv) for argv in lines)
    argv = tuple(lines[0]) if len(lines) == 1 else None
    command = ImportedCommand(
        line, argv, user=unit.last("Service", "User"), cwd=_directory(unit, notes), env=variables
    )
    fields = _timeout(unit, notes)
    others = [key for key in unit.keys("Service") if key not in _SERVICE_KEYS]
    notes += [(key, _SERVICE_NOTES[key]) for key in others if key in _SERVICE_NOTES]
    notes += condition_notes(unit)
    rest = [key for key in others if key not in _SERVICE_NOTES]
    if rest:
        notes.append((", ".join(rest), "not converted"))
    return ServiceWork(command, fields, tuple(notes))


def condition_notes(unit: Unit) -> list[tuple[str, str]]:
    """Return a note for each condition of a unit, and for what follows from its end."""
    keys = unit.keys("Unit")
    notes = [(key, _CONDITION_NOTE) for key in keys if key.startswith(("Condition", "Assert"))]
    return notes + [(key, _CHAIN_NOTE) for key in keys if key in ("OnFailure", "OnSuccess")]


def _all(unit: Unit, key: str) -> tuple[str, ...]:
    return unit.all("Service", key)


def _substitute_known(text: str, unit: Unit, key: str) -> str:
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
    words = [_substitute_known(word, unit, "ExecStart") for word in words]
    if "@" in prefix and len(words) > 1:
        del words[1]
    if ":" not in prefix:
        words = [part for word in words for part in _expand(word, variables, notes)]
    if not words:
        raise InvalidArgument("ExecStart: it is empty")
    return words


def _expand(word: str, variables: Mapping[str, str], notes: list[tuple[str, str]]) -> list[str]:
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
    path = _substitute_known(value.removeprefix("-"), unit, "WorkingDirectory")
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
