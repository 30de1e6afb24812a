"""Every error that Wakeful raises on purpose.

Each carries a `code` from a short, closed list and a sentence that says what is wrong and what to do.
The faces translate the code (HTTP status, RPC error, exit code); nobody parses the sentence.
"""

from __future__ import annotations

from typing import ClassVar


class WakefulError(Exception):
    """The root of them all: `except WakefulError` catches whatever Wakeful refuses.

    >>> try:
    ...     raise NotFound("no job 'digest'; `wakeful list` shows what there is")
    ... except WakefulError as error:
    ...     error.code
    'not-found'
    """

    code: ClassVar[str] = "internal"
    #: seconds after which a retry may succeed; None: unknown
    retry_after_s: ClassVar[int | None] = None

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidArgument(WakefulError):
    """What was given cannot be right, whatever the state of the world."""

    code = "invalid-argument"


class InvalidSchedule(InvalidArgument):
    """A schedule that cannot be read, or that would never fire. The message names the field and the text."""


class Unstorable(InvalidArgument):
    """The database cannot keep a value, such as a number out of range: trying again does not help."""


class Unauthenticated(WakefulError):
    """Nobody knows who is asking."""

    code = "unauthenticated"


class PermissionDenied(WakefulError):
    """We know who is asking; they may not."""

    code = "permission-denied"


class NotFound(WakefulError):
    """It is not there, or it belongs to somebody else: the two are not told apart."""

    code = "not-found"


class AlreadyExists(WakefulError):
    """The name is taken."""

    code = "already-exists"


class FailedPrecondition(WakefulError):
    """Right in itself, but not in the state things are in."""

    code = "failed-precondition"


class ResourceExhausted(WakefulError):
    """A quota or a limit is used up; where it is one of a day, it is counted anew at midnight (UTC)."""

    code = "resource-exhausted"

    def __init__(self, message: str, *, daily: bool = False) -> None:
        super().__init__(message)
        self.daily = daily


class Unavailable(WakefulError):
    """The database or a service cannot be reached; trying again later may help."""

    code = "unavailable"
    retry_after_s = 1


class DatabaseFault(Unavailable):
    """The database can be reached, and reports an I/O error or an internal error of its own.

    Mostly it is over when the statement is tried again.
    """


class Permanent(WakefulError):
    """Raise it in a function target to say: trying again will not help. The run fails at once.

    >>> async def send(run):
    ...     raise Permanent("the customer has left")
    """

    code = "permanent"
