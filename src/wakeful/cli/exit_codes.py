"""What an exit code means."""

from __future__ import annotations

from typing import Final

from wakeful.errors import WakefulError

OK: Final = 0
#: a run that did not succeed, a line that could not be taken, a chain that is broken
NOT_DONE: Final = 1
USAGE: Final = 2
#: what a shell says of a process that Ctrl-C ended
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
  0  all is well
  1  a run did not succeed, or not everything could be taken
  2  wrong arguments
  3  not found
  4  no key, or not allowed
  5  exists already, or cannot be done now
  6  a limit is used up
  7  no server, or no answer"""


def exit_code(error: WakefulError) -> int:
    """The exit code of an error.

    >>> from wakeful.errors import NotFound
    >>> exit_code(NotFound("no job 'digest'"))
    3
    """
    return _BY_CODE.get(error.code, NOT_DONE)
