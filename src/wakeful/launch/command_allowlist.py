"""Which programs jobs may run: what the operator says, and nothing else (`WAKEFUL_COMMANDS`).

    /usr/bin/rsync      that file, by that name
    rsync               the one on the server's PATH, by that name alone
    /opt/jobs/*         what is in that directory, and in none beneath it
    *                   all of them

A file that a pattern allows is judged, and executed, as what it is once every link is followed: a link that
leads out of the directory leads nowhere. What a program is told (the rest of argv) is not judged.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from wakeful.errors import InvalidArgument
from wakeful.settings import PREFIX

SETTING: Final = f"{PREFIX}COMMANDS"
#: Allows every program.
ALL: Final = "*"


class NotAllowed(InvalidArgument):
    """A program that the operator does not allow."""


class NotThere(InvalidArgument):
    """A program that is allowed, and not to be found."""


@dataclass(frozen=True, slots=True)
class _Pattern:
    directory: str
    name: re.Pattern[str]

    def allows(self, real: str) -> bool:
        directory, name = os.path.split(real)
        return directory == os.path.realpath(self.directory) and self.name.fullmatch(name) is not None


class Allowed:
    """The programs that jobs may run.

    >>> Allowed(["rsync", "/opt/jobs/*"]).check("/usr/bin/rsync")
    Traceback (most recent call last):
    wakeful.launch.command_allowlist.NotAllowed: '/usr/bin/rsync' is not among the commands that the \
operator allows; they are in WAKEFUL_COMMANDS
    """

    def __init__(self, entries: Iterable[str] = ()) -> None:
        entries = list(entries)
        for entry in entries:
            _judge(entry)
        self._all = ALL in entries
        self._named = frozenset(entry for entry in entries if ALL not in entry)
        self._patterns = [_pattern(entry) for entry in entries if entry.startswith("/") and ALL in entry]

    def check(self, name: str) -> None:
        """Refuse with NotAllowed what may not be run. Whether it is there is not asked."""
        self._real(name)

    def find(self, name: str) -> str:
        """The file to execute for this argv[0]. NotAllowed; NotThere, where it is not on the PATH."""
        real = self._real(name)
        if real is not None:
            return real
        # By the server's PATH, whatever PATH the job gives its program.
        found = shutil.which(name)
        if found is None:
            raise NotThere(f"there is no program '{name[:200]}' on the PATH of the server")
        return os.path.abspath(found)

    def _real(self, name: str) -> str | None:
        """The file that an allowed argv[0] names; None where it is yet to be looked for."""
        if "/" in name and not name.startswith("/"):
            raise NotAllowed(
                f"'{name[:200]}' is neither a whole path nor a name alone; write it from / on, such as "
                "'/usr/local/bin/report'"
            )
        if self._all or name in self._named:
            return name if name.startswith("/") else None
        if name.startswith("/") and self._patterns:
            real = os.path.realpath(name)
            if any(pattern.allows(real) for pattern in self._patterns):
                return real
        if not self._named and not self._patterns:
            raise NotAllowed(f"no commands are allowed here; the operator allows them by {SETTING}")
        raise NotAllowed(
            f"'{name[:200]}' is not among the commands that the operator allows; they are in {SETTING}"
        )


def _judge(entry: str) -> None:
    """Refuse an entry of the setting that cannot be meant."""
    directory, _, name = entry.rpartition("/")
    if entry == ALL:
        return
    if not entry.isprintable() or any(map(str.isspace, entry)):
        why = "it has a space in it; name the program alone, without what it is told"
    elif not entry.startswith("/"):
        if "/" not in entry and ALL not in entry and entry not in (".", ".."):
            return
        why = "write a whole path such as /usr/bin/rsync, a name such as rsync, or * for all"
    elif not name:
        why = f"it is a directory; write {entry}* for what is in it"
    elif ALL in directory or "**" in name:
        why = "a * stands for names in one directory, so it is in the last part alone: /opt/jobs/*"
    elif "//" in entry or os.path.normpath(entry) != entry:
        why = "write it without //, . and .."
    else:
        return
    raise InvalidArgument(f"{SETTING}: '{entry[:200]}' is no command: {why}")


def _pattern(entry: str) -> _Pattern:
    directory, name = os.path.split(entry)
    return _Pattern(directory, re.compile(".*".join(map(re.escape, name.split(ALL))), re.DOTALL))
