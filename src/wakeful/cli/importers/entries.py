"""What a reader returns: entries that can become jobs, remarks on the rest; and the names of the jobs.

A name is derived from a command or a title, and kept apart from the names of other jobs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from wakeful.job.job import MAX_NAME
from wakeful.values.json_value import Json

_SEPARATORS: Final = re.compile(r"&&|\|\||[;|&(){}]")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*")
#: The file that stands for stdin.
STDIN: Final = "-"
#: Commands that only prepare for the next one.
_PREPARATION: Final = frozenset(
    "cd test [ [[ export source . sleep set umask ulimit true : echo if then".split()
)
#: Commands that only run another command.
_WRAPPERS: Final = frozenset(
    "sudo nice nohup env exec time chronic ionice timeout flock setsid command cronic run-one stdbuf".split()
)
_INTERPRETERS: Final = re.compile(r"(python|perl|ruby|node|php|bash|sh|zsh|dash|Rscript|uv|npx)[0-9.]*")
_EXTENSION: Final = re.compile(r"\.(sh|bash|py|pl|rb|php|js|ts|bin|exe|R)$")


@dataclass(frozen=True, slots=True)
class EntryLocation:
    """Where an entry stands: its file, and its line, unit or job there."""

    file: str
    #: the name of a unit or of a job; for a crontab, `line` says more
    item: str = ""
    line: int | None = None

    def __str__(self) -> str:
        where = f"line {self.line}" if self.line is not None else self.item
        if self.file in ("", "-"):
            return where
        return f"{self.file}:{self.line}" if self.line is not None else f"{self.file}, {where}"


@dataclass(frozen=True, slots=True)
class ImportedCommand:
    """A command with what it needs to run."""

    #: the text for a shell
    line: str
    #: the program and its arguments, if it needs no shell
    argv: tuple[str, ...] | None = None
    stdin: str | None = None
    user: str | None = None
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ImportEntry:
    """One schedule with its work."""

    place: EntryLocation
    #: the original text, for messages
    text: str
    #: the name of its job, unless it is taken
    name: str
    schedule: Json
    #: None: the zone of the machine, or of --tz
    tz: str | None = None
    #: None: the fields have the message or the payload
    command: ImportedCommand | None = None
    #: other fields of the job
    fields: Mapping[str, Json] = field(default_factory=dict)
    #: None: the agent of --agent
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that was refused or changed, and the reason."""

    place: EntryLocation
    text: str
    why: str
    #: the field or option of the original that the remark is about
    field: str | None = None


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The result of a reader: entries, refused entries and notes."""

    entries: tuple[ImportEntry, ...] = ()
    refused: tuple[Remark, ...] = ()
    notes: tuple[Remark, ...] = ()


def join_readings(readings: Iterable[ReadResult]) -> ReadResult:
    """Return several readings as one, in order."""
    parts = list(readings)
    return ReadResult(
        tuple(entry for part in parts for entry in part.entries),
        tuple(remark for part in parts for remark in part.refused),
        tuple(remark for part in parts for remark in part.notes),
    )


def command_name(command: str) -> str:
    """Return a slug for a command.

    >>> command_name("cd /srv/app && /usr/bin/python3 manage.py clearsessions >/dev/null 2>&1")
    'manage-clearsessions'
    """
    return slug(" ".join(_significant_words(command)))


def slug(text: str) -> str:
    """Return a job name for a text.

    >>> slug("Morning brief (EU)"), slug("!!!")
    ('morning-brief-eu', 'job')
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:MAX_NAME].rstrip("-") or "job"


def choose_name(base: str, origin: tuple[str, str], taken: Mapping[str, tuple[str, str] | None]) -> str:
    """Return the name of a job: that of an earlier import of the same origin, else a free one.

    `taken` has the names that exist, with their origin (kind and source); None: used by this import.

    >>> choose_name("backup", ("crontab", "b"), {"backup": ("crontab", "a")})
    'backup-2'
    >>> choose_name("backup", ("crontab", "a"), {"backup": None, "backup-3": ("crontab", "a")})
    'backup-3'
    """
    own = {number: name for name in taken if taken[name] == origin and (number := _number(base, name))}
    if own:
        return own[min(own)]
    number = 1
    while _add_number(base, number) in taken:
        number += 1
    return _add_number(base, number)


def _add_number(base: str, number: int) -> str:
    suffix = f"-{number}" if number > 1 else ""
    return base[: MAX_NAME - len(suffix)].rstrip("-") + suffix


def _number(base: str, name: str) -> int:
    """Return the number of a name that `_add_number` made from `base`, or 0."""
    if name == base:
        return 1
    found = re.search(r"-([1-9][0-9]{0,5})$", name)
    number = int(found[1]) if found else 0
    return number if number > 1 and _add_number(base, number) == name else 0


def _significant_words(command: str) -> list[str]:
    """Return the program of a command and its first argument."""
    fallback: list[str] = []
    for part in _SEPARATORS.split(command):
        words = _words(part)
        while words and (_ASSIGNMENT.fullmatch(words[0]) or words[0] in _WRAPPERS):
            wrapper = words.pop(0)
            if wrapper in _WRAPPERS:
                words = _drop_options(words)
        if not words:
            continue
        program = _program(words)
        if words[0] not in _PREPARATION:
            return program
        fallback = fallback or program
    return fallback


def _words(part: str) -> list[str]:
    part = re.sub(r"\d*>>?\s*&?\s*\S+|<\s*\S+", " ", part)
    try:
        return shlex.split(part)
    except ValueError:
        return part.split()


def _drop_options(words: list[str]) -> list[str]:
    """Drop the options, numbers, durations and lock files of a wrapper."""
    while len(words) > 1 and re.fullmatch(
        r"-\S*|\d+[smhd]?|\S*\.lock|\S*/lock/\S*|[A-Za-z_]\w*=\S*", words[0]
    ):
        words = words[1:]
    return words


def _program(words: list[str]) -> list[str]:
    first, rest = _base(words[0]), words[1:]
    plain = [word for word in rest if not word.startswith("-")]
    if _INTERPRETERS.fullmatch(first) and plain:
        first, plain = _base(plain[0]), plain[1:]
        if len(first) > 40 or " " in first:  # an inline script
            return [first.split()[0]]
    following = [_base(word) for word in plain[:1] if re.fullmatch(r"[\w./:-]{1,40}", word)]
    return [first, *following]


def _base(word: str) -> str:
    return _EXTENSION.sub("", PurePosixPath(word).name or word)
