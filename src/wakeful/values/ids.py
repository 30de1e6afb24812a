"""Ids: UUIDv7 as text, which sorts by creation time."""

from __future__ import annotations

import os
import re
from itertools import count
from random import Random
from threading import Lock
from typing import Final

# An id is no secret, so a fast generator is enough: seeded by the system, and again in a forked child.
_RANDOM: Final = Random()
os.register_at_fork(after_in_child=_RANDOM.seed)
_VARIANT: Final = 2 << 62
_LOCK: Final = Lock()
_last_ms, _count, _prefix = 0, 0, ""
_NUMBERS: Final = count()
_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def is_id(text: str | None) -> bool:
    """Return whether this can be an id. A job may have such a name too.

    >>> is_id("0190a0b0-0000-7000-8000-000000000000"), is_id("digest"), is_id(None)
    (True, False, False)
    """
    return text is not None and _ID.fullmatch(text) is not None


def first_id(ms: int) -> str:
    """Return the smallest id that can be created at `ms` or later.

    >>> new_id(1_800_000_000_000) >= first_id(1_800_000_000_000)
    True
    """
    return f"{ms >> 16:08x}-{ms & 0xFFFF:04x}-7000-8000-000000000000"


def new_id(now_ms: int) -> str:
    """Return a new id for `now_ms`. The ids of one process are in strict order.

    >>> new_id(1_800_000_000_000) < new_id(1_800_000_000_000) < new_id(1_800_000_000_001)
    True
    """
    global _last_ms, _count, _prefix
    with _LOCK:
        if now_ms > _last_ms or _count == 0xFFF:  # more than 4096 ids in a millisecond use the next one
            _last_ms, _count = max(now_ms, _last_ms + 1), 0
            _prefix = f"{_last_ms >> 16:08x}-{_last_ms & 0xFFFF:04x}-7"
        else:
            _count += 1
        number, prefix = _count, _prefix
    return _format_id(prefix, number)


def id_at(ms: int) -> str:
    """Return a new id whose time is exactly `ms`, also if the clock was set back since the last id.

    >>> new_id(1_900_000_000_000) > id_at(1_800_000_000_000) >= first_id(1_800_000_000_000)
    True
    """
    return _format_id(f"{ms >> 16:08x}-{ms & 0xFFFF:04x}-7", next(_NUMBERS) & 0xFFF)


def _format_id(prefix: str, number: int) -> str:
    tail = f"{_VARIANT | _RANDOM.getrandbits(62):x}"
    return f"{prefix}{number:03x}-{tail[:4]}-{tail[4:]}"
