"""What an instance remembers besides its state: when each type was handled last, and which keys were seen.

It is bounded, and stored as compact JSON next to the state. It changes only with the outcome of a run.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final

from wakeful.values.json_value import Json, compact
from wakeful.values.stored_text import is_storable

#: How many keys of `ctx.seen`, and how many types of signals, an instance remembers. The oldest go first.
MAX_KEYS: Final = 1_000
MAX_TYPES: Final = 100
#: A longer key is remembered by its digest, as is one that cannot be stored.
_LONGEST_KEY: Final = 64


class Memory:
    """The memory of an instance while one signal is handled.

    >>> memory = Memory(None)
    >>> memory.see("order-7", now_ms=1, keep_ms=10), memory.see("order-7", now_ms=2, keep_ms=10)
    (False, True)
    >>> memory.written("order.paid", now_ms=2, keep_ms=10)
    '{"runs":{"order.paid":2},"seen":{"order-7":1}}'
    """

    __slots__ = ("_runs", "_seen")

    def __init__(self, text: str | None) -> None:
        stored = _loaded(text)
        self._runs = _times(stored.get("runs"))
        self._seen = _times(stored.get("seen"))

    def last_run_ms(self, type: str) -> int | None:
        """Return when a signal of this type was handled last."""
        return self._runs.get(type)

    def see(self, key: str, now_ms: int, keep_ms: int) -> bool:
        """Return whether the key was seen in the last `keep_ms`; from now on it was."""
        if len(key) > _LONGEST_KEY or not is_storable(key):
            key = hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
        seen_ms = self._seen.get(key)
        if seen_ms is not None and seen_ms > now_ms - keep_ms:
            return True
        self._seen.pop(key, None)  # a key that is seen again becomes the newest
        self._seen[key] = now_ms
        return False

    def written(self, type: str, now_ms: int, keep_ms: int) -> str:
        """Return the memory as text after a signal of this type was handled."""
        self._runs.pop(type, None)
        self._runs[type] = now_ms
        if len(self._runs) > MAX_TYPES:
            self._runs = dict(list(self._runs.items())[-MAX_TYPES:])
        value: dict[str, Json] = {"runs": {**self._runs}}
        if self._seen:
            fresh = [(key, ms) for key, ms in self._seen.items() if ms > now_ms - keep_ms]
            value["seen"] = dict(fresh[-MAX_KEYS:])
        return compact(value)


def _loaded(text: str | None) -> dict[str, object]:
    """Return the stored object; an empty one for text that cannot be read: it only avoids repetition."""
    try:
        value = json.loads(text) if text else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _times(value: object) -> dict[str, int]:
    if not value or not isinstance(value, dict):
        return {}
    return {key: ms for key, ms in value.items() if isinstance(ms, int)}
