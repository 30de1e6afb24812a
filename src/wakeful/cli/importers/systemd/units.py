"""Read unit files of systemd: sections with `Key=value` lines, and drop-ins that change them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_ESCAPES: Final = {"n": "\n", "t": "\t", "s": " ", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_NUMBER: Final = re.compile(r"x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})")
#: The keys of a timer that are one list: an empty value of one of them resets all.
_ELAPSES: Final = tuple(
    "OnCalendar OnActiveSec OnBootSec OnStartupSec OnUnitActiveSec OnUnitInactiveSec".split()
)


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


def instance_of(name: str) -> tuple[str, str | None]:
    """Return the prefix of a unit and its instance; the instance of a template is ''.

    >>> instance_of("backup@home.timer"), instance_of("backup@.timer"), instance_of("backup.timer")
    (('backup', 'home'), ('backup', ''), ('backup', None))
    """
    stem = name.rpartition(".")[0]
    prefix, at, instance = stem.partition("@")
    return prefix, instance if at else None


def substitute(text: str, name: str) -> tuple[str, list[str]]:
    """Replace the specifiers of a unit's name; also return those that depend on the machine.

    >>> substitute("run %i 100%% %h", "backup@home.service")
    ('run home 100% %h', ['%h'])
    """
    prefix, instance = instance_of(name)
    known = {
        "%": "%",
        "n": name,
        "N": name.rpartition(".")[0],
        "p": prefix,
        "P": prefix,
        "i": instance or "",
        "I": instance or "",
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
