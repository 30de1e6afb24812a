"""Limits on open connections (RPC and event streams), in total and per key.

The limits hold per process. Connections that are not authenticated yet have a limit of their own, so that
they use no slots of authenticated ones.
"""

from __future__ import annotations

from collections import Counter
from typing import Final
from weakref import WeakSet

from wakeful.errors import ResourceExhausted
from wakeful.settings import PREFIX

#: No limit.
UNLIMITED: Final = 0


class TooManyConnections(ResourceExhausted):
    """The connection limit is reached."""

    retry_after_s = 1


class ConnectionSlot:
    """The slot of one connection. The owner must release it."""

    def __init__(self, limits: ConnectionLimits, kind: str) -> None:
        self._limits = limits
        self.kind = kind
        #: the actor of the connection, once it is authenticated
        self.actor: str | None = None

    def assign(self, actor: str) -> None:
        """Assign the slot to an actor; TooManyConnections if a limit is reached."""
        if actor != self.actor:
            if self.actor is None:
                self._limits.check_total()
            self._limits.check_actor(actor)
            self.actor = actor

    def release(self) -> None:
        """Free the slot: the connection is closed."""
        self._limits.discard(self)


class ConnectionLimits:
    """The open connections of this process, and their limits."""

    def __init__(self, most: int, most_of_one: int, most_unauthenticated: int) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._most_unauthenticated = most_unauthenticated
        # Weak: a stream whose client disconnects before it starts is never closed, only collected.
        self._taken: WeakSet[ConnectionSlot] = WeakSet()

    def acquire(self, kind: str, actor: str | None = None) -> ConnectionSlot:
        """Return a slot, or raise TooManyConnections. Without an actor it is not authenticated yet.

        >>> limits = ConnectionLimits(2, 1, UNLIMITED)
        >>> ada, bob = limits.acquire("rpc", "key:ada"), limits.acquire("rpc", "key:bob")
        >>> bob.release()
        >>> limits.acquire("events", "key:ada")
        Traceback (most recent call last):
        wakeful.service.auth.connection_limits.TooManyConnections: this key has 1 connections open...
        """
        slot = ConnectionSlot(self, kind)
        if actor is not None:
            slot.assign(actor)
        elif self._most_unauthenticated and self._count(None) >= self._most_unauthenticated:
            raise TooManyConnections(
                f"this server has {self._most_unauthenticated} connections open that are not authenticated "
                f"({PREFIX}MAX_UNAUTHENTICATED_CONNECTIONS); send the key in a header, or try again later"
            )
        self._taken.add(slot)
        return slot

    def check_total(self) -> None:
        """Raise TooManyConnections if the limit of authenticated connections is reached."""
        if self._most and len(self._taken) - self._count(None) >= self._most:
            raise TooManyConnections(
                f"this server has {self._most} connections open, which is its limit "
                f"({PREFIX}MAX_CONNECTIONS); try another replica, or try again later"
            )

    def check_actor(self, actor: str) -> None:
        """Raise TooManyConnections if the actor has as many connections as one may have."""
        if not self._most_of_one:
            return
        if self._count(actor) >= self._most_of_one:
            raise TooManyConnections(
                f"this key has {self._most_of_one} connections open, which is the limit of one key "
                f"({PREFIX}MAX_CONNECTIONS_PER_KEY); close one first"
            )

    def _count(self, actor: str | None) -> int:
        return sum(slot.actor == actor for slot in self._taken)

    def discard(self, slot: ConnectionSlot) -> None:
        """Remove a slot whose connection is closed."""
        self._taken.discard(slot)

    def open(self) -> Counter[str]:
        """Return the number of open connections, by kind."""
        return Counter(slot.kind for slot in self._taken)
