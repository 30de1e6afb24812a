"""Paths of this server that a request names, for redirects: never an address of another site."""

from __future__ import annotations

import re
from typing import Final

from starlette.requests import Request

HOME: Final = "/"
#: Browsers read `//host` and `/\\host` as another host, and drop tabs and line breaks.
_LOCAL: Final = re.compile(r"/(?![/\\])[!-\[\]-~]*")
_LONGEST: Final = 2_000


def local_path(text: str | None) -> str:
    """Return the text if it is a path of this server, else the home page.

    >>> local_path("/workspaces/default/jobs?state=paused"), local_path("//evil.example"), local_path("x")
    ('/workspaces/default/jobs?state=paused', '/', '/')
    """
    if text is None or len(text) > _LONGEST or not _LOCAL.fullmatch(text):
        return HOME
    return text


def requested_path(request: Request) -> str:
    """Return the path and query of a request, as the browser sent them."""
    raw = request.scope.get("raw_path") or request.url.path.encode()
    query = request.scope.get("query_string", b"")
    return local_path((raw + (b"?" + query if query else b"")).decode("latin-1"))
