"""Which environment variables a job may set for its command (`WAKEFUL_COMMAND_ENV`).

    JOB_*       every name that starts with JOB_ (the default)
    REPORT_TO   that name
    *           every name

Many programs run code that a variable names (`BASH_ENV`, `PYTHONWARNINGS`, `GIT_SSH_COMMAND`, `PERL5OPT`), so
a list of dangerous names is never complete: the operator lists the safe ones instead. Names that start with
`WAKEFUL_`, `LD_` or `DYLD_` cannot be allowed at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from wakeful.errors import InvalidArgument
from wakeful.launch.not_allowed import NotAllowed
from wakeful.settings import PREFIX

SETTING: Final = f"{PREFIX}COMMAND_ENV"
#: The names of Wakeful, and those that the dynamic loader reads: these make any program run any code.
RESERVED: Final = (PREFIX, "LD_", "DYLD_")
_PREFIXES: Final = "WAKEFUL_, LD_ or DYLD_"
_ENTRY: Final = re.compile(r"[A-Za-z_*][A-Za-z0-9_*]*")


class EnvironmentAllowlist:
    """The environment names that jobs may set.

    >>> EnvironmentAllowlist(["JOB_*", "TO"]).check(["JOB_DATE", "TO"])
    >>> EnvironmentAllowlist(["JOB_*"]).check(["BASH_ENV"])
    Traceback (most recent call last):
    wakeful.launch.not_allowed.NotAllowed: env: a job cannot set 'BASH_ENV'; the operator allows \
JOB_*, and more by WAKEFUL_COMMAND_ENV
    """

    def __init__(self, entries: Iterable[str]) -> None:
        self._entries = tuple(entries)
        for entry in self._entries:
            _check_entry(entry)
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
                    f"{SETTING}"
                )


def _regex(entry: str) -> str:
    return ".*".join(map(re.escape, entry.split("*")))


def _check_entry(entry: str) -> None:
    if not _ENTRY.fullmatch(entry):
        raise InvalidArgument(
            f"{SETTING}: '{entry[:200]}' is not the name of an environment variable; write names such as "
            "REPORT_TO, or JOB_* for all that start with JOB_"
        )
    if entry.startswith(RESERVED):
        raise InvalidArgument(
            f"{SETTING}: '{entry[:200]}' cannot be allowed: names that start with {_PREFIXES} are reserved; "
            "remove it"
        )
