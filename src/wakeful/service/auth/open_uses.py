"""Event streams, waiting claims and RPC connections that are open: they end with their key or session.

The store publishes the topic of a key in all processes when it is revoked or sessions of it end; then the
credentials of this key with which something is open are checked. Processes on one SQLite file do not notify
each other, so there all are also checked once a second.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context
from typing import Final
from weakref import WeakSet

from wakeful.errors import Unauthenticated, WakefulError
from wakeful.logs import get_logger
from wakeful.service.auth.access import Principal
from wakeful.store.accounts import KEYS_TOPIC
from wakeful.store.port import Store

#: Seconds between two checks if other processes send no notification, or if one was not possible.
POLL_S: Final = 1.0
#: Seconds between two checks otherwise: a key can also expire.
NOTIFIED_POLL_S: Final = 15.0

log = get_logger("wakeful.auth")


class OpenUse:
    """Something that is open with a credential. The owner must close it."""

    def __init__(
        self,
        uses: OpenUses,
        credential: str,
        authenticate: Callable[[], Awaitable[Principal]],
        end: Callable[[], object],
    ) -> None:
        self._uses = uses
        self.credential = credential
        #: the actor of the credential; None: not known yet
        self.actor: str | None = None
        self.authenticate = authenticate
        self.end = end

    def close(self) -> None:
        """Forget it: it is over."""
        self._uses.discard(self)


class OpenUses:
    """Ends what is open in this process with a credential that has ended."""

    def __init__(self, store: Store, forget: Callable[[str | None], None]) -> None:
        """`forget` drops what the process knows about a key and its sessions; None: about all."""
        self._forget = forget
        self._poll_s = NOTIFIED_POLL_S if store.notifies_other_processes else POLL_S
        # Weak: a stream whose client disconnects before it starts is never closed, only collected.
        self._open: WeakSet[OpenUse] = WeakSet()
        self._changed = asyncio.Event()
        #: those whose key or session may have ended
        self._suspects: set[OpenUse] = set()
        self._watching: asyncio.Task[None] | None = None
        store.listen(self._on_notification)

    def __len__(self) -> int:
        return len(self._open)

    def _on_notification(self, topic: str) -> None:
        kind, _, key_id = topic.partition(":")
        if kind != KEYS_TOPIC:
            return
        self._forget(key_id or None)
        actor = f"key:{key_id}"
        self._suspects.update(use for use in self._open if not key_id or use.actor in (actor, None))
        if self._suspects:
            self._changed.set()

    async def add(
        self, credential: str, authenticate: Callable[[], Awaitable[Principal]], end: Callable[[], object]
    ) -> OpenUse:
        """Call `end` when `authenticate` refuses the credential. Unauthenticated: it has ended already."""
        use = OpenUse(self, credential, authenticate, end)
        self._open.add(use)
        if self._watching is None or self._watching.done():
            # Not in the context of this request: it reads for all tenants.
            self._watching = asyncio.create_task(self._watch(), name="wakeful-credentials", context=Context())
        try:
            principal = await authenticate()  # it may have ended since the request was authenticated
        except BaseException:
            use.close()
            raise
        use.actor = principal.actor
        return use

    def discard(self, use: OpenUse) -> None:
        """Forget what is over; stop watching after the last one."""
        self._open.discard(use)
        self._suspects.discard(use)
        if not self._open and self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def close(self) -> None:
        """Stop watching: the process stops."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self._poll_s
        while self._open:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._changed.wait()
            if not await self._check_suspects():
                due = min(due, loop.time() + POLL_S)
            if loop.time() >= due:
                due = loop.time() + (self._poll_s if await self._check_all() else POLL_S)

    async def _check_suspects(self) -> bool:
        """End those of credentials that have ended. False: not all could be checked."""
        self._changed.clear()
        suspects, self._suspects = self._suspects, set()
        results = [await self._check(uses) for uses in _by_credential(suspects)]
        return all(results)

    async def _check_all(self) -> bool:
        complete = True
        for uses in _by_credential(self._open):
            if self._suspects:  # they do not wait for thousands of others
                complete &= await self._check_suspects()
            complete &= await self._check(uses)
        return complete

    async def _check(self, uses: list[OpenUse]) -> bool:
        """End the uses of a credential if it has ended. False: it could not be checked."""
        try:
            await uses[0].authenticate()
        except Unauthenticated:
            for use in uses:
                use.end()
        except WakefulError:
            return False
        except Exception:
            log.exception("auth.check_failed")
            return False
        return True


def _by_credential(uses: Iterable[OpenUse]) -> list[list[OpenUse]]:
    found: dict[str, list[OpenUse]] = {}
    for use in uses:
        found.setdefault(use.credential, []).append(use)
    return list(found.values())
