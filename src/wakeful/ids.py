"""Ids: uuid v7 as text, so that they sort by the time they were made."""

from __future__ import annotations

import os
from random import Random
from threading import Lock
from typing import Final

# An id is a name, not a secret: the fast generator will do, seeded by the system, and anew in a forked child.
_RANDOM: Final = Random()
os.register_at_fork(after_in_child=_RANDOM.seed)
_LOCK: Final = Lock()
_last = (0, 0)


def new_id(now_ms: int) -> str:
    """A fresh id for something made at `now_ms`. Those that one process makes are in strict order.

    >>> new_id(1_800_000_000_000) < new_id(1_800_000_000_000) < new_id(1_800_000_000_001)
    True
    """
    global _last
    with _LOCK:
        ms, count = _last
        if now_ms > ms:
            ms, count = now_ms, 0
        elif count < 0xFFF:
            count += 1
        else:  # more than 4096 in one millisecond: borrow from the next
            ms, count = ms + 1, 0
        _last = (ms, count)
    digits = f"{ms << 16 | 7 << 12 | count:016x}{2 << 62 | _RANDOM.getrandbits(62):016x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
