"""Event streams, waiting claims and RPC connections that are open: they end with their key or session.

The store publishes `KEYS_TOPIC` in all processes when keys are revoked or sessions end; then every credential
with which something is open is checked. Processes on one SQLite file do not notify each other, so there they
are also checked once a second.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final
from weakref import WeakSet

from wakeful.errors import Unauthenticated, WakefulError
from wakeful.logs import get_logger
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
        authenticate: Callable[[], Awaitable[object]],
        end: Callable[[], object],
    ) -> None:
        self._uses = uses
        self.credential = credential
        self.authenticate = authenticate
        self.end = end

    def close(self) -> None:
        """Forget it: it is over."""
        self._uses.discard(self)


class OpenUses:
    """Ends what is open in this process with a credential that has ended."""

    def __init__(self, store: Store, forget: Callable[[], None]) -> None:
        """`forget` drops what the process knows about keys and sessions."""
        self._forget = forget
        self._poll_s = NOTIFIED_POLL_S if store.notifies_other_processes else POLL_S
        # Weak: a stream whose client disconnects before it starts is never closed, only collected.
        self._open: WeakSet[OpenUse] = WeakSet()
        self._changed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        store.listen(self._on_notification)

    def __len__(self) -> int:
        return len(self._open)

    def _on_notification(self, topic: str) -> None:
        if topic == KEYS_TOPIC:
            self._forget()
            self._changed.set()

    async def add(
        self, credential: str, authenticate: Callable[[], Awaitable[object]], end: Callable[[], object]
    ) -> OpenUse:
        """Call `end` when `authenticate` refuses the credential. Unauthenticated: it has ended already."""
        use = OpenUse(self, credential, authenticate, end)
        self._open.add(use)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(), name="wakeful-credentials")
        try:
            await authenticate()  # it may have ended since the request was authenticated
        except BaseException:
            use.close()
            raise
        return use

    def discard(self, use: OpenUse) -> None:
        """Forget what is over; stop watching after the last one."""
        self._open.discard(use)
        if not self._open and self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def close(self) -> None:
        """Stop watching: the process stops."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})

    async def _watch(self) -> None:
        wait_s = self._poll_s
        while self._open:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            self._changed.clear()
            wait_s = self._poll_s if await self._check() else POLL_S

    async def _check(self) -> bool:
        """End the uses of credentials that have ended. False: not all could be checked."""
        by_credential: dict[str, list[OpenUse]] = {}
        for use in self._open:
            by_credential.setdefault(use.credential, []).append(use)
        complete = True
        for uses in by_credential.values():
            try:
                await uses[0].authenticate()
            except Unauthenticated:
                for use in uses:
                    use.end()
            except WakefulError:
                complete = False
            except Exception:
                log.exception("auth.check_failed")
                complete = False
        return complete
