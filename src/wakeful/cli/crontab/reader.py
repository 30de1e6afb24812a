"""A crontab, line by line: what Debian's cron would do with it, and what cannot be taken from it.

Its rules are cron's own: `#` begins a comment only at the beginning of a line, an assignment holds for the
lines after it, a `%` is a newline and what follows the first one is stdin, and no line is ever continued.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from wakeful.cron import zone
from wakeful.errors import WakefulError

_ASSIGNMENT: Final = re.compile(r"""(?:"([^"=]+)"|'([^'=]+)'|([A-Za-z_][A-Za-z0-9_]*))\s*=\s*(.*)""")
_PERCENT: Final = re.compile(r"\\%|%")
_MACROS: Final = frozenset("@yearly @annually @monthly @weekly @daily @midnight @hourly".split())
_EVERY_MINUTE: Final = {"@every_minute": "* * * * *", "@every_second": "* * * * * *"}
#: What a crontab says to cron itself, and what comes of it here.
_TO_CRON: Final = {
    "MAILTO": "nobody is mailed; `wakeful dead-letters` shows what failed",
    "MAILFROM": "nobody is mailed",
    "CONTENT_TYPE": "nobody is mailed",
    "RANDOM_DELAY": "it is not taken; a job's own is `jitter`",
    "START_HOURS_RANGE": "it is not taken; it is anacron's",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A line that says when to do what."""

    line: int
    text: str
    #: five fields, or a macro such as @daily
    schedule: str
    command: str
    stdin: str | None = None
    #: the zone of CRON_TZ, where one was set
    tz: str | None = None
    user: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Remark:
    """A line that could not be taken, or was not taken as it stands, and why."""

    line: int
    text: str
    why: str


@dataclass(frozen=True, slots=True)
class Crontab:
    """What was read: entries, what could not be taken, and what people should know."""

    entries: tuple[Entry, ...]
    refused: tuple[Remark, ...]
    notes: tuple[Remark, ...]


def read_crontab(text: str, *, user_field: bool = False) -> Crontab:
    """Read a crontab; with `user_field`, a system one, where the user stands before the command.

    >>> read_crontab("MAILTO=me\\n@daily backup --all").entries[0].command
    'backup --all'
    """
    reading = _Reading(user_field)
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        reading.read(number, line)
    return Crontab(tuple(reading.entries), tuple(reading.refused), tuple(reading.notes))


class _Reading:
    """Where a reader is: what was assigned so far, and what the line before was."""

    def __init__(self, user_field: bool) -> None:
        self.entries: list[Entry] = []
        self.refused: list[Remark] = []
        self.notes: list[Remark] = []
        self._user_field = user_field
        self._env: dict[str, str] = {}
        self._tz: str | None = None
        self._open_ended = False

    def read(self, number: int, line: str) -> None:
        text = line.rstrip("\r").strip(" \t")
        follows, self._open_ended = self._open_ended, False
        if not text or text.startswith("#"):
            return
        if found := _ASSIGNMENT.fullmatch(text):
            self._assign(number, text, found[1] or found[2] or found[3], _value(found[4]))
            return
        self._open_ended = text.endswith("\\")
        why = self._entry(number, text)
        if why is not None:
            hint = "; the line before ends with \\, but cron continues no line" if follows else ""
            self.refused.append(Remark(number, text, why + hint))
        elif self._open_ended:
            self.notes.append(
                Remark(number, text, "cron continues no line: the \\ at its end is kept as it is")
            )

    def _assign(self, number: int, text: str, name: str, value: str) -> None:
        if name == "CRON_TZ":
            try:
                self._tz = zone(value).name if value else None
            except WakefulError as error:
                self.refused.append(Remark(number, text, error.message))
            return
        if name in _TO_CRON:
            if value:
                self.notes.append(Remark(number, text, _TO_CRON[name]))
            return
        if name == "TZ":
            why = "the command sees it, but cron does not keep time by it; CRON_TZ or --tz does"
            self.notes.append(Remark(number, text, why))
        self._env[name] = value

    def _entry(self, number: int, text: str) -> str | None:
        """Take a line; else say why not."""
        quiet = text.startswith("-") and not text.startswith("- ")
        words = text[1:] if quiet else text  # a leading hyphen keeps it out of syslog
        wanted = 1 if words.startswith("@") else 5
        parts = words.split(None, wanted)
        if len(parts) <= wanted:
            what = "a macro and a command" if wanted == 1 else "five fields and a command"
            return f"a line has {what}; this one has {'nothing after it' if wanted == 1 else 'less'}"
        schedule, rest = " ".join(parts[:wanted]), parts[wanted]
        if wanted == 1:
            schedule = _EVERY_MINUTE.get(schedule.lower(), schedule.lower())
            if schedule == "@reboot":
                return "a scheduler that is not the machine's own does not know when that starts"
            if schedule.startswith("@") and schedule not in _MACROS:
                return f"'{parts[0]}' is no macro of cron's"
        elif "~" in schedule:
            return "a random time (~) is not taken; choose one, and give the job a jitter"
        user: str | None = None
        if self._user_field:
            user, *following = rest.split(None, 1)
            rest = following[0] if following else ""
            if not rest:
                return "a line of a system crontab has a user before the command; this one has only one word"
        elif rest.split()[0] == "root" and len(rest.split()) > 1:
            self.notes.append(
                Remark(number, text, "'root' looks like a user; for a system crontab give --user-field")
            )
        command, stdin = _split_stdin(rest)
        if not command:
            return "there is no command before the %"
        self.entries.append(Entry(number, text, schedule, command, stdin, self._tz, user, dict(self._env)))
        return None


def _value(text: str) -> str:
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text


def _split_stdin(text: str) -> tuple[str, str | None]:
    """The command, and what it reads: a % that no backslash stands before is a newline.

    >>> _split_stdin(r"mail -s 100\\% me%Hello,%all is well.")
    ('mail -s 100% me', 'Hello,\\nall is well.\\n')
    """
    lines = _PERCENT.sub(lambda found: "%" if found[0] == r"\%" else "\n", text).split("\n", 1)
    return lines[0].strip(), f"{lines[1]}\n" if len(lines) > 1 else None
