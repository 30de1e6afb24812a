"""A part of a streamed response that is written at once: no task runs, and no layer of the app is passed.

The server offers it in the scope of a request. Another server does not; then parts are sent as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from starlette.types import Scope

#: The name among the extensions of a scope.
DIRECT_WRITE: Final = "wakeful.direct_write"

#: Writes a part of a response that has begun; False: it was not written, and must be sent as usual.
DirectWrite = Callable[[bytes], bool]


def direct_write_of(scope: Scope) -> DirectWrite | None:
    """Return what writes parts of the response to a request; None: the server does not offer it."""
    return cast("DirectWrite | None", scope.get("extensions", {}).get(DIRECT_WRITE))
