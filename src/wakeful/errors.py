"""The errors of Wakeful.

Each has a `code` from a short, closed list, and a message that says what is wrong and what to do. The
interfaces map the code to an HTTP status, an RPC error or an exit code. The message is for people only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class ItemError:
    """An error of one item of a request that has many."""

    #: its place in the list, from 0
    index: int
    #: the field that is wrong, such as `schedule` or `target.url`; None: the whole item
    field: str | None
    #: the code of the error, such as `invalid-argument`
    code: str
    #: what is wrong, and what to do
    message: str


class WakefulError(Exception):
    """The base class of all errors.

    >>> try:
    ...     raise NotFound("no job 'digest'; `wakeful list` shows all jobs")
    ... except WakefulError as error:
    ...     error.code
    'not-found'
    """

    code: ClassVar[str] = "internal"
    #: seconds after which a retry may succeed; None: unknown
    retry_after_s: int | None = None
    #: of a request with many items, the errors of all of them
    errors: Sequence[ItemError] = ()

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidArgument(WakefulError):
    """An argument is invalid, whatever the state of the system."""

    code = "invalid-argument"


class InvalidSchedule(InvalidArgument):
    """A schedule is invalid or never fires. The message names the field and the text."""


class Unstorable(InvalidArgument):
    """The database cannot store a value, such as a number out of range. A retry does not help."""


class TooManyFollowUps(Unstorable):
    """More runs follow from several outcomes than one transaction writes. Fewer outcomes can be written."""


class Unauthenticated(WakefulError):
    """The request has no valid credentials."""

    code = "unauthenticated"


class PermissionDenied(WakefulError):
    """The caller is authenticated and may not do this."""

    code = "permission-denied"


class NotFound(WakefulError):
    """The object does not exist, or the caller may not see it."""

    code = "not-found"


class AlreadyExists(WakefulError):
    """The name is taken already."""

    code = "already-exists"


class FailedPrecondition(WakefulError):
    """The request is valid, but not in the current state."""

    code = "failed-precondition"


class IncompatibleSchema(FailedPrecondition):
    """The database has a schema that this version of Wakeful does not support."""


class ResourceExhausted(WakefulError):
    """A quota or a limit is used up. A daily one starts again at midnight UTC."""

    code = "resource-exhausted"

    def __init__(self, message: str, *, daily: bool = False) -> None:
        super().__init__(message)
        self.daily = daily


class Unavailable(WakefulError):
    """The database or a service cannot be reached. A retry may help."""

    code = "unavailable"
    retry_after_s = 1


class DatabaseFault(Unavailable):
    """The database reports an I/O error or an internal error. A retry usually helps."""


class Permanent(WakefulError):
    """Raised in a function target if a retry does not help. The run fails at once.

    >>> async def send(run):
    ...     raise Permanent("the customer has left")
    """

    code = "permanent"
