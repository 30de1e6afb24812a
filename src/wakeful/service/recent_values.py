"""What was read from the database a moment ago, so that it is not read for each request.

One rule for all: a value is used for a second after it was read, and not after it is known to have changed.
This process knows its own changes, and those of which the store notifies it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

from wakeful.store.port import Store
from wakeful.values.bounded_cache import BoundedCache

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

#: How long a value is used: changes of a process that sends no notification are visible after that.
RECENT_MS: Final = 1_000


class RecentValues(Generic[K, V]):
    """Values by key, within a budget of bytes."""

    def __init__(
        self,
        store: Store,
        budget: int,
        weigh: Callable[[V], int] = lambda value: 1_000,
        keep_ms: int = RECENT_MS,
    ) -> None:
        """`weigh` estimates the bytes of a value."""
        self._store = store
        self._values: BoundedCache[K, tuple[int, V]] = BoundedCache(budget)
        self._weigh = weigh
        self._keep_ms = keep_ms
        #: how often values were forgotten: what was read before is not kept after it
        self._forgotten = 0

    async def get(self, key: K, read: Callable[[], Awaitable[V]]) -> V:
        """Return the value; `read` it if it is not known. Its error is not kept."""
        now_ms = self._store.clock.now_ms()
        kept = self._values.get(key)
        if kept is not None and abs(now_ms - kept[0]) < self._keep_ms:
            return kept[1]
        forgotten = self._forgotten
        try:
            value = await read()
        except BaseException:
            self._values.drop(key)  # it may be gone: do not use it again if the clock is set back
            raise
        if forgotten == self._forgotten:
            self._values.put(key, (now_ms, value), self._weigh(value))
        return value

    def __iter__(self) -> Iterator[K]:
        return iter(self._values)

    def peek(self, key: K) -> V | None:
        """Return the value that was read last, however old; None: it is not known."""
        kept = self._values.get(key)
        return None if kept is None else kept[1]

    def forget(self, key: K) -> None:
        """Read this value again: it has changed."""
        self._forgotten += 1
        self._values.drop(key)

    def forget_all(self, changed: Callable[[K, V], bool] = lambda key, value: True) -> None:
        """Read all values again, or those for which `changed` is true."""
        self._forgotten += 1
        for key in self._values:
            kept = self._values.get(key)
            if kept is not None and changed(key, kept[1]):
                self._values.drop(key)
