"""Write in one transaction what concurrent callers add.

A commit costs the same for one item as for a hundred. A single item is written at once; items that arrive
while a batch is written are the next batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from typing import Final, Generic, TypeVar

from wakeful.errors import Unavailable
from wakeful.store.idempotency import current_claim
from wakeful.store.sql.driver import LockTimeout

T = TypeVar("T")
R = TypeVar("R")

#: A batch that is written for so many seconds waits for a lock: others need not wait for it.
_LATE_S: Final = 0.05


def may_be_of_one(error: Exception) -> bool:
    """Return whether one item of a batch may be why nothing was written, such as one that another locks."""
    return not isinstance(error, Unavailable) or isinstance(error, LockTimeout)


def in_rounds(items: Sequence[T], key: Callable[[T], Hashable]) -> Iterator[list[T]]:
    """Yield the items in lists without two of the same key. Those of one key stay in their order.

    >>> list(in_rounds(["a1", "b1", "a2"], lambda item: item[0]))
    [['a1', 'b1'], ['a2']]
    """
    while items:
        first: dict[Hashable, T] = {}
        later = [item for item in items if first.setdefault(key(item), item) is not item]
        yield list(first.values())
        items = later


class _Pending(Generic[T, R]):
    """An item that is not written yet, and its caller."""

    __slots__ = ("item", "result")

    def __init__(self, item: T, result: asyncio.Future[R]) -> None:
        self.item = item
        self.result = result

    def settle(self, result: R | BaseException) -> None:
        if self.result.done():  # the caller was cancelled
            return
        if isinstance(result, asyncio.CancelledError):
            self.result.cancel()
        elif isinstance(result, BaseException):
            self.result.set_exception(result)
        else:
            self.result.set_result(result)


class Batcher(Generic[T, R]):
    """Collects items and writes them, one batch after the other, in the order in which they were added."""

    def __init__(
        self,
        name: str,
        write: Callable[[Sequence[T]], Awaitable[Sequence[R | Exception]]],
        *,
        most: int,
        weigh: Callable[[T], int] = lambda item: 1,
        group: Callable[[T], Hashable] = lambda item: None,
        distinct: Callable[[T], Hashable] | None = None,
        lock: Callable[[T], Hashable] | None = None,
        is_of_one: Callable[[Exception], bool] = may_be_of_one,
    ) -> None:
        """Write batches with `write`, which returns for each item its result or its own error.

        If `write` raises an error that one item may have caused (`is_of_one`), it is called for each item
        alone. Other errors are those of all items of the batch.

        `most` bounds the sum of the weights of a batch; an item that is heavier is a batch of its own. The
        items of a batch have the same `group`, and no two of them are equal in `distinct`.

        With `lock`, what the write of an item may wait for, a batch that takes long holds up only the items
        with the same locks; the others are written meanwhile.
        """
        self._name = name
        self._write = write
        self._most = most
        self._weigh = weigh
        self._group = group
        self._distinct = distinct
        self._is_of_one = is_of_one
        self._lock = lock
        self._waiting: list[_Pending[T, R]] = []
        self._writing: asyncio.Task[None] | None = None
        #: writers whose batch takes long, and what they may wait for
        self._late: set[asyncio.Task[None]] = set()
        self._locked: set[Hashable] = set()

    async def add(self, item: T) -> R:
        """Write an item and return its result, or raise its error.

        A caller that is cancelled before the write of its batch begins has written nothing.
        """
        loop = asyncio.get_running_loop()
        pending: _Pending[T, R] = _Pending(item, loop.create_future())
        self._waiting.append(pending)
        self._start()
        return await pending.result

    def _start(self) -> None:
        if self._writing is None or self._writing.done():
            loop = asyncio.get_running_loop()
            self._writing = loop.create_task(self._write_waiting(), name=self._name)

    def _pass_on(self) -> None:
        """Let another writer continue: the batch of this one takes long."""
        if self._writing is not None:
            self._late.add(self._writing)
            self._writing.add_done_callback(self._late.discard)
            self._writing = None
            self._start()

    async def _write_waiting(self) -> None:
        current_claim.set(None)  # of the request that started this task
        batch: Sequence[_Pending[T, R]] = ()
        try:
            while batch := self._next_batch():
                if self._lock is None:
                    await self._write_batch(batch)
                    continue
                locks = {self._lock(pending.item) for pending in batch}
                self._locked |= locks
                late = asyncio.get_running_loop().call_later(_LATE_S, self._pass_on)
                try:
                    await self._write_batch(batch)
                finally:
                    late.cancel()
                    self._locked -= locks
                if asyncio.current_task() in self._late:
                    if self._waiting:
                        self._start()
                    return
        except BaseException as error:  # the process stops, or this program has an error
            for pending in (*batch, *self._waiting):
                pending.settle(error)
            self._waiting.clear()
            raise

    def _next_batch(self) -> Sequence[_Pending[T, R]]:
        """Remove the next batch. No item is in it before an earlier one of its group, or equal to it."""
        batch: list[_Pending[T, R]] = []
        left: list[_Pending[T, R]] = []
        seen: set[Hashable] = set()
        group: Hashable = None
        weight = 0
        for pending in self._waiting:
            item = pending.item
            if pending.result.done():  # the caller was cancelled
                continue
            if self._lock and self._lock(item) in self._locked:
                left.append(pending)
                continue
            if not batch:
                group = self._group(item)
            elif self._group(item) != group or (self._distinct and self._distinct(item) in seen):
                left.append(pending)
                continue
            weight += self._weigh(item)
            if batch and weight > self._most:  # later ones that are lighter wait, too
                left.append(pending)
                continue
            batch.append(pending)
            if self._distinct:
                seen.add(self._distinct(item))
        self._waiting = left
        return batch

    async def _write_batch(self, batch: Sequence[_Pending[T, R]]) -> None:
        try:
            results = await self._write([pending.item for pending in batch])
        except Exception as error:
            if len(batch) > 1 and self._is_of_one(error):
                await self._write_each(batch)
                return
            for pending in batch:
                pending.settle(error)
        else:
            for pending, result in zip(batch, results, strict=True):
                pending.settle(result)

    async def _write_each(self, batch: Sequence[_Pending[T, R]]) -> None:
        """Write each item alone after a batch failed because of one of them."""
        for number, pending in enumerate(batch):
            if pending.result.done():
                continue
            try:
                (result,) = await self._write([pending.item])
            except Exception as error:
                if not self._is_of_one(error):
                    for rest in batch[number:]:
                        rest.settle(error)
                    return
                pending.settle(error)
            else:
                pending.settle(result)
