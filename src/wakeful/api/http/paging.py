"""Lists in pages: `limit` says how many, `cursor` where the last page ended.

A cursor is opaque and belongs to its list: it carries a checksum of its place and of what the list was asked
for, so that one that was changed, or taken from another list, is refused rather than misread. It is no
secret and opens nothing: every page is asked for, and permitted, anew.
"""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Annotated, Final, TypeVar

from fastapi import Query

from wakeful.errors import InvalidArgument
from wakeful.stored_text import is_storable

T = TypeVar("T")

MAX_PAGE: Final = 500
_LARGEST: Final = 2**63
_CHECK: Final = 9  # bytes of checksum: enough that no slip goes unnoticed

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description=f"How many at most, up to {MAX_PAGE}.")]
Cursor = Annotated[
    str | None, Query(max_length=2048, description="Where to go on: the `cursor` of the page before.")
]


def write_cursor(place: Sequence[str | int], scope: Sequence[object]) -> str:
    """A cursor to this place in the list that was asked for by `scope`.

    >>> read_cursor(write_cursor(["default", "digest"], ["jobs", "acme"]), ["jobs", "acme"], str, str)
    ['default', 'digest']
    """
    content = json.dumps(place, ensure_ascii=False, separators=(",", ":")).encode()
    return urlsafe_b64encode(_check(content, scope) + content).decode().rstrip("=")


def read_cursor(cursor: str, scope: Sequence[object], *kinds: type) -> list[str | int]:
    """The place that a cursor of this very list points to; InvalidArgument where it is no such cursor.

    The checksum finds mistakes, not intent: what a cursor holds is as little trusted as any parameter.
    """
    try:
        raw = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        check, content = raw[:_CHECK], raw[_CHECK:]
        place: list[str | int] = json.loads(content)
        if check == _check(content, scope) and [type(part) for part in place] == list(kinds):
            good = (is_storable(part) if isinstance(part, str) else 0 <= part < _LARGEST for part in place)
            if all(good):
                return place
    except (ValueError, TypeError, RecursionError):
        pass
    raise InvalidArgument("cursor: it is not one of this list; take it from the page before, or leave it out")


def page(
    items: Sequence[T], limit: int, scope: Sequence[object], place: Callable[[T], Sequence[str | int]]
) -> tuple[Sequence[T], str | None]:
    """A page of what was found, where one more than `limit` was asked for, and the cursor to the next."""
    if len(items) <= limit:
        return items, None
    return items[:limit], write_cursor(place(items[limit - 1]), scope)


def _check(content: bytes, scope: Sequence[object]) -> bytes:
    return hashlib.sha256(repr(scope).encode(errors="backslashreplace") + b"\n" + content).digest()[:_CHECK]
