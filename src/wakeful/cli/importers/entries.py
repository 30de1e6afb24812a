"""What a reader returns: entries that can become jobs, and remarks on the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wakeful.values.json_value import Json


@dataclass(frozen=True, slots=True)
class Place:
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
class Command:
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
class Entry:
    """One schedule with its work."""

    place: Place
    #: the original text, for messages
    text: str
    #: the name of its job, unless it is taken
    name: str
    schedule: Json
    #: None: the zone of the machine, or of --tz
    tz: str | None = None
    #: None: the fields have the message or the payload
    command: Command | None = None
    #: other fields of the job
    fields: Mapping[str, Json] = field(default_factory=dict)
    #: None: the agent of --agent
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that was refused or changed, and the reason."""

    place: Place
    text: str
    why: str
    #: the field or option of the original that the remark is about
    field: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of a reader: entries, refused entries and notes."""

    entries: tuple[Entry, ...] = ()
    refused: tuple[Remark, ...] = ()
    notes: tuple[Remark, ...] = ()


def joined(readings: Iterable[Reading]) -> Reading:
    """Return several readings as one, in order."""
    parts = list(readings)
    return Reading(
        tuple(entry for part in parts for entry in part.entries),
        tuple(remark for part in parts for remark in part.refused),
        tuple(remark for part in parts for remark in part.notes),
    )
