"""Pages of lists: `limit` is the size of a page, `cursor` is where the previous page ended.

A cursor is opaque and valid only for its list: it has a checksum of its position and of the filters, so that
a changed cursor, or one of another list, is refused. It is not a secret: every page is authorized again.
"""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Annotated, Final, TypeVar

from fastapi import Query

from wakeful.errors import InvalidArgument
from wakeful.values.stored_text import is_storable

T = TypeVar("T")
P = TypeVar("P", str, int)

MAX_PAGE: Final = 500
#: Databases add to a position, so it is far below their largest number.
_LARGEST: Final = 2**53
_CHECK: Final = 9  # bytes of the checksum

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description=f"The size of a page, up to {MAX_PAGE}.")]
OfAgent = Annotated[str | None, Query(description="Only of this agent.")]
OfJob = Annotated[str | None, Query(max_length=64, description="Only of this job: its id, or its name.")]
Cursor = Annotated[str | None, Query(max_length=2048, description="The `cursor` of the previous page.")]


def write_cursor(position: Sequence[str | int], scope: Sequence[object]) -> str:
    """Return a cursor to a position in the list that `scope` identifies.

    >>> read_cursor(write_cursor(["default", "digest"], ["jobs", "acme"]), ["jobs", "acme"], str, str)
    ['default', 'digest']
    """
    content = json.dumps(position, ensure_ascii=False, separators=(",", ":")).encode()
    return urlsafe_b64encode(_check(content, scope) + content).decode().rstrip("=")


def read_cursor(cursor: str, scope: Sequence[object], *kinds: type) -> list[str | int]:
    """Return the position of a cursor of this list; InvalidArgument for any other cursor.

    The checksum finds mistakes, not attacks: the content of a cursor is checked like any parameter.
    """
    try:
        raw = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        check, content = raw[:_CHECK], raw[_CHECK:]
        position: object = json.loads(content)
        if not isinstance(position, list) or [type(part) for part in position] != list(kinds):
            position = []
        if check == _check(content, scope) and position:
            valid = (
                is_storable(part) if isinstance(part, str) else 0 <= part < _LARGEST for part in position
            )
            if all(valid):
                return position
    except (ValueError, TypeError, RecursionError):
        pass
    raise InvalidArgument(
        "cursor: it is not a cursor of this list; use that of the previous page, or leave it out"
    )


def read_last(cursor: str | None, scope: Sequence[object], kind: type[P]) -> P | None:
    """Return the only part of a position; None: there is no cursor, so this is the first page."""
    return None if cursor is None else kind(read_cursor(cursor, scope, kind)[0])


def split_words(text: str | None) -> list[str]:
    """Return the words of a filter.

    >>> split_words("open, closed,"), split_words(None)
    (['open', 'closed'], [])
    """
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def page(
    items: Sequence[T], limit: int, scope: Sequence[object], position: Callable[[T], Sequence[str | int]]
) -> tuple[Sequence[T], str | None]:
    """Return a page of at most `limit` items and the cursor to the next; `items` has one more if any."""
    if len(items) <= limit:
        return items, None
    return items[:limit], write_cursor(position(items[limit - 1]), scope)


def _check(content: bytes, scope: Sequence[object]) -> bytes:
    return hashlib.sha256(repr(scope).encode(errors="backslashreplace") + b"\n" + content).digest()[:_CHECK]
