"""Which programs jobs may run (`WAKEFUL_COMMANDS`).

    /usr/bin/rsync      that file, by that path
    rsync               the program on the server's PATH, by that name only
    /opt/jobs/*         files in that directory, not in directories below it
    *                   every program

Symbolic links are resolved before a pattern is matched, and the resolved file is executed: a link out of the
directory is not allowed. Arguments (the rest of argv) are not checked.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from wakeful.errors import InvalidArgument
from wakeful.launch.not_allowed import NotAllowed
from wakeful.settings import PREFIX

SETTING: Final = f"{PREFIX}COMMANDS"
#: Allows every program.
ALL: Final = "*"


class CommandNotFound(InvalidArgument):
    """A program that is allowed and does not exist."""


@dataclass(frozen=True, slots=True)
class _Pattern:
    directory: str
    name: re.Pattern[str]

    def allows(self, real: str) -> bool:
        directory, name = os.path.split(real)
        return directory == os.path.realpath(self.directory) and self.name.fullmatch(name) is not None


class CommandAllowlist:
    """The programs that jobs may run.

    >>> CommandAllowlist(["rsync", "/opt/jobs/*"]).check("/usr/bin/rsync")
    Traceback (most recent call last):
    wakeful.launch.not_allowed.NotAllowed: '/usr/bin/rsync' is not an allowed command; the operator \
allows commands by WAKEFUL_COMMANDS
    """

    def __init__(self, entries: Iterable[str]) -> None:
        entries = list(entries)
        for entry in entries:
            _check_entry(entry)
        self._all = ALL in entries
        self._named = frozenset(entry for entry in entries if ALL not in entry)
        self._patterns = [_pattern(entry) for entry in entries if entry.startswith("/") and ALL in entry]

    def check(self, name: str) -> None:
        """Raise NotAllowed for a program that is not allowed. It need not exist."""
        self._real(name)

    def find(self, name: str) -> str:
        """Return the file to execute for this argv[0]. Raises NotAllowed and CommandNotFound."""
        real = self._real(name)
        if real is not None:
            return real
        # The PATH of the server counts, not one that the job sets for its program.
        found = shutil.which(name)
        if found is None:
            raise CommandNotFound(f"there is no program '{name[:200]}' on the PATH of the server")
        return os.path.abspath(found)

    def _real(self, name: str) -> str | None:
        """Return the file of an allowed argv[0]; None for a name on the PATH. Raises NotAllowed."""
        if "/" in name and not name.startswith("/"):
            raise NotAllowed(
                f"'{name[:200]}' is neither an absolute path nor a name; write one such as "
                "'/usr/local/bin/report'"
            )
        if self._all or name in self._named:
            return name if name.startswith("/") else None
        if name.startswith("/") and self._patterns:
            real = os.path.realpath(name)
            if any(pattern.allows(real) for pattern in self._patterns):
                return real
        if not self._named and not self._patterns:
            raise NotAllowed(f"no commands are allowed; the operator allows commands by {SETTING}")
        raise NotAllowed(
            f"'{name[:200]}' is not an allowed command; the operator allows commands by {SETTING}"
        )


def _check_entry(entry: str) -> None:
    """Raise InvalidArgument for an invalid entry of the setting."""
    directory, _, name = entry.rpartition("/")
    if entry == ALL:
        return
    if not entry.isprintable() or any(map(str.isspace, entry)):
        why = "it has a space; write the program without arguments"
    elif not entry.startswith("/"):
        if "/" not in entry and ALL not in entry and entry not in (".", ".."):
            return
        why = "write an absolute path such as /usr/bin/rsync, a name such as rsync, or * for all"
    elif not name:
        why = f"it is a directory; write {entry}* for the files in it"
    elif ALL in directory or "**" in name:
        why = "a * is allowed only in the last part: /opt/jobs/*"
    elif "//" in entry or os.path.normpath(entry) != entry:
        why = "write it without //, . and .."
    else:
        return
    raise InvalidArgument(f"{SETTING}: '{entry[:200]}' is not a command: {why}")


def _pattern(entry: str) -> _Pattern:
    directory, name = os.path.split(entry)
    return _Pattern(directory, re.compile(".*".join(map(re.escape, name.split(ALL))), re.DOTALL))
