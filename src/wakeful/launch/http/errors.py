"""Why there is no response, and what it means for an attempt."""

from __future__ import annotations

from typing import Final

from wakeful.launch.address_guard import AddressRefused
from wakeful.launch.port import truncate
from wakeful.run.outcome import Failed

#: Receivers that use interim responses send one or two; 103 Early Hints may repeat.
MAX_INTERIM: Final = 16


class HttpError(Exception):
    """There is no response. The message says why."""


class InvalidTarget(HttpError):
    """A request that can never be sent."""


class ConnectionClosed(HttpError):
    """The connection ended before a response arrived."""

    def __init__(self, error: Exception | None = None, *, silent: bool) -> None:
        # The name of the class is that of earlier versions: the text is the cause of an incident.
        text = f"ClientOSError: {error}" if isinstance(error, OSError) else None
        super().__init__(text or "the connection was closed before a response arrived")
        #: whether not even a part of a response arrived
        self.silent = silent


class ResponseCutOff(HttpError):
    """The connection ended in the middle of the body."""

    def __init__(self) -> None:
        super().__init__("the response was cut off")


class MalformedResponse(HttpError):
    """The receiver sent something else than HTTP, or a head that is too large."""

    def __init__(self, detail: object) -> None:
        super().__init__(f"the response is not valid HTTP: {detail}")


class TooManyInterimResponses(HttpError):
    """The receiver sent more interim responses than are accepted."""

    def __init__(self) -> None:
        super().__init__(
            f"the receiver sent more than {MAX_INTERIM} interim responses (1xx) and no final one"
        )


def connection_failure(error: HttpError | OSError) -> Failed:
    """Return the failure of an attempt without a response."""
    if isinstance(error, AddressRefused):
        return Failed(truncate(str(error)), permanent=True, reason="address_refused")
    if isinstance(error, InvalidTarget):
        return Failed(truncate(f"target: {error}"), permanent=True, reason="invalid_target")
    if isinstance(error, HttpError):
        return Failed(truncate(str(error)), reason="network")
    return Failed(truncate(f"{type(error).__name__}: {error}"), reason="network")
