"""Connections between calls: not each call takes one from asyncpg's pool and returns it.

A connection that a call has finished with is kept for the next call, and returns to the pool within a second.
The pool does the rest: it connects, closes connections that are broken, expired or long unused, and waits for
statements that were cancelled.

A statement outside of a transaction is planned for its arguments. A call that is one statement with a good
plan for any arguments (`generic`) uses a connection that keeps the plans of its statements. Which ones do is
known here: the setting of a connection changes only when no other is free, and before it returns to the pool.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Final

import asyncpg

from wakeful.store.postgres.connect import CONNECT_S
from wakeful.store.postgres.session import Db
from wakeful.store.sql.driver import is_urgent

#: How long connections are kept, at most.
KEPT_S: Final = 1.0
#: How long the server is asked for no connection after it has refused one because it has too many.
FULL_S: Final = 1.0
_CUSTOM: Final = "SET plan_cache_mode = force_custom_plan"
_GENERIC: Final = "SET plan_cache_mode = force_generic_plan"


class KeptConnections:
    """A pool of connections, and those of them that no call uses at the moment."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self.pool = pool
        self._kept: list[Db] = []
        #: those that keep the plans of their statements
        self._generic: set[Db] = set()
        #: those that calls use which may be kept: they have not expired meanwhile
        self._fresh: set[Db] = set()
        #: how many calls wait for the pool, which gets all connections until they have theirs
        self._waiting = 0
        #: calls that wait for the connection of another one, and until when none is asked of the server
        self._refused: deque[asyncio.Future[Db | None]] = deque()
        self._full_until = 0.0
        self._due: asyncio.TimerHandle | None = None
        self._returns: set[asyncio.Task[None]] = set()
        self._closed = False

    async def take(self, *, generic: bool = False) -> Db:
        """Return a connection for one call; with `generic`, one that keeps the plans of its statements."""
        db = await self._take(generic)
        if (db in self._generic) is not generic:
            try:
                await db.execute(_GENERIC if generic else _CUSTOM)
            except BaseException:
                self._generic.add(db)  # perhaps it keeps plans now
                self.give_back(db, failed=True)
                raise
            self._generic ^= {db}
        return db

    async def _take(self, generic: bool) -> Db:
        while self._kept:
            place = next(
                (i for i in reversed(range(len(self._kept))) if (self._kept[i] in self._generic) is generic),
                -1,
            )
            db = self._kept.pop(place)
            if _is_open(db):
                self._fresh.add(db)
                return db
            self._start_return(db)
        self._waiting += 1
        try:
            return await self._acquire()
        finally:
            self._waiting -= 1

    async def _acquire(self) -> Db:
        """Take a connection from the pool. If the server accepts no more, wait for one of those there are."""
        time = asyncio.get_running_loop().time
        until = time() + CONNECT_S
        while True:
            is_full = time() < min(self._full_until, until) and not self.pool.get_idle_size()
            if not is_full or not self.pool.get_size():
                try:
                    db = await self.pool.acquire(timeout=CONNECT_S)
                except asyncpg.TooManyConnectionsError:
                    self._full_until = time() + FULL_S
                    if time() >= until or not self.pool.get_size():
                        raise
                else:
                    self._fresh.add(db)
                    return db
            handed = await self._wait_for_another()
            if handed is not None:
                return handed

    async def _wait_for_another(self) -> Db | None:
        """Return the next connection that a call gives back; None: look in the pool again."""
        waiter: asyncio.Future[Db | None] = asyncio.get_running_loop().create_future()
        (self._refused.appendleft if is_urgent.get() else self._refused.append)(waiter)
        try:
            await asyncio.wait({waiter}, timeout=FULL_S / 20 if self.pool.get_idle_size() else FULL_S)
        except asyncio.CancelledError:
            if waiter.done() and (db := waiter.result()) is not None:
                self.give_back(db)
            raise
        finally:
            if not waiter.done():
                self._refused.remove(waiter)
        return waiter.result() if waiter.done() else None

    def give_back(self, db: Db, *, failed: bool = False, began: bool = False) -> asyncio.Task[None] | None:
        """End the use of a connection. Returns the task that returns it to the pool; None: it is kept.

        `failed`: its call did, and if it `began` a transaction, that is rolled back. If the server does not
        respond, neither must the caller wait, nor must its cancellation become another error: so a task does
        all this.
        """
        expired = db not in self._fresh
        self._fresh.discard(db)
        if failed or expired or self._closed or not _is_open(db) or db.is_in_transaction():
            return self._start_return(db, undo=failed and began)
        if self._refused:
            self._fresh.add(db)
            self._refused.popleft().set_result(db)
            return None
        if self._waiting:
            return self._start_return(db)
        self._kept.append(db)
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(KEPT_S, self.return_all)
        return None

    def return_all(self) -> None:
        """Return the connections that no call uses to the pool, in the background."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        kept, self._kept = self._kept, []
        for db in kept:
            self._start_return(db)

    def _start_return(self, db: Db, *, undo: bool = False) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._return(db, undo))
        self._returns.add(task)
        task.add_done_callback(self._returns.discard)
        return task

    async def _return(self, db: Db, undo: bool) -> None:
        """Return a connection to the pool; close it if that fails."""
        generic = db in self._generic
        self._generic.discard(db)
        try:
            if undo:  # waits until a statement that was cancelled has ended
                await db.execute("ROLLBACK", timeout=CONNECT_S)
            if generic:
                await db.execute(_CUSTOM, timeout=CONNECT_S)
            await self.pool.release(db)
        except Exception:  # such as one of a connection that is cut: the pool connects again
            _end(db)
        if self._refused:
            self._refused.popleft().set_result(None)

    async def expire(self) -> None:
        """Replace the connections that are idle now, and the others after their call."""
        self._fresh.clear()
        await self.pool.expire_connections()
        self.return_all()

    async def close(self) -> None:
        """Disconnect, after the calls in progress."""
        self._closed = True
        self.return_all()
        await self.pool.close()

    def terminate(self) -> None:
        """Disconnect at once."""
        self.pool.terminate()


def _end(db: Db) -> None:
    """Disconnect at once; the pool connects again."""
    with contextlib.suppress(asyncpg.InterfaceError):  # the pool noticed first that it is closed
        db.terminate()


def _is_open(db: Db) -> bool:
    try:
        return not db.is_closed()
    except asyncpg.InterfaceError:  # the pool noticed it first
        return False
