"""Pages of lists in this process: `limit` is the size of a page, `cursor` is where the previous one ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from wakeful.errors import InvalidArgument
from wakeful.model import Page
from wakeful.values.ids import is_id
from wakeful.values.json_value import whole_number

R = TypeVar("R")
T = TypeVar("T")

#: The largest page, which is in memory.
_LARGEST: Final = 1_000_000


def one_more(limit: int) -> int:
    """Return how many items are read for a page: one more than it has, to know whether others follow."""
    number = whole_number(limit)
    if number is None or not 1 <= number <= _LARGEST:
        raise InvalidArgument(f"limit: write a whole number from 1 to {_LARGEST}")
    return number + 1


def check_cursor(cursor: str | None, is_valid: Callable[[str], bool] = is_id) -> str | None:
    """Return a cursor if it can be one, by default an id; else raise InvalidArgument."""
    if cursor is not None and not is_valid(cursor):
        raise InvalidArgument(
            "cursor: it is not a cursor of this list; use that of the previous page, or leave it out"
        )
    return cursor


def make_page(
    found: Sequence[R], limit: int, to_model: Callable[[R], T], position: Callable[[R], str]
) -> Page[T]:
    """Return the first `limit` of what was found; with a cursor if there are more."""
    shown = found[:limit]
    return Page([to_model(each) for each in shown], position(shown[-1]) if len(found) > limit else None)
