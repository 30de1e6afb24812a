"""Idempotency keys: a keyed operation stores its response in its own transaction.

The key is inserted first, then the operation runs, then its response is written beside the key; all of it
commits or none of it. So after any failure a retry with the same key finds the response of the first request,
or the key is free and the retry performs the operation. An operation that raises stores nothing.

Of two requests with one key, the second waits for the transaction of the first: SQLite has one writer at a
time, and in PostgreSQL the insert of the key blocks until the first transaction has ended (`InProgress` after
the lock timeout).

An operation whose result is not known inside its transaction, or that has several, has a `Claim`: its first
audited transaction inserts the key as `PERFORMED`, and the response follows (`keep_response`). If the process
dies between the two, the key stays: the operation is not performed again, and a retry says so.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from wakeful.errors import FailedPrecondition, InvalidArgument

S = TypeVar("S")
T = TypeVar("T", contravariant=True)

#: How long a response is kept, unless its key says another time.
KEPT_MS: Final = 24 * 3_600_000
LONGEST_KEPT_MS: Final = 366 * KEPT_MS
#: Earlier versions inserted the key, without a response, in a transaction of its own. A key that has no
#: response after this time was abandoned, and is free.
ABANDONED_MS: Final = 60_000
#: The status of an operation that was performed and whose response is not stored yet.
PERFORMED: Final = 0


class StoredResponse(NamedTuple):
    """The response of a keyed operation. `status` is None while the operation is in progress."""

    workspace: str
    #: identifies the caller and the key that the caller chose
    key: str
    #: identifies the request: the same key with another one is an error
    fingerprint: str
    status: int | None
    body: str
    #: when the response expires, less `KEPT_MS`: its creation, unless it is kept for another time
    created_ms: int


class InProgress(FailedPrecondition):
    """Another request with the same idempotency key is in progress. Retry in a moment."""

    retry_after_s = 1

    def __init__(self) -> None:
        super().__init__(
            "another request with this Idempotency-Key is in progress; send it again in a moment"
        )


class ResponseLost(FailedPrecondition):
    """The operation was performed, at least in part, and its response was not stored."""

    def __init__(self) -> None:
        super().__init__(
            "the first request with this Idempotency-Key was performed, at least in part, but the server "
            "stopped before its response was kept; look at what it changed, and use a new key"
        )


class AlreadyPerformed(Exception):
    """The operation was performed before; `response` is what it returned then. Nothing was changed."""

    def __init__(self, response: StoredResponse) -> None:
        super().__init__(response.key)
        self.response = response


@dataclass(frozen=True, slots=True)
class Keyed(Generic[T]):
    """The key of an operation that returns a `T`, and how that result becomes a response.

    `render` returns the status and the body to store. It is called inside the transaction, so it is quick
    and pure; an exception of it rolls everything back.
    """

    workspace: str
    key: str
    fingerprint: str
    render: Callable[[T], tuple[int, str]]
    #: how long the response is kept
    kept_ms: int = KEPT_MS

    def of(self, result: Callable[[S], T]) -> Keyed[S]:
        """Return the same key for a step; `result` converts the step's result into the operation's."""
        render = self.render
        return Keyed(
            self.workspace, self.key, self.fingerprint, lambda step: render(result(step)), self.kept_ms
        )

    def claim(self, now_ms: int) -> StoredResponse:
        """Return the row that marks the operation as in progress."""
        created_ms = now_ms + self.kept_ms - KEPT_MS
        return StoredResponse(self.workspace, self.key, self.fingerprint, None, "", created_ms)


class Claim:
    """The key of an operation, until its first audited transaction has claimed it."""

    def __init__(self, workspace: str, key: str, fingerprint: str) -> None:
        self.keyed: Keyed[object] = Keyed(workspace, key, fingerprint, lambda _: (PERFORMED, ""))
        self.is_open = True


#: The claim of the request that is performed in this context.
current_claim: ContextVar[Claim | None] = ContextVar("current_claim", default=None)


def is_claiming() -> bool:
    """Return whether the next audited transaction of this context claims a key.

    Such a transaction must not be shared with other requests: the key would be claimed for all of them.
    """
    claim = current_claim.get()
    return claim is not None and claim.is_open


def check_fingerprint(response: StoredResponse, fingerprint: str) -> None:
    """Raise InvalidArgument if the key was used for another request."""
    if response.fingerprint != fingerprint:
        raise InvalidArgument(
            "Idempotency-Key: this key was used for another request; use a new key for each operation"
        )


def conflict(stored: StoredResponse, fingerprint: str) -> Exception:
    """Return the exception for a key that exists."""
    check_fingerprint(stored, fingerprint)
    return AlreadyPerformed(stored) if stored.status else InProgress()
