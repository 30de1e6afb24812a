"""Patterns that match the types of signals, and which of two patterns is the more specific one. Pure."""

from __future__ import annotations

from wakeful.errors import InvalidArgument
from wakeful.signal.signals import MAX_TYPE, check_text
from wakeful.values.json_value import shown


def check_pattern(value: object) -> str:
    """Return a pattern in its normal form if it is valid, else raise InvalidArgument.

    >>> check_pattern("report.**"), check_pattern("**")
    ('report.*', '*')
    """
    text = check_text("pattern", value, MAX_TYPE)
    *first, last = text.split(".")
    segments = [*first, "*" if last == "**" else last]
    for segment in segments:
        if not segment:
            raise InvalidArgument(f"pattern: {shown(text)} has an empty segment; write 'report.*'")
        if "*" in segment and segment != "*":
            raise InvalidArgument(
                f"pattern: {shown(text)} has '{segment}'; '*' stands for a whole segment, as in 'report.*'"
            )
    return ".".join(segments)


def matches(pattern: str, type: str) -> bool:
    """Return whether a type matches a pattern.

    Segments are separated by dots. `*` matches one segment; as the last segment it matches one or more, so
    `*` alone matches every type. `**` is the same as `*` and only stands at the end.

    >>> [matches("report.*", type) for type in ("report.generate", "report.a.b", "report")]
    [True, True, False]
    >>> matches("*.done", "report.done"), matches("*.done", "report.a.done"), matches("*", "report.done")
    (True, False, True)
    """
    wanted, found = pattern.split("."), type.split(".")
    if wanted[-1] in ("*", "**"):
        wanted.pop()
        if len(found) <= len(wanted):
            return False
        found = found[: len(wanted)]
    elif len(found) != len(wanted):
        return False
    return all(want in ("*", part) for want, part in zip(wanted, found, strict=True))


def specificity(pattern: str) -> tuple[int, ...]:
    """Return the sort key of a pattern: of those that match a type, the least one is the most specific.

    Segments are compared from the left: text, then `*` for one segment, then `*` for all the rest. Two
    patterns that match the same type never have the same key.

    >>> sorted(["*", "a.*", "a.*.c", "a.b.c", "a.b.*"], key=specificity)
    ['a.b.c', 'a.b.*', 'a.*.c', 'a.*', '*']
    """
    *first, last = pattern.split(".")
    return (*(int(segment == "*") for segment in first), 2 if last in ("*", "**") else 0)
