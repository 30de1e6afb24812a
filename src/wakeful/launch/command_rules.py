"""What a command target may be: its fields, the programs and the environment that the operator allows.

Programs that jobs may run (`WAKEFUL_COMMANDS`):

    /usr/bin/rsync      that file, by that path
    rsync               the program on the server's PATH, by that name only
    /opt/jobs/*         files in that directory, not in directories below it
    *                   every program

Symbolic links are resolved before a pattern is matched, and the resolved file is executed: a link out of the
directory is not allowed. Arguments (the rest of argv) are not checked.

Environment variables that a job may set for its command (`WAKEFUL_COMMAND_ENV`):

    JOB_*       every name that starts with JOB_ (the default)
    REPORT_TO   that name
    *           every name

Many programs run code that a variable names (`BASH_ENV`, `PYTHONWARNINGS`, `GIT_SSH_COMMAND`, `PERL5OPT`), so
a list of dangerous names is never complete: the operator lists the safe ones instead. Names that start with
`WAKEFUL_`, `LD_` or `DYLD_` cannot be allowed at all.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from wakeful.errors import InvalidArgument
from wakeful.launch.port import NotAllowed
from wakeful.settings import PREFIX
from wakeful.values.json_value import Json, quote

#: The most arguments in argv, names in env, and bytes in both.
MAX_ARGUMENTS: Final = 256
MAX_ENV: Final = 256
MAX_BYTES: Final = 65_536

_FIELDS: Final = frozenset({"kind", "argv", "env", "cwd"})
_EXAMPLE: Final = '["/usr/local/bin/report", "--daily"]'
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SETTING: Final = f"{PREFIX}COMMANDS"
#: Allows every program.
ALL: Final = "*"
_ENV_SETTING: Final = f"{PREFIX}COMMAND_ENV"
#: The names of Wakeful, and those that the dynamic loader reads: these make any program run any code.
RESERVED: Final = (PREFIX, "LD_", "DYLD_")
_PREFIXES: Final = "WAKEFUL_, LD_ or DYLD_"
_ENTRY: Final = re.compile(r"[A-Za-z_*][A-Za-z0-9_*]*")


class CommandSpec(NamedTuple):
    """A command: the program and its arguments, environment and directory."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None


def read_command(target: Mapping[str, Json]) -> CommandSpec:
    """Return the command of a target. Raises InvalidArgument."""
    unknown = sorted(target.keys() - _FIELDS)
    if unknown:
        raise InvalidArgument(f"target: a command has no field '{unknown[0][:64]}'; it has argv, env and cwd")
    command = CommandSpec(_argv(target.get("argv")), _env(target.get("env")), _cwd(target.get("cwd")))
    size = sum(len(text.encode()) + 1 for pair in command.env.items() for text in pair)
    if size + sum(len(text.encode()) + 1 for text in command.argv) > MAX_BYTES:
        raise InvalidArgument(
            f"target: argv and env have more than {MAX_BYTES} bytes; put long values into the payload, "
            "which the program reads from stdin"
        )
    return command


def _argv(value: Json) -> tuple[str, ...]:
    if isinstance(value, str):
        raise InvalidArgument(f"target: argv is a list: there is no shell to split it; write {_EXAMPLE}")
    if not isinstance(value, list) or not value:
        raise InvalidArgument(f"target: a command needs an argv, such as {_EXAMPLE}")
    if len(value) > MAX_ARGUMENTS:
        raise InvalidArgument(f"target: argv has {len(value)} arguments; at most {MAX_ARGUMENTS} are allowed")
    if value[0] == "":
        raise InvalidArgument(f"target: argv starts with the program, which is empty; write {_EXAMPLE}")
    return tuple(_text("argv", each) for each in value)


def _env(value: Json) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > MAX_ENV:
        raise InvalidArgument(f"target: env is an object with at most {MAX_ENV} names and text values")
    for name in value:
        if not _NAME.fullmatch(name):
            raise InvalidArgument(
                f"target: '{name[:64]}' is not a name for env; use letters, digits and _, and no digit first"
            )
    return {name: _text(f"env, {name[:64]}", each) for name, each in value.items()}


def _cwd(value: Json) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.startswith("/"):
        raise InvalidArgument("target: cwd is the absolute path of a directory, such as '/srv/reports'")
    return _text("cwd", value)


def _text(where: str, value: Json) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"target: {where}: {quote(value)} is not text; put it in quotes")
    if "\x00" in value or not _encodes(value):
        raise InvalidArgument(
            f"target: {where}: remove U+0000 and lone surrogates; no program can receive them"
        )
    return value


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
    wakeful.launch.port.NotAllowed: '/usr/bin/rsync' is not an allowed command; the operator \
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


class EnvironmentAllowlist:
    """The environment names that jobs may set.

    >>> EnvironmentAllowlist(["JOB_*", "TO"]).check(["JOB_DATE", "TO"])
    >>> EnvironmentAllowlist(["JOB_*"]).check(["BASH_ENV"])
    Traceback (most recent call last):
    wakeful.launch.port.NotAllowed: env: a job cannot set 'BASH_ENV'; the operator allows \
JOB_*, and more by WAKEFUL_COMMAND_ENV
    """

    def __init__(self, entries: Iterable[str]) -> None:
        self._entries = tuple(entries)
        for entry in self._entries:
            _check_name(entry)
        self._pattern = re.compile("|".join(map(_regex, self._entries)) or "(?!)")

    def check(self, names: Iterable[str]) -> None:
        """Raise NotAllowed for the first name that a job may not set."""
        for name in names:
            if name.startswith(RESERVED):
                raise NotAllowed(
                    f"env: a job cannot set '{name[:64]}'; names that start with {_PREFIXES} are reserved"
                )
            if not self._pattern.fullmatch(name):
                allowed = ", ".join(self._entries) or "none"
                raise NotAllowed(
                    f"env: a job cannot set '{name[:64]}'; the operator allows {allowed}, and more by "
                    f"{_ENV_SETTING}"
                )


def _regex(entry: str) -> str:
    return ".*".join(map(re.escape, entry.split("*")))


def _check_name(entry: str) -> None:
    if not _ENTRY.fullmatch(entry):
        raise InvalidArgument(
            f"{_ENV_SETTING}: '{entry[:200]}' is not the name of an environment variable; write names such "
            "as REPORT_TO, or JOB_* for all that start with JOB_"
        )
    if entry.startswith(RESERVED):
        raise InvalidArgument(
            f"{_ENV_SETTING}: '{entry[:200]}' cannot be allowed: names that start with {_PREFIXES} are "
            "reserved; remove it"
        )
