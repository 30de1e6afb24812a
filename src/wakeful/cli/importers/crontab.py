"""Read crontabs by the rules of Debian's cron, and list the lines that Wakeful cannot run.

A `#` starts a comment only at the start of a line. An assignment applies to the lines after it. A `%` is a
newline, and the text after the first one is stdin. There are no continuation lines.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from wakeful.cli.arguments import read_text
from wakeful.cli.importers.entries import (
    STDIN,
    EntryLocation,
    ImportedCommand,
    ImportEntry,
    ReadResult,
    Remark,
    command_name,
    join_readings,
)
from wakeful.cron import zone
from wakeful.errors import InvalidArgument, WakefulError

_ASSIGNMENT: Final = re.compile(r"""(?:"([^"=]+)"|'([^'=]+)'|([A-Za-z_][A-Za-z0-9_]*))\s*=\s*(.*)""")
_PERCENT: Final = re.compile(r"\\%|%")
_MACROS: Final = frozenset("@yearly @annually @monthly @weekly @daily @midnight @hourly".split())
_EVERY_MINUTE: Final = {"@every_minute": "* * * * *", "@every_second": "* * * * * *"}
#: Settings of cron itself, with a note on what replaces them.
_CRON_SETTINGS: Final = {
    "MAILTO": "ignored: Wakeful sends no mail; `wakeful dead-letters` shows failed runs",
    "MAILFROM": "ignored: Wakeful sends no mail",
    "CONTENT_TYPE": "ignored: Wakeful sends no mail",
    "RANDOM_DELAY": "ignored; set the job's `jitter` instead",
    "START_HOURS_RANGE": "ignored: it is a setting of anacron",
}
#: The files whose lines have a user, besides those of a directory.
_SYSTEM: Final = ("/etc/crontab", "/etc/cron.d/")


def read_crontab(text: str, *, user_field: bool = False, file: str = "-") -> ReadResult:
    """Read a crontab; with `user_field`, a system crontab, with a user before the command.

    >>> read_crontab("MAILTO=me\\n@daily backup --all").entries[0].text
    '@daily backup --all'
    """
    reader = _CrontabReader(user_field)
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        reader.read(EntryLocation(file, line=number), line)
    return ReadResult(tuple(reader.entries), tuple(reader.refused), tuple(reader.notes))


def is_read_by_cron(name: str) -> bool:
    """Return whether cron reads a file of this name in /etc/cron.d: it ignores backups and package files.

    >>> [is_read_by_cron(name) for name in ("php", "e2scrub_all", "php.dpkg-old", ".placeholder", "php~")]
    [True, True, False, False, False]
    """
    return re.fullmatch(r"[A-Za-z0-9_-]+", name) is not None


def ignored_files(directory: str, names: Iterable[str]) -> list[Remark]:
    """Return a note for each file of a directory that cron does not read, except hidden ones."""
    why = "ignored, as by cron: a name has only letters, digits, _ and -"
    return [
        Remark(EntryLocation(f"{directory}/{name}", "the whole file"), name, why)
        for name in sorted(names)
        if not name.startswith(".") and not is_read_by_cron(name)
    ]


