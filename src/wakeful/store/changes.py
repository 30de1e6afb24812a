"""Whether a call has changed anything, by what it returns: only then is an entry written down with it."""

from __future__ import annotations


def always(result: object) -> bool:
    """Of a result that says nothing: it was done, or it would have raised."""
    return True


def written(result: tuple[object, bool]) -> bool:
    """Of a row, and whether it was written.

    >>> written((None, False))
    False
    """
    return result[1]
