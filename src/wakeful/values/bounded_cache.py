"""A cache that is bounded in bytes, for values parsed from text of users.

`functools.lru_cache` bounds the number of entries: thousands of texts of 64 KB take hundreds of megabytes.
Here each entry has a weight, its estimated size in bytes, and the sum of all weights stays within a budget.

There are two generations. A new entry goes to the young one; when that has half of the budget, it becomes the
old one, and the previous old one is dropped. An entry of the old generation that is used moves to the young
one. So a hit costs one dictionary lookup, and entries in use stay.

Several threads may use a cache at once. At worst a value is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from sys import getsizeof
from typing import Final, Generic, ParamSpec, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
P = ParamSpec("P")

MB: Final = 1 << 20
#: The overhead of an entry in bytes: tuple, key and dictionary slot.
_OVERHEAD: Final = 256

_bypassed: ContextVar[bool] = ContextVar("bypassed", default=False)


class BoundedCache(Generic[K, V]):
    """A mapping within a budget of bytes.

    >>> cache = BoundedCache[str, int](budget=4_096)
    >>> cache.put("a", 1, weight=100)
    >>> cache.get("a"), cache.get("b"), cache.weight <= 4_096
    (1, None, True)
    """

    __slots__ = ("_budget", "_old", "_old_weight", "_young", "_young_weight")

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self.clear()

    def get(self, key: K) -> V | None:
        """Return the value; None if there is none, or if it is None."""
        found = self.find(key)
        return None if found is None else found[0]

    def find(self, key: K) -> tuple[V, int] | None:
        """Return the value with its weight; None if there is none."""
        found = self._young.get(key)
        if found is None:
            found = self._old.pop(key, None)
            if found is not None:
                self._old_weight -= found[1]
                self._add(key, found)
        return found

    def put(self, key: K, value: V, weight: int) -> None:
        """Store a value, unless the caller is in `bypass()` or the value is too large."""
        weight += _OVERHEAD
        if weight > self._budget // 2 or _bypassed.get():
            return
        self.drop(key)
        self._add(key, (value, weight))

    def drop(self, key: K) -> None:
        """Remove a value."""
        if (found := self._young.pop(key, None)) is not None:
            self._young_weight -= found[1]
        if (found := self._old.pop(key, None)) is not None:
            self._old_weight -= found[1]

    def clear(self) -> None:
        """Remove all values."""
        self._young: dict[K, tuple[V, int]] = {}
        self._old: dict[K, tuple[V, int]] = {}
        self._young_weight = self._old_weight = 0

    def __iter__(self) -> Iterator[K]:
        """Iterate over a copy of the keys: values may be dropped meanwhile."""
        return iter([*self._young, *self._old])

    @property
    def weight(self) -> int:
        """The estimated size of all entries, in bytes."""
        return self._young_weight + self._old_weight

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def _add(self, key: K, entry: tuple[V, int]) -> None:
        if self._young_weight + entry[1] > self._budget // 2:
            self._old, self._old_weight = self._young, self._young_weight
            self._young, self._young_weight = {}, 0
        self._young[key] = entry
        self._young_weight += entry[1]


def bounded_cache(budget: int, weigh: Callable[..., int]) -> Callable[[Callable[P, V]], Callable[P, V]]:
    """Return a decorator that caches results by positional arguments, within a budget.

    `weigh(value, *arguments)` estimates the bytes of an entry.

    >>> @bounded_cache(1 * MB, lambda value, text: text_size(text, value))
    ... def shout(text: str) -> str:
    ...     return text.upper()
    >>> shout("hello"), shout("hello") is shout("hello")
    ('HELLO', True)
    """

    def decorate(function: Callable[P, V]) -> Callable[P, V]:
        cache: BoundedCache[tuple[object, ...], V] = BoundedCache(budget)
        find = cache.find

        @wraps(function)
        def cached(*args: P.args, **kwargs: P.kwargs) -> V:
            found = cache._young.get(args) or find(args)
            if found is not None:
                return found[0]
            value = function(*args, **kwargs)
            cache.put(args, value, weigh(value, *args))
            return value

        cached.cache = cache  # type: ignore[attr-defined]
        return cached

    return decorate


@contextmanager
def bypass() -> Iterator[None]:
    """Store nothing in any cache in this context: for a dry run, whose document may not be used again."""
    token = _bypassed.set(True)
    try:
        yield
    finally:
        _bypassed.reset(token)


def text_size(*texts: str) -> int:
    """Return the size of texts in memory in bytes."""
    return sum(map(getsizeof, texts))
