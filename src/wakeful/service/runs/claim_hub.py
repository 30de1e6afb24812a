"""The claims of all executors that this process serves.

Claims of one workspace that come together ask the database in one transaction, one after the other; those of
other workspaces do not wait for them. A claim that waits costs nothing: one statement for all of them looks
which runs can be claimed, when runs change, when one becomes due, and once a second, because a notification
may be missing. Those that wait for the runs it finds ask again, in the order in which they came.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from contextvars import Context
from itertools import count
from typing import Final

from wakeful.errors import Unavailable
from wakeful.store.claim_requests import ClaimedRun, ClaimRequest, ClaimScope
from wakeful.store.port import Store
from wakeful.store.sql.driver import current_tenant
from wakeful.values.bounded_cache import MB, BoundedCache

#: Seconds between two looks: other processes on an SQLite file send no notification.
POLL_S: Final = 1.0
#: A look that takes a millisecond is followed by a pause of so many, however often runs change meanwhile; one
#: that the database held up, by at most `POLL_S`.
_PAUSE: Final = 9
#: The most runs and names of the claims in one transaction; a claim with more is alone.
_MOST: Final = 256
#: Seconds until transactions under way are cancelled when the process stops.
_CLOSE_S: Final = 5.0


class Waiter:
    """A claim that is not answered yet."""

    __slots__ = ("asked", "in_flight", "is_over", "request", "result", "timer", "topic", "until")

    def __init__(self, request: ClaimRequest, topic: str, until: float) -> None:
        self.request = request
        self.topic = topic
        #: the time of the event loop until which it waits
        self.until = until
        self.result: asyncio.Future[list[ClaimedRun]] = asyncio.get_running_loop().create_future()
        #: the number of the event since which it has to ask; 0: it waits
        self.asked = 0
        #: whether a transaction is under way that may give it runs
        self.in_flight = False
        #: whether it waits no longer than for that transaction
        self.is_over = False
        self.timer: asyncio.TimerHandle | None = None

    @property
    def scope(self) -> ClaimScope:
        """Which runs it asks for."""
        return self.request.scope

    @property
    def weight(self) -> int:
        """What it adds to a transaction."""
        return self.request.limit + len(self.scope.agents or ()) + len(self.scope.lanes or ())


class ClaimHub:
    """Asks for the runs of all claims."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: by workspace, in the order in which they came
        self._waiters: dict[str, dict[Waiter, None]] = {}
        #: how many of them wait for a look, by scope
        self._idle: dict[ClaimScope, int] = {}
        #: the scopes to look at next, and when runs of the others are due
        self._changed: set[ClaimScope] = set()
        self._due_ms: dict[ClaimScope, int] = {}
        #: whether a scope had no runs when it was last asked for
        self._quiet: BoundedCache[ClaimScope, bool] = BoundedCache(MB)
        self._numbers = count(1)
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()

    # --- claims -----------------------------------------------------------------------------------

    def join(self, request: ClaimRequest, topic: str, until: float) -> Waiter:
        """Ask for runs; wait for the first one until that time of the event loop.

        The result of the waiter has no runs if there are none until then. A caller that does not wait for it
        any more calls `leave`.
        """
        waiter = Waiter(request, topic, until)
        scope = request.scope
        self._waiters.setdefault(scope.workspace, {})[waiter] = None
        waits_s = until - asyncio.get_running_loop().time()
        if waits_s >= POLL_S and (scope in self._idle or self._quiet.get(scope)):
            self._wait(waiter)  # behind those before it; the look finds what there is
        else:
            self._ask([waiter])
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """Do not wait any longer. The result has runs only if they are being claimed already."""
        waiter.is_over = True
        if not waiter.in_flight and not waiter.result.done():
            self._settle(waiter, [])

    def end(self, topic: str | None = None) -> None:
        """Answer the claims of this topic, or all, without runs."""
        for waiters in list(self._waiters.values()):
            for waiter in [each for each in waiters if topic in (None, each.topic)]:
                self.leave(waiter)

    def notify(self, workspace: str | None = None) -> None:
        """Look for runs: some of this workspace, or of any, may have become claimable."""
        self._look(scope for scope in self._idle if workspace in (None, scope.workspace))

    async def close(self) -> None:
        """Answer all claims, and wait for the transactions that are under way."""
        self.end()
        watching, self._watching = self._watching, None
        if watching is not None and not watching.done():  # one of an earlier event loop is
            watching.cancel()
            await asyncio.wait({watching})
        asking = set(self._asking.values())
        if asking:
            _, late = await asyncio.wait(asking, timeout=_CLOSE_S)
            for task in late:
                task.cancel()
            await asyncio.wait(asking)

    def _settle(self, waiter: Waiter, result: list[ClaimedRun] | Exception) -> None:
        waiters = self._waiters[waiter.scope.workspace]
        del waiters[waiter]
        if not waiters:
            del self._waiters[waiter.scope.workspace]
        if waiter.timer is not None:
            waiter.timer.cancel()
            self._idle[waiter.scope] -= 1
            if not self._idle[waiter.scope]:
                del self._idle[waiter.scope]
                self._due_ms.pop(waiter.scope, None)
        if isinstance(result, Exception):
            waiter.result.set_exception(result)
        else:
            waiter.result.set_result(result)

    # --- claims that ask --------------------------------------------------------------------------

    def _ask(self, waiters: Iterable[Waiter]) -> None:
        for waiter in waiters:
            waiter.asked = waiter.asked or next(self._numbers)
            workspace = waiter.scope.workspace
            if workspace not in self._asking:
                self._asking[workspace] = asyncio.create_task(
                    self._ask_for(workspace), name="wakeful-claim", context=Context()
                )

    async def _ask_for(self, workspace: str) -> None:
        """Ask for the runs of a workspace until no claim of it has to."""
        current_tenant.set(workspace)
        try:
            while batch := self._next_batch(workspace):
                await self._claim(workspace, batch)
        finally:
            del self._asking[workspace]
            for waiter in [each for each in self._waiters.get(workspace, ()) if each.in_flight]:
                self._settle(waiter, Unavailable("the server is stopping; try again"))

    def _next_batch(self, workspace: str) -> list[Waiter]:
        """Return the claims of the next transaction: those that ask, and all others of the same scopes."""
        waiters = self._waiters.get(workspace, ())
        scopes = {waiter.scope for waiter in waiters if waiter.asked}
        batch: list[Waiter] = []
        weight = 0
        for waiter in waiters if scopes else ():
            if waiter.scope in scopes:
                weight += waiter.weight
                if batch and weight > _MOST:
                    break
                batch.append(waiter)
        return batch

    async def _claim(self, workspace: str, batch: Sequence[Waiter]) -> None:
        number = next(self._numbers)
        for waiter in batch:
            waiter.asked, waiter.in_flight = 0, True
        try:
            requests = [waiter.request for waiter in batch]
            given = await self._store.claim(self._store.clock.now_ms(), workspace, requests)
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, Unavailable):  # one of them may be the cause
                for waiter in batch:
                    await self._claim(workspace, [waiter])
                return
            for waiter in batch:
                self._settle(waiter, error)
        else:
            self._give(batch, given, number)

    def _give(self, batch: Sequence[Waiter], given: Sequence[list[ClaimedRun]], number: int) -> None:
        """Answer those that got runs, or do not wait. For the others there are none."""
        emptied: set[ClaimScope] = set()
        for waiter, runs in zip(batch, given, strict=True):
            waiter.in_flight = False
            if len(runs) < waiter.request.limit:
                emptied.add(waiter.scope)
            if runs:
                self._settle(waiter, runs)
            else:
                self._wait(waiter)
        for scope in {waiter.scope for waiter in batch}:
            self._quiet.put(scope, scope in emptied, scope.size)
        # Those of the same scope that asked before, and that the transaction had no place for.
        for waiter in list(self._waiters.get(batch[0].scope.workspace, ())):
            if 0 < waiter.asked < number and waiter.scope in emptied:
                waiter.asked = 0
                self._wait(waiter)

    # --- claims that wait -------------------------------------------------------------------------

    def _wait(self, waiter: Waiter) -> None:
        """Let a claim wait until runs are found, or its time is over."""
        loop = asyncio.get_running_loop()
        if waiter.is_over or waiter.until <= loop.time():
            self._settle(waiter, [])
        elif waiter.timer is None:
            waiter.timer = loop.call_at(waiter.until, self._expire, waiter)
            if waiter.scope not in self._idle:
                self._look([waiter.scope])
            self._idle[waiter.scope] = self._idle.get(waiter.scope, 0) + 1

    def _expire(self, waiter: Waiter) -> None:
        if not waiter.in_flight:
            self._settle(waiter, [])

    def _look(self, scopes: Iterable[ClaimScope]) -> None:
        self._changed.update(scopes)
        if self._changed:
            if self._watching is None or self._watching.done():
                self._woken = asyncio.Event()  # a scheduler that starts again may have another event loop
                self._watching = asyncio.create_task(
                    self._watch(), name="wakeful-claimable", context=Context()
                )
            self._woken.set()

    async def _watch(self) -> None:
        """Find the claims that have to ask, as long as any wait."""
        loop = asyncio.get_running_loop()
        poll_at = loop.time() + POLL_S
        while self._idle:
            self._woken.clear()
            if loop.time() >= poll_at:
                poll_at = loop.time() + POLL_S
                self._changed.update(self._idle)
            now_ms = self._store.clock.now_ms()
            self._changed.update(scope for scope, due_ms in self._due_ms.items() if due_ms <= now_ms)
            scopes = [scope for scope in self._changed if scope in self._idle]
            self._changed.clear()
            if scopes:
                began = loop.time()
                await self._find(now_ms, scopes)
                await asyncio.sleep(min(POLL_S, _PAUSE * (loop.time() - began)))
            next_ms = min(self._due_ms.values(), default=None)
            pause_s = poll_at - loop.time()
            if next_ms is not None:
                pause_s = min(pause_s, (next_ms - self._store.clock.now_ms()) / 1000)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, pause_s)):
                    await self._woken.wait()

    async def _find(self, now_ms: int, scopes: Sequence[ClaimScope]) -> None:
        """Let the claims ask for which there are runs, and note when the next runs of the others are due."""
        try:
            found = await self._store.claimable_ms(now_ms, scopes)
        except Exception as error:
            if len(scopes) > 1 and not isinstance(error, Unavailable):  # one of them may be the cause
                for scope in scopes:
                    await self._find(now_ms, [scope])
                return
            for waiter in self._idle_waiters(scopes):
                if not waiter.in_flight:
                    self._settle(waiter, error)
            return
        claimable = []
        for scope, due_ms in zip(scopes, found, strict=True):
            self._due_ms.pop(scope, None)
            if due_ms is not None and due_ms <= now_ms:
                claimable.append(scope)
            elif due_ms is not None and scope in self._idle:
                self._due_ms[scope] = due_ms
        self._ask(self._idle_waiters(claimable))

    def _idle_waiters(self, scopes: Sequence[ClaimScope]) -> list[Waiter]:
        wanted = set(scopes)
        return [
            waiter
            for workspace in dict.fromkeys(scope.workspace for scope in scopes)
            for waiter in self._waiters.get(workspace, ())
            if waiter.timer is not None and waiter.scope in wanted
        ]