class _CrontabReader:
    """The state of reading: the assignments so far, and whether the previous line ended with a backslash."""

    def __init__(self, user_field: bool) -> None:
        self.entries: list[ImportEntry] = []
        self.refused: list[Remark] = []
        self.notes: list[Remark] = []
        self._user_field = user_field
        self._env: dict[str, str] = {}
        self._tz: str | None = None
        #: why the last CRON_TZ was refused; the lines after it have no known zone
        self._refused_tz: str | None = None
        self._open_ended = False

    def read(self, place: EntryLocation, line: str) -> None:
        text = line.rstrip("\r").strip(" \t")
        follows, self._open_ended = self._open_ended, False
        if not text or text.startswith("#"):
            return
        if found := _ASSIGNMENT.fullmatch(text):
            self._assign(place, text, found[1] or found[2] or found[3], _value(found[4]))
            return
        self._open_ended = text.endswith("\\")
        why = self._entry(place, text)
        if why is not None:
            hint = "; the previous line ends with \\, but cron has no continuation lines" if follows else ""
            self.refused.append(Remark(place, text, why + hint))
        elif self._open_ended:
            self.notes.append(
                Remark(place, text, "cron has no continuation lines: the \\ at the end is kept")
            )

    def _assign(self, place: EntryLocation, text: str, name: str, value: str) -> None:
        if name == "CRON_TZ":
            try:
                self._tz, self._refused_tz = zone(value).name if value else None, None
            except WakefulError as error:
                self.refused.append(Remark(place, text, error.message))
                self._refused_tz = f"its zone is not known: CRON_TZ in line {place.line} is refused"
            return
        if name in _CRON_SETTINGS:
            if value:
                self.notes.append(Remark(place, text, _CRON_SETTINGS[name]))
            return
        if name == "TZ":
            why = "passed to the command, but it does not set the schedule's zone; CRON_TZ or --tz does"
            self.notes.append(Remark(place, text, why))
        self._env[name] = value

    def _entry(self, place: EntryLocation, text: str) -> str | None:
        """Add the entry of a line; return the reason if it is refused."""
        if self._refused_tz is not None:
            return self._refused_tz
        quiet = text.startswith("-") and not text.startswith("- ")
        words = text[1:] if quiet else text  # a leading hyphen means: do not log to syslog
        fields = 1 if words.startswith("@") else 5
        parts = words.split(None, fields)
        if len(parts) <= fields:
            return f"expected {'a macro' if fields == 1 else 'five fields'} and a command"
        schedule, rest = " ".join(parts[:fields]), parts[fields]
        if fields == 1:
            schedule = _EVERY_MINUTE.get(schedule.lower(), schedule.lower())
            if schedule == "@reboot":
                return "Wakeful does not know when the machine boots"
            if schedule.startswith("@") and schedule not in _MACROS:
                return f"'{parts[0]}' is not a macro of cron"
        elif "~" in schedule:
            return "random times (~) are not supported; choose a time and set the job's `jitter`"
        user: str | None = None
        if self._user_field:
            user, *following = rest.split(None, 1)
            rest = following[0] if following else ""
            if not rest:
                return "a line of a system crontab has a user before the command; only one word is left"
        elif rest.split()[0] == "root" and len(rest.split()) > 1:
            self.notes.append(
                Remark(place, text, "'root' looks like a user; add --user-field for a system crontab")
            )
        command, stdin = _split_stdin(rest)
        if not command:
            return "no command before the %"
        work = ImportedCommand(command, stdin=stdin, user=user, env=dict(self._env))
        self.entries.append(ImportEntry(place, text, command_name(command), schedule, self._tz, work))
        return None


def _value(text: str) -> str:
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text


def _split_stdin(text: str) -> tuple[str, str | None]:
    """Split a line into its command and stdin: an unescaped % is a newline.

    >>> _split_stdin(r"mail -s 100\\% me%Hello,%all is well.")
    ('mail -s 100% me', 'Hello,\\nall is well.\\n')
    """
    lines = _PERCENT.sub(lambda found: "%" if found[0] == r"\%" else "\n", text).split("\n", 1)
    return lines[0].strip(), f"{lines[1]}\n" if len(lines) > 1 else None


async def read_crontabs(paths: Sequence[str], user_field: bool | None) -> ReadResult:
    """Read crontabs, and all crontabs of directories such as /etc/cron.d."""
    if STDIN in paths and sys.stdin.isatty():
        raise InvalidArgument("name a crontab file, or pipe one: crontab -l | wakeful import crontab -")
    if paths.count(STDIN) > 1:
        raise InvalidArgument("- is stdin; give it once")
    readings: list[ReadResult] = []
    for path in paths:
        if path != STDIN and await asyncio.to_thread(Path(path).is_dir):
            readings.append(await _directory(path, user_field is not False))
            continue
        system = path.startswith(_SYSTEM) if user_field is None else user_field
        readings.append(read_crontab(await read_text(path), user_field=system, file=path))
    return join_readings(readings)


async def _directory(path: str, user_field: bool) -> ReadResult:
    """Read the files of a directory that cron would read; a file that cannot be read is refused."""
    names = await asyncio.to_thread(_files, path)
    readings = [ReadResult(notes=tuple(ignored_files(path.rstrip("/"), names)))]
    for name in filter(is_read_by_cron, names):
        file = f"{path.rstrip('/')}/{name}"
        try:
            readings.append(read_crontab(await read_text(file), user_field=user_field, file=file))
        except InvalidArgument as error:
            why = error.message.removeprefix(f"{file}: ")
            readings.append(ReadResult(refused=(Remark(EntryLocation(file, "the whole file"), name, why),)))
    return join_readings(readings)


def _files(path: str) -> list[str]:
    try:
        return sorted(each.name for each in Path(path).iterdir() if each.is_file())
    except OSError as error:
        raise InvalidArgument(f"{path}: it cannot be read: {error.strerror}") from error
