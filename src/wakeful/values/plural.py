"""Numbers with their nouns."""

from __future__ import annotations


def plural(count: int, noun: str, others: str | None = None) -> str:
    """Return a number with its noun, in the singular or in the plural.

    >>> plural(1, "job"), plural(2, "job"), plural(0, "entry", "entries")
    ('1 job', '2 jobs', '0 entries')
    """
    return f"{count} {noun if count == 1 else others or f'{noun}s'}"
