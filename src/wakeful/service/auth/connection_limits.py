"""Limits on open connections (RPC and event streams), in total, per workspace and per key, and on requests.

The limits hold per process, so that one tenant does not take what all need. A key for all workspaces counts
towards none of them. Connections that are not authenticated yet have a limit of their own, so that
they use no slots of authenticated ones.
"""

from __future__ import annotations

from collections import Counter
from weakref import WeakSet

from wakeful.errors import ResourceExhausted
from wakeful.settings import PREFIX
from wakeful.store.port import current_tenant


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
        #: the workspace of its key; None: not authenticated, or a key for all workspaces
        self.workspace: str | None = None

    def assign(self, actor: str, workspace: str | None) -> None:
        """Assign the slot to an actor; TooManyConnections if a limit is reached."""
        if actor != self.actor:
            if self.actor is None:
                self._limits.check_total()
            self._limits.check_actor(actor)
            if workspace is not None and workspace != self.workspace:
                self._limits.check_workspace(workspace)
            self.actor, self.workspace = actor, workspace
            current_tenant.set(workspace)

    def release(self) -> None:
        """Free the slot: the connection is closed."""
        self._limits.discard(self)


class ConnectionLimits:
    """The open connections of this process, and their limits; 0: no limit."""

    def __init__(
        self,
        max_total: int,
        max_per_actor: int,
        max_unauthenticated: int,
        max_per_workspace: int = 0,
        max_requests: int = 0,
    ) -> None:
        self._max_total = max_total
        self._max_per_actor = max_per_actor
        self._max_unauthenticated = max_unauthenticated
        self._max_per_workspace = max_per_workspace
        self._max_requests = max_requests
        #: the requests in progress, by workspace
        self._requests: Counter[str] = Counter()
        # Weak: a stream whose client disconnects before it starts is never closed, only collected.
        self._taken: WeakSet[ConnectionSlot] = WeakSet()

    def acquire(self, kind: str, actor: str | None = None, workspace: str | None = None) -> ConnectionSlot:
        """Return a slot, or raise TooManyConnections. Without an actor it is not authenticated yet.

        >>> limits = ConnectionLimits(2, 1, 0)
        >>> ada, bob = limits.acquire("rpc", "key:ada"), limits.acquire("rpc", "key:bob")
        >>> bob.release()
        >>> limits.acquire("events", "key:ada")
        Traceback (most recent call last):
        wakeful.service.auth.connection_limits.TooManyConnections: this key has 1 connections open...
        """
        slot = ConnectionSlot(self, kind)
        if actor is not None:
            slot.assign(actor, workspace)
        elif self._max_unauthenticated and self._count(None) >= self._max_unauthenticated:
            raise TooManyConnections(
                f"this server has {self._max_unauthenticated} connections open that are not authenticated "
                f"({PREFIX}MAX_UNAUTHENTICATED_CONNECTIONS); send the key in a header, or try again later"
            )
        self._taken.add(slot)
        return slot

    def check_total(self) -> None:
        """Raise TooManyConnections if the limit of authenticated connections is reached."""
        if self._max_total and len(self._taken) - self._count(None) >= self._max_total:
            raise TooManyConnections(
                f"this server has {self._max_total} connections open, which is its limit "
                f"({PREFIX}MAX_CONNECTIONS); try another replica, or try again later"
            )

    def check_actor(self, actor: str) -> None:
        """Raise TooManyConnections if the limit of connections per actor is reached."""
        if not self._max_per_actor:
            return
        if self._count(actor) >= self._max_per_actor:
            raise TooManyConnections(
                f"this key has {self._max_per_actor} connections open, which is the limit of one key "
                f"({PREFIX}MAX_CONNECTIONS_PER_KEY); close one first"
            )

    def check_workspace(self, workspace: str) -> None:
        """Raise TooManyConnections if the limit of connections per workspace is reached."""
        most = self._max_per_workspace
        if most and sum(slot.workspace == workspace for slot in self._taken) >= most:
            raise TooManyConnections(
                f"workspace '{workspace}' has {most} connections open here, which is the limit of one "
                f"workspace ({PREFIX}MAX_CONNECTIONS_PER_WORKSPACE); close one first, or try another replica"
            )

    def begin_request(self, workspace: str) -> None:
        """Count a request of a workspace until `end_request`; TooManyConnections if the limit is reached.

        What the request calls of the store from now on is a call of this tenant.

        >>> limits = ConnectionLimits(0, 0, 0, 0, max_requests=1)
        >>> limits.begin_request("acme")
        >>> limits.begin_request("acme")
        Traceback (most recent call last):
        wakeful.service.auth.connection_limits.TooManyConnections: workspace 'acme' has 1 requests in ...
        >>> limits.end_request("acme")
        >>> limits.begin_request("acme")
        """
        if self._max_requests and self._requests[workspace] >= self._max_requests:
            raise TooManyConnections(
                f"workspace '{workspace}' has {self._max_requests} requests in progress here, which is the "
                f"limit of one workspace ({PREFIX}MAX_REQUESTS_PER_WORKSPACE); try again later"
            )
        self._requests[workspace] += 1
        current_tenant.set(workspace)

    def end_request(self, workspace: str) -> None:
        """Count a request no longer."""
        self._requests[workspace] -= 1
        if not self._requests[workspace]:
            del self._requests[workspace]

    def _count(self, actor: str | None) -> int:
        return sum(slot.actor == actor for slot in self._taken)

    def discard(self, slot: ConnectionSlot) -> None:
        """Remove a slot whose connection is closed."""
        self._taken.discard(slot)

    def open(self) -> Counter[str]:
        """Return the number of open connections, by kind."""
        return Counter(slot.kind for slot in self._taken)
