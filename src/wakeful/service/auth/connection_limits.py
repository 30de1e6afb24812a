"""How many connections may stay open at once, in all and of one key: those of RPC and of streams of events.

A request is over soon; what stays open is memory and a place that nobody else has. Counted is what this
process serves. Connections whose client has not authenticated yet are counted by themselves, so that they
take no place from those that have.
"""

from __future__ import annotations

from collections import Counter
from typing import Final
from weakref import WeakSet

from wakeful.errors import ResourceExhausted
from wakeful.settings import PREFIX

#: Any number.
UNLIMITED: Final = 0


class TooManyConnections(ResourceExhausted):
    """The connection limit is reached."""

    retry_after_s = 1


class ConnectionSlot:
    """One connection. Leave it."""

    def __init__(self, places: ConnectionLimits, kind: str) -> None:
        self._places = places
        self.kind = kind
        #: whose it is, once that is known
        self.actor: str | None = None

    def belong(self, actor: str) -> None:
        """It is theirs from now on; TooMany where there are as many as there may be, in all or of theirs."""
        if actor != self.actor:
            if self.actor is None:
                self._places.check_all()
            self._places.check(actor)
            self.actor = actor

    def leave(self) -> None:
        """The connection is over."""
        self._places.forget(self)


class ConnectionLimits:
    """All that there are."""

    def __init__(self, most: int, most_of_one: int, most_unauthenticated: int) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._most_unauthenticated = most_unauthenticated
        # Weak: a stream whose client went before it began is never closed, only forgotten.
        self._taken: WeakSet[ConnectionSlot] = WeakSet()

    def take(self, kind: str, actor: str | None = None) -> ConnectionSlot:
        """A place for a connection, or TooMany. Without an actor it is not authenticated yet.

        >>> limits = ConnectionLimits(2, 1, UNLIMITED)
        >>> ada, bob = limits.take("rpc", "key:ada"), limits.take("rpc", "key:bob")
        >>> bob.leave()
        >>> limits.take("events", "key:ada")
        Traceback (most recent call last):
        wakeful.service.auth.connection_limits.TooMany: this key has 1 connections open, which is all that...
        """
        place = ConnectionSlot(self, kind)
        if actor is not None:
            place.belong(actor)
        elif self._most_unauthenticated and self._count(None) >= self._most_unauthenticated:
            raise TooManyConnections(
                f"this server has {self._most_unauthenticated} connections open that are not authenticated "
                f"({PREFIX}MAX_UNAUTHENTICATED_CONNECTIONS); send the key in a header, or try again later"
            )
        self._taken.add(place)
        return place

    def check_all(self) -> None:
        """TooMany where there are as many as there may be, those apart that are not authenticated."""
        if self._most and len(self._taken) - self._count(None) >= self._most:
            raise TooManyConnections(
                f"this server has {self._most} connections open, which is all that it takes "
                f"({PREFIX}MAX_CONNECTIONS); try another replica, or later"
            )

    def check(self, actor: str) -> None:
        """TooMany where they have as many as one may have."""
        if not self._most_of_one:
            return
        if self._count(actor) >= self._most_of_one:
            raise TooManyConnections(
                f"this key has {self._most_of_one} connections open, which is all that one may have "
                f"({PREFIX}MAX_CONNECTIONS_PER_KEY); close one first"
            )

    def _count(self, actor: str | None) -> int:
        return sum(place.actor == actor for place in self._taken)

    def forget(self, place: ConnectionSlot) -> None:
        """It is over."""
        self._taken.discard(place)

    def open(self) -> Counter[str]:
        """How many there are, by kind."""
        return Counter(place.kind for place in self._taken)
