"""Checks of the filters of lists, which all interfaces share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wakeful.errors import InvalidArgument


def check_choices(field: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Raise InvalidArgument for a value that is not one of those that are known.

    >>> check_choices("state", ["open", "done"], ["open", "closed"])
    Traceback (most recent call last):
    wakeful.errors.InvalidArgument: state: 'done' is not one of open, closed
    """
    for each in given:
        if each not in known:
            raise InvalidArgument(f"{field}: '{str(each)[:64]}' is not one of {', '.join(known)}")
