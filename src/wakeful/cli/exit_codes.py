"""The exit codes of the command line."""

from __future__ import annotations

from typing import Final

from wakeful.errors import IncompatibleSchema, WakefulError

OK: Final = 0
#: a run did not succeed, a crontab line was refused, the audit chain is broken
NOT_DONE: Final = 1
USAGE: Final = 2
#: `apply --dry-run`: the file would change something
DRIFT: Final = 2
#: the database has a schema that this version does not support
INCOMPATIBLE_SCHEMA: Final = 8
#: what a shell reports for a process that Ctrl-C ended
INTERRUPTED: Final = 130

_BY_CODE: Final = {
    "invalid-argument": USAGE,
    "not-found": 3,
    "unauthenticated": 4,
    "permission-denied": 4,
    "already-exists": 5,
    "failed-precondition": 5,
    "resource-exhausted": 6,
    "unavailable": 7,
}

HELP: Final = """Exit codes
  0  success
  1  a run did not succeed, or part of the input was refused
  2  wrong arguments or an invalid file; apply --dry-run: there are changes
  3  not found
  4  no valid key, or permission denied
  5  already exists, or not possible in the current state
  6  a limit is exhausted
  7  the server is unreachable or does not respond
  8  the database has a schema of a newer version"""


def exit_code(error: WakefulError) -> int:
    """Return the exit code of an error.

    >>> from wakeful.errors import NotFound
    >>> exit_code(NotFound("no job 'digest'"))
    3
    """
    if isinstance(error, IncompatibleSchema):
        return INCOMPATIBLE_SCHEMA
    return find_exit_code(error.code)


def find_exit_code(code: str) -> int:
    """Return the exit code for the code of an error.

    >>> find_exit_code("permission-denied")
    4
    """
    return _BY_CODE.get(code, NOT_DONE)
